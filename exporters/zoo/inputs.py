"""Inputs as a user would pass them, from the names of forward's parameters and the sizes in the config.

One rule a parameter. A rule gives the tensor and the names of its axes, so that the axes that vary are known by the
rule that made them and never guessed afterwards. What no rule can know is declared in `overrides.json`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn
from transformers import PreTrainedConfig

from exporters.zoo import image_inputs, other_inputs, sound_inputs, text_inputs
from exporters.zoo.image_inputs import image_tokens, images_of_rows
from exporters.zoo.overrides import Override
from exporters.zoo.placeholders import questions
from exporters.zoo.request import SETS, SIZES, Leaf, Request, text_config
from exporters.zoo.sample import Axis
from exporters.zoo.text_inputs import row_lengths

__all__ = ["RULES", "SETS", "SIZES", "InputSets", "Leaf", "Request", "image_tokens", "images_of_rows", "make_inputs", "row_lengths"]

Rule = Callable[[Request], Leaf | None]

# In this order: a text has places for the images and sounds that were made before it.
RULES: tuple[tuple[str, Rule], ...] = (
    *image_inputs.RULES.items(),
    *((name, rule) for name, rule in sound_inputs.RULES.items() if name != "attention_mask"),
    *text_inputs.RULES.items(),
    ("attention_mask", sound_inputs.RULES["attention_mask"]),
    *other_inputs.RULES.items(),
)

TEXT = frozenset({"input_ids", "attention_mask", "token_type_ids"})

# ── Bounds ────────────────────────────────────────────────────────────────────

_BOUND_FIELDS: dict[str, tuple[str, ...]] = {
    "sequence": ("max_position_embeddings", "n_positions"),
    "decoder_sequence": ("max_target_positions", "max_position_embeddings"),
}


_UNBOUNDED = ("batch", "images")  # and what is a multiple of them


def _receptive_field(config: PreTrainedConfig) -> int:
    """Samples that a stack of convolutions needs for one frame."""
    field_size = 1
    for kernel, stride in zip(reversed(config.conv_kernel), reversed(config.conv_stride), strict=True):
        field_size = (field_size - 1) * stride + kernel
    return field_size


def _positions(config: PreTrainedConfig, name: str) -> tuple[int, str] | None:
    """How many positions the config has for the axis `name`, and the field that says so."""
    for bound_field in _BOUND_FIELDS.get(name, ()):
        for part in (text_config(config), config):
            bound = getattr(part, bound_field, None)
            if isinstance(bound, int) and bound > 0:
                return bound, bound_field
    return None


def _sizes(config: PreTrainedConfig, index: int, wanted: Mapping[str, tuple[int, int, int]]) -> dict[str, int]:
    """The sizes of one input set, none beyond the model's positions."""
    sizes = {name: of_sets[index] for name, of_sets in {**SIZES, **wanted}.items()}
    for name in sizes:
        positions = _positions(config, name)
        if positions is not None:
            sizes[name] = min(sizes[name], positions[0])
    return sizes


def _axis(name: str, sizes: tuple[int, ...], config: PreTrainedConfig, declared: Mapping[str, Any]) -> Axis:
    """The axis `name` with its bounds: from the config's positions, else as declared, else none."""
    positions = _positions(config, name)
    if positions is not None:
        return Axis(name, sizes, max=positions[0], why=f"config.{positions[1]}")
    bounds = dict(declared.get(name, {}))
    if name == "samples" and hasattr(config, "conv_kernel"):
        bounds["min"] = _receptive_field(config)
    if "max" not in bounds and not name.startswith(_UNBOUNDED):
        bounds = {**bounds, "max": 4 * max(sizes), "why": "nothing in the config bounds it; four times the largest sample"}
    return Axis(name, sizes, **bounds)


# ── Input sets ────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class InputSets:
    """All input sets of a model, leaf by leaf, and what varies between them."""

    leaves: dict[str, dict[str, Leaf]]
    axes: tuple[Axis, ...]
    constants: dict[str, Any] = field(default_factory=dict)

    def tensors(self, name: str) -> dict[str, Any]:
        """The keyword inputs of one set."""
        return {**{parameter: leaf.tensor for parameter, leaf in self.leaves[name].items()}, **self.constants}


def make_inputs(
    model: nn.Module,
    main_input: str,
    declared: Override,
    *,
    seed: int,
    padding: str = "right",
    sizes: Mapping[str, tuple[int, int, int]] | None = None,
    given: Mapping[str, Mapping[str, Leaf]] | None = None,
) -> InputSets:
    """Make every set of `SETS` for `model`.

    Args:
        model: has a transformers config; only its config and forward's signature are looked at.
        main_input: name of the parameter that carries the data.
        declared: what the rules can't know.
        seed: same seed, same inputs.
        padding: side on which short texts are padded, or `none`.
        sizes: by axis, other sizes than the usual ones.
        given: by set, the text inputs that a tokenizer made; the rules make the rest.
    """
    config: PreTrainedConfig = model.config
    signature = inspect.signature(model.forward).parameters
    required = _required(model.forward) | {name for ask in questions(model) for name in _required(ask) if name in signature}
    leaves: dict[str, dict[str, Leaf]] = {}
    for index, name in enumerate(SETS):
        request = Request(
            model=model,
            config=config,
            parameters=frozenset(signature),
            required=frozenset(required),
            main_input=main_input,
            options=declared.inputs,
            sizes=_sizes(config, index, sizes or {}),
            generator=torch.Generator().manual_seed(seed + index),
            padding=padding,
            made=dict(given[name]) if given else {},
        )
        _make_set(request, given is not None)
        leaves[name] = request.made
    return InputSets(leaves, _axes(leaves, config, declared.inputs.get("bounds", {})), dict(declared.inputs.get("constants", {})))


def _required(function: Callable[..., Any]) -> set[str]:
    """Names of the parameters without a default."""
    parameters = inspect.signature(function).parameters.values()
    return {one.name for one in parameters if one.default is one.empty and one.kind is one.POSITIONAL_OR_KEYWORD}


def _make_set(request: Request, has_text: bool) -> None:
    """All leaves of one set, into `request.made`. A tokenizer that made no token types wants none."""
    without = set(request.option("without", ()))
    tensors = request.option("tensors", {})
    tensors = {name: spec for name, spec in tensors.items() if name not in request.made}  # a processor knows better
    early = [name for name, spec in tensors.items() if not spec.get("late")]
    for name in early:
        request.made[name] = other_inputs.declared(request, name, tensors[name])
    for name, rule in RULES:
        if name not in request.parameters or name in without or name in request.made or (has_text and name in TEXT):
            continue
        leaf = rule(request)
        if leaf is not None:
            request.made[name] = leaf
    for name in tensors:
        if name not in early:
            request.made[name] = other_inputs.declared(request, name, tensors[name])


def _axes(leaves: Mapping[str, dict[str, Leaf]], config: PreTrainedConfig, bounds: Mapping[str, Any]) -> tuple[Axis, ...]:
    """The named axes of the leaves that vary, each once, with their sizes in every set."""
    found: dict[str, tuple[int, ...]] = {}
    for parameter, leaf in leaves[SETS[0]].items():
        for position, name in enumerate(leaf.axes):
            if name:
                found[name] = tuple(leaves[set_name][parameter].tensor.shape[position] for set_name in SETS)
    return tuple(_axis(name, sizes, config, bounds) for name, sizes in found.items() if len(set(sizes)) > 1)
