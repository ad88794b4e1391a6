"""Variants of a model: the same weights, called as another part of its life calls them."""

from __future__ import annotations

import copy
import inspect
import itertools
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch
from torch import nn
from transformers import cache_utils
from transformers.modeling_outputs import BaseModelOutput, BaseModelOutputWithPooling
from transformers.utils import ModelOutput

from exporters.zoo.captured import sample_of_part
from exporters.zoo.inputs import SETS, InputSets, Leaf, make_inputs
from exporters.zoo.overrides import Override
from exporters.zoo.sample import Axis, Sample

CACHES = ("cache", "state")  # what models call what they remember
# what is past fills a sliding window of 8 in every set: a window that fills up is another program
_STEP_SIZES = {"sequence": (10, 14, 9)}
Given = Mapping[str, Mapping[str, Leaf]] | None


def _own_storage(cache: Any) -> Any:
    """`cache` with every state tensor dense and in memory of its own, as it is after any step that appended to it."""
    if isinstance(cache, (list, tuple)):
        return [state.detach().clone(memory_format=torch.contiguous_format) for state in cache]
    if not hasattr(cache, "layers") and not hasattr(cache, "self_attention_cache"):
        return copy.deepcopy(cache)
    for half in (getattr(cache, "self_attention_cache", None), getattr(cache, "cross_attention_cache", None)):
        if half is not None:
            _own_storage(half)
    for layer in getattr(cache, "layers", ()):
        for name, value in vars(layer).items():
            if isinstance(value, torch.Tensor):
                setattr(layer, name, value.detach().clone(memory_format=torch.contiguous_format))
            elif isinstance(value, list) and any(isinstance(item, torch.Tensor) for item in value):
                setattr(layer, name, [item.detach().clone() if isinstance(item, torch.Tensor) else item for item in value])
    return cache


def _grown_axis(sets: InputSets) -> str:
    """The axis that grows by a token a step."""
    return "decoder_sequence" if any("decoder_sequence" in leaf.axes for leaf in sets.leaves[SETS[0]].values()) else "sequence"


def _between(sets: InputSets, name: str, options: Mapping[str, Any], start: int, stop: int) -> dict[str, Any]:
    """What a call on the tokens from `start` to `stop` is given, where the cache has those before; `options` as in `Override.decode`."""
    axis = _grown_axis(sets)
    given: dict[str, Any] = {}
    for parameter, leaf in sets.leaves[name].items():
        if start and parameter in options.get("drops", ()):
            continue
        if axis in leaf.axes:
            all_of_it = parameter in ("attention_mask", "decoder_attention_mask") or parameter in options.get("whole", ())
            first, tensor = 0 if all_of_it else start, leaf.tensor
            for position in (index for index, name in enumerate(leaf.axes) if name == axis):
                tensor = tensor.narrow(position, first, stop - first)
            given[parameter] = tensor.contiguous()
            continue
        reads_encoder = axis == "decoder_sequence" and parameter == "attention_mask"
        if not start or reads_encoder or parameter in options.get("keeps", ()):
            given[parameter] = leaf.tensor
    return given


def _length(sets: InputSets, name: str) -> int:
    """Tokens of one set."""
    axis = _grown_axis(sets)
    return next(leaf.tensor.shape[leaf.axes.index(axis)] for leaf in sets.leaves[name].values() if axis in leaf.axes)


def _rows(sets: InputSets, name: str) -> int:
    """Rows of one set."""
    return next(leaf.tensor.shape[0] for leaf in sets.leaves[name].values() if leaf.axes[:1] == ("batch",))


def _step(model: nn.Module, sets: InputSets, name: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """The last token of every row, a cache of what precedes it, and the mask over both; `options` as in `Override.decode`."""
    past = _length(sets, name) - 1
    step = _between(sets, name, options, past, past + 1)
    step.update(_positions(model, sets, name))
    if "positions" in options:
        step["position_ids"] = torch.full((*options["positions"], _rows(sets, name), 1), past)
    parameters = inspect.signature(model.forward).parameters
    cache = options.get("cache") or next(kind for kind in CACHES if kind in parameters)
    asks = "use_cache" in parameters or ("kwargs" in parameters and not model.config.is_encoder_decoder)  # or an encoder would be asked too
    asked = options.get("ask", {"use_cache": True} if asks else {})
    filled: dict[str, Any] = {}
    if "cache_class" in options:
        filled[cache] = _cache_class(model, options["cache_class"])(config=model.config)
    with torch.no_grad(), torch.random.fork_rng(devices=[]), _encoder_output(model) as read:
        torch.default_generator.manual_seed(0)  # for a codec that draws
        for start, stop in itertools.pairwise([*range(past), past] if options.get("by_token") else [0, past]):
            outputs = model(**{**sets.constants, **_between(sets, name, options, start, stop), **filled, **asked})
            filled[cache] = getattr(outputs, cache, filled.get(cache))  # some fill the one they were given, and say nothing of it
            if "encoder_outputs" in parameters and _grown_axis(sets) == "decoder_sequence":
                filled["encoder_outputs"] = _own(_encoded(outputs, read))
    filled[cache] = _own_storage(filled[cache])
    return {**step, **sets.constants, **options.get("constants", {}), **filled}


def _cache_class(model: nn.Module, name: str) -> Any:
    """A cache class of the model's own module, or of transformers."""
    return getattr(sys.modules[type(model).__module__], name, None) or getattr(cache_utils, name)


def _encoded(outputs: Any, read: list[Any]) -> Any:
    """What the encoder gave, from the encoder itself where it was heard, else from what the whole tells of it."""
    if read:
        return read[-1]
    states = getattr(outputs, "encoder_last_hidden_state", getattr(outputs, "generator_enc_last_hidden_state", None))
    if states is not None:
        return BaseModelOutput(last_hidden_state=states)
    return BaseModelOutputWithPooling(last_hidden_state=outputs.last_hidden_state, pooler_output=outputs.pooler_output)  # a transducer


@contextmanager
def _encoder_output(model: nn.Module) -> Iterator[list[Any]]:
    """What the encoder gives while this is open; nothing where there is none."""
    read: list[Any] = []
    encoder = model.get_encoder() if model.config.is_encoder_decoder else None
    if encoder is None or encoder is model:
        yield read
        return
    handle = encoder.register_forward_hook(lambda module, inputs, output: read.append(output))
    try:
        yield read
    finally:
        handle.remove()


def _own(output: Any) -> Any:
    """An output of the same kind, its tensors in memory of their own."""
    if isinstance(output, torch.Tensor):
        return output.detach().clone()
    if isinstance(output, ModelOutput):
        return type(output)(**{name: _own(value) for name, value in output.items()})
    return type(output)(_own(item) for item in output) if isinstance(output, (list, tuple)) else output


def _positions(model: nn.Module, sets: InputSets, name: str) -> dict[str, torch.Tensor]:
    """Where the new token stands, for a model that counts an image's patches in rows and columns and keeps the count in itself."""
    ask = getattr(model, "get_rope_index", None) or getattr(getattr(model, "model", None), "get_rope_index", None)
    leaves = sets.leaves[name]
    if ask is None or "input_ids" not in leaves or "position_ids" not in inspect.signature(model.forward).parameters:
        return {}
    wanted = inspect.signature(ask).parameters
    given = {parameter: leaf.tensor for parameter, leaf in leaves.items() if parameter in wanted}
    if "audio_seqlens" in wanted and "feature_attention_mask" in leaves:
        given["audio_seqlens"] = leaves["feature_attention_mask"].tensor.sum(dim=-1)
    with torch.no_grad():
        positions, _ = ask(**given)
    return {"position_ids": positions[..., -1:].clone()}


def _decode(model: nn.Module, main_input: str, declared: Override, seed: int, given: Given = None) -> Sample:
    """One step of generation. Made inputs are padded on the left, as they must be for the new token to follow the text."""
    options = declared.decode
    declared = replace(declared, inputs={**declared.inputs, **options.get("inputs", {})})
    sizes = {**_STEP_SIZES, **options.get("sizes", {})}
    sets = make_inputs(model, main_input, declared, seed=seed, padding=options.get("padding", "left"), sizes=sizes, given=given)
    if "part" in options:
        model, sets = _of_part(model, sets, options["part"], options.get("axis", ""))
    grown = _grown_axis(sets)
    made = {name: _step(model, sets, name, options) for name in SETS}
    axes: list[Axis] = []
    for axis in sets.axes:
        if axis.name != grown:
            axes.append(axis)
            continue
        last = None if axis.max is None else axis.max - 1
        axes.append(replace(axis, name="past", sizes=tuple(size - 1 for size in axis.sizes), max=last))
        if grown == "sequence":
            axes.append(replace(axis, name="total", min=axis.min + 1))  # past and the new token
    wholes = {name: {**sets.tensors(name), **options.get("of_whole", {})} for name in SETS}
    return Sample(model, made[SETS[0]], {name: made[name] for name in SETS[1:]}, _seen(axes, made), wholes=wholes)


def _of_part(model: nn.Module, sets: InputSets, path: str, grown: str) -> tuple[nn.Module, InputSets]:
    """The part of a model that its `generate` hands its steps to, with what reaches it when the model is called on everything.

    `grown` is the axis of its tokens, where it isn't as long as the model's.
    """
    whole = Sample(model, sets.tensors(SETS[0]), {name: sets.tensors(name) for name in SETS[1:]}, sets.axes)
    part = sample_of_part(whole, path)
    made = {SETS[0]: part.inputs, **part.others}
    known = tuple(replace(axis, name="sequence") if axis.name == grown else axis for axis in part.axes)
    names = {axis.sizes: axis.name for axis in known}
    leaves: dict[str, dict[str, Leaf]] = {name: {} for name in SETS}
    constants = {}
    for parameter, value in part.inputs.items():
        if not isinstance(value, torch.Tensor):
            constants[parameter] = value
            continue
        columns = zip(*(made[name][parameter].shape for name in SETS), strict=True)
        axes = tuple(names.get(sizes, "") for sizes in columns)
        for name in SETS:
            leaves[name][parameter] = Leaf(made[name][parameter], axes)
    return part.model, InputSets(leaves, known, constants)


def _seen(axes: list[Axis], made: Mapping[str, dict[str, Any]]) -> tuple[Axis, ...]:
    """The axes that a step still has (images and sounds are past), and one for each length that the encoder made of its input."""
    rows = [list(_tensors(list(made[name].values()))) for name in SETS]
    columns = list(zip(*rows, strict=False))
    sizes = [tuple(tensor.shape[i] for tensor in column) for column in columns for i in range(min(t.ndim for t in column))]
    varying = list(dict.fromkeys(row for row in sizes if len(set(row)) > 1))
    known = [axis for axis in axes if axis.sizes in varying]
    new = [row for row in varying if row not in {axis.sizes for axis in known}]
    why = "follows from what the encoder read; four times the longest"
    encoded = [Axis(f"encoded_{index}" if index else "encoded", row, max=4 * max(row), why=why) for index, row in enumerate(new)]
    return (*known, *encoded)


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, dict):
        yield from _tensors(list(value.values()))
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _tensors(item)
    elif hasattr(value, "self_attention_cache"):
        yield from _tensors([value.self_attention_cache, value.cross_attention_cache])
    elif hasattr(value, "layers"):
        for layer in value.layers:
            yield from _tensors(vars(layer))
    elif type(value).__name__.endswith("Cache"):
        yield from _tensors(vars(value))


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
