"""What the zoo hands out: a model, input sets of several sizes, and the axes that vary between them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import nn


@dataclass(frozen=True)
class Axis:
    """A size that varies, under one name, in every tensor that has it.

    Attributes:
        name: what it counts: `batch`, `sequence`, `past`, `image_height`, …
        sizes: its size in `Sample.inputs`, then in each of `Sample.others`, in their order.
        min: smallest size that the model takes.
        max: largest size that the model takes; None where nothing bounds it.
        why: where `max` comes from.
    """

    name: str
    sizes: tuple[int, ...]
    min: int = 1
    max: int | None = None
    why: str = ""


@dataclass
class Sample:
    """A model with everything that an export and its verification need.

    Attributes:
        model: on the CPU, in `eval()`; float32 for zoo models, the checkpoint's own dtype otherwise.
        inputs: keyword inputs that it is traced with; tensors and caches. A forward may append to a cache: copy before calling.
        others: further input sets of the same structure; `other` has another batch and other lengths, `batch_1` a batch of one.
        axes: the axes that vary; no two of them have the same sizes.
        select: `(outputs, inputs) -> outputs` that count for parity, where not all of them do.
        select_reason: why.
        wholes: of a step of generation, by set, the inputs of one call over everything; its last position is what the step must give.
        source: where the inputs come from: `rules`, or what text through which tokenizer.
    """

    model: nn.Module
    inputs: dict[str, Any]
    others: dict[str, dict[str, Any]]
    axes: tuple[Axis, ...]
    select: Callable[[Any, dict[str, Any]], Any] | None = None
    select_reason: str = ""
    wholes: dict[str, dict[str, Any]] = field(default_factory=dict)
    source: str = "rules"
