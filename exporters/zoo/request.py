"""What an input rule is told, and what it gives."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn
from transformers import PreTrainedConfig

SETS = ("inputs", "other", "batch_1")
# Size of everything that may vary, in each of the sets. No two alike, or two axes could not be told apart.
SIZES: dict[str, tuple[int, int, int]] = {
    "batch": (2, 3, 1),
    "images": (3, 4, 1),
    "sequence": (10, 14, 7),
    "decoder_sequence": (6, 9, 5),
    "samples": (2000, 2800, 1600),
    "frames": (48, 80, 32),
    "image_height": (64, 96, 128),
    "image_width": (96, 128, 64),
    "instruction": (9, 12, 6),
    "regions": (5, 8, 4),
    "entities": (4, 6, 3),
    "points": (3, 5, 2),
}


@dataclass(frozen=True)
class Leaf:
    """A tensor and, for each of its axes, the name of what it counts; an empty name for an axis that never varies."""

    tensor: torch.Tensor
    axes: tuple[str, ...]


@dataclass
class Request:
    """One input set to be made.

    Attributes:
        model: asked only how many features it makes of an image or a sound.
        config: the model's config.
        parameters: names of forward's parameters.
        required: those without a default.
        main_input: the one that carries the data.
        options: `Override.inputs`.
        sizes: size by axis name.
        generator: where every random value comes from.
        padding: side on which short rows are padded, `right`, `left` or `none`.
        made: leaves made so far, in the order of the rules.
    """

    model: nn.Module
    config: PreTrainedConfig
    parameters: frozenset[str]
    required: frozenset[str]
    main_input: str
    options: Mapping[str, Any]
    sizes: dict[str, int]
    generator: torch.Generator
    padding: str = "right"
    made: dict[str, Leaf] = field(default_factory=dict)

    @property
    def class_name(self) -> str:
        return type(self.model).__name__

    @property
    def text(self) -> PreTrainedConfig:
        return text_config(self.config)

    def option(self, name: str, default: Any = None) -> Any:
        return self.options.get(name, default)

    def integers(self, low: int, high: int, shape: tuple[int, ...]) -> torch.Tensor:
        return torch.randint(low, high, shape, generator=self.generator)

    def normal(self, shape: tuple[int, ...]) -> torch.Tensor:
        return torch.randn(shape, generator=self.generator)

    def uniform(self, shape: tuple[int, ...]) -> torch.Tensor:
        return torch.rand(shape, generator=self.generator)

    def varies(self, axis: str) -> bool:
        return axis in self.options.get("varies", ())


def text_config(config: PreTrainedConfig) -> PreTrainedConfig:
    """The part that knows the vocabulary; the encoder's where a model has several."""
    for name in ("text_config", "text_encoder", "thinker_config", "vlm_config"):
        part = getattr(config, name, None)
        if isinstance(part, PreTrainedConfig):
            return text_config(part)
    try:
        return config.get_text_config()
    except ValueError:  # several text parts, none of them called as above
        return config


def part(config: PreTrainedConfig, *names: str) -> PreTrainedConfig:
    """The first sub-config of these names, looked for in the model inside a wrapper too; the config itself without any."""
    for owner in (config, getattr(config, "thinker_config", None), getattr(config, "vlm_config", None)):
        for name in names:
            found = getattr(owner, name, None)
            if isinstance(found, PreTrainedConfig):
                return found
    return config


def first_of(config: PreTrainedConfig, *names: str) -> Any:
    """The first field of these that is set."""
    return next((value for name in names if (value := getattr(config, name, None)) is not None), None)


def lookup(config: PreTrainedConfig, path: str) -> Any:
    """The value at a dotted path of fields."""
    value: Any = config
    for name in path.split("."):
        value = value[int(name)] if isinstance(value, (list, tuple)) else getattr(value, name)
    return value
