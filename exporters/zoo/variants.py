"""Variants of a model: the same weights, called as another part of its life calls them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import nn

from exporters.zoo.inputs import SETS, InputSets, Leaf, make_inputs
from exporters.zoo.overrides import Override
from exporters.zoo.sample import Axis, Sample

Given = Mapping[str, Mapping[str, Leaf]] | None


def _own_storage(cache: Any) -> Any:
    """`cache` with every state tensor dense and in memory of its own, as it is after any step that appended to it."""
    for layer in cache.layers:
        for name, value in vars(layer).items():
            if isinstance(value, torch.Tensor):
                setattr(layer, name, value.detach().clone(memory_format=torch.contiguous_format))
    return cache


def _step(model: nn.Module, sets: InputSets, name: str) -> dict[str, Any]:
    """The last token of every row, a cache of what precedes it, and the mask over both."""
    prompt: dict[str, Any] = {}
    step: dict[str, Any] = {}
    for parameter, leaf in sets.leaves[name].items():
        if "sequence" not in leaf.axes:
            prompt[parameter] = leaf.tensor
            continue
        position = leaf.axes.index("sequence")
        past = leaf.tensor.shape[position] - 1
        prompt[parameter] = leaf.tensor.narrow(position, 0, past).contiguous()
        step[parameter] = leaf.tensor if parameter == "attention_mask" else leaf.tensor.narrow(position, past, 1).contiguous()
    with torch.no_grad():
        cache = model(**prompt, use_cache=True).cache
    return {**step, "cache": _own_storage(cache)}


def _decode(model: nn.Module, main_input: str, declared: Override, seed: int, given: Given = None) -> Sample:
    """One step of generation. Made inputs are padded on the left, as they must be for the new token to follow the text."""
    sets = make_inputs(model, main_input, declared, seed=seed, padding="left", given=given)
    made = {name: _step(model, sets, name) for name in SETS}
    axes: list[Axis] = []
    for axis in sets.axes:
        if axis.name != "sequence":
            axes.append(axis)
            continue
        last = None if axis.max is None else axis.max - 1
        axes.append(replace(axis, name="past", sizes=tuple(size - 1 for size in axis.sizes), max=last))
        axes.append(replace(axis, name="total", min=axis.min + 1))  # past and the new token
    return Sample(model, made[SETS[0]], {name: made[name] for name in SETS[1:]}, tuple(axes))


def _as_called(model: nn.Module, main_input: str, declared: Override, seed: int, given: Given = None) -> Sample:
    """The class itself: one call of forward on everything."""
    sets = make_inputs(model, main_input, declared, seed=seed, given=given)
    return Sample(model, sets.tensors(SETS[0]), {name: sets.tensors(name) for name in SETS[1:]}, sets.axes)


def _without(names: list[str]) -> Callable[[Any, dict[str, Any]], dict[str, Any]]:
    """A `Sample.select` that leaves out the named outputs."""

    def select(outputs: Any, inputs: dict[str, Any]) -> dict[str, Any]:
        return {name: value for name, value in outputs.items() if name not in names}

    return select


def make_sample(model: nn.Module, variant: str, main_input: str, declared: Override, *, seed: int, given: Given = None) -> Sample:
    """`model` called as `variant` says (empty: as it is), with inputs, and with what of its outputs counts.

    Args:
        model: has a transformers config.
        variant: a key of `VARIANTS`.
        main_input: the parameter that carries the data.
        declared: what the rules can't know of its model type.
        seed: of the inputs.
        given: text inputs by set, where a tokenizer made them.
    """
    sample = VARIANTS[variant](model, main_input, declared, seed, given)
    if declared.outputs:
        sample.select = _without(declared.outputs["without"])
        sample.select_reason = declared.outputs["why"]
    return sample


VARIANTS: dict[str, Callable[[nn.Module, str, Override, int, Given], Sample]] = {"": _as_called, "decode": _decode}
