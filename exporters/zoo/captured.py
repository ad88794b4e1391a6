"""A class whose forward takes what only its model gives it: run the whole, and take what reaches the part."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import nn

from exporters.zoo.sample import Axis, Sample


def sample_of_part(whole: Sample, part: str) -> Sample:
    """A part of `whole.model`, with the inputs that reach it from each input set.

    Args:
        whole: sample of a model that has such a part.
        part: its class, of which the first is taken, or its place in the model.

    Returns:
        The part itself, not a copy. Sizes that vary keep the whole's names where they are the whole's sizes.

    Raises:
        ValueError: the model has no such part, or doesn't call it.
    """
    model = next((module for path, module in whole.model.named_modules() if part in (type(module).__name__, path)), None)
    if model is None:
        raise ValueError(f"{type(whole.model).__name__} has no part {part}")
    sets = {name: _reaching(whole.model, model, inputs) for name, inputs in {"inputs": whole.inputs, **whole.others}.items()}
    inputs = sets.pop("inputs")
    return Sample(model, inputs, sets, tuple(_axes(whole.axes, inputs, sets)))


def _reaching(whole: nn.Module, model: nn.Module, inputs: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of the first call of `model`, by name, without those that are None or a cache."""
    calls: list[dict[str, Any]] = []
    signature = inspect.signature(model.forward)

    def keep(module: nn.Module, positional: tuple[Any, ...], named: dict[str, Any]) -> None:
        if calls:
            return
        bound = signature.bind(*positional, **named).arguments
        extra = bound.pop("kwargs", {})
        calls.append({name: _own(value) for name, value in {**bound, **extra}.items() if _is_data(name, value, signature)})

    handle = model.register_forward_pre_hook(keep, with_kwargs=True)
    try:
        with torch.no_grad(), torch.random.fork_rng(devices=[]):
            whole(**inputs)
    finally:
        handle.remove()
    if not calls:
        raise ValueError(f"{type(whole).__name__} doesn't call {type(model).__name__}")
    return calls[0]


def _is_data(name: str, value: Any, signature: inspect.Signature) -> bool:
    if name not in signature.parameters or value is None:
        return False
    leaves = list(_tensors(value))
    return bool(leaves) or (isinstance(value, (bool, int, float, str)) and signature.parameters[name].default is inspect.Parameter.empty)


def _own(value: Any) -> Any:
    """`value` in memory of its own."""
    if isinstance(value, torch.Tensor):
        return value.detach().clone(memory_format=torch.contiguous_format)
    if isinstance(value, (list, tuple)):
        return type(value)(_own(item) for item in value)
    return {key: _own(item) for key, item in value.items()} if isinstance(value, dict) else value


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _tensors(item)
    elif isinstance(value, dict):
        yield from _tensors(list(value.values()))


def _axes(known: tuple[Axis, ...], inputs: Mapping[str, Any], others: Mapping[str, Mapping[str, Any]]) -> Iterator[Axis]:
    """The whole's axes that the part still has, and one for each other size that varies, bounded by a multiple of its largest."""
    by_sizes = {axis.sizes: axis for axis in known}
    given: set[tuple[int, ...]] = set()
    for name, value in inputs.items():
        columns = [list(_tensors(value)), *(list(_tensors(other[name])) for other in others.values())]
        for index, row in enumerate(zip(*columns, strict=False)):
            for position in range(min(tensor.ndim for tensor in row)):
                sizes = tuple(tensor.shape[position] for tensor in row)
                if len(set(sizes)) == 1 or sizes in given:
                    continue
                given.add(sizes)
                suffix = f"_{index}" if index else ""
                why = "follows from the whole's sizes; four times the largest"
                yield by_sizes.get(sizes, Axis(f"{name}{suffix}_{position}", sizes, max=4 * max(sizes), why=why))
