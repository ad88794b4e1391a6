"""One class of the zoo tried in this process: does it build, run on every input set, and decode from its cache?"""

from __future__ import annotations

import copy
import time
import traceback
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn

from exporters.zoo import catalogue, requirements
from exporters.zoo.build import build
from exporters.zoo.sample import Sample

MOST_PARAMETERS = 2_500_000
FLAT = 1e-5
LARGE = 1e4
DECODE_TOLERANCE = 1e-3  # beside logits of about one


def leaves(value: Any, path: str = "") -> Iterator[tuple[str, torch.Tensor]]:
    """Every tensor in nested dicts, sequences, outputs and caches, with its dotted path."""
    if isinstance(value, torch.Tensor):
        yield path, value
    elif hasattr(value, "self_attention_cache"):
        yield from leaves([value.self_attention_cache, value.cross_attention_cache], path)
    elif isinstance(layers := getattr(value, "layers", None), list):
        for index, layer in enumerate(layers):
            yield from leaves(vars(layer), f"{path}.{index}")
    elif hasattr(value, "items"):
        for key, item in value.items():
            yield from leaves(item, f"{path}.{key}" if path else str(key))
    elif type(value).__name__.endswith("Cache"):
        yield from leaves(vars(value), path)
    elif isinstance(value, (list, tuple)):
        for index, item in enumerate(value):
            yield from leaves(item, f"{path}.{index}")


def call(model: nn.Module, inputs: dict[str, Any]) -> dict[str, torch.Tensor]:
    """Outputs by path. The inputs are copied first, because a forward appends to its cache, and random draws are the same each time."""
    with torch.no_grad(), torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(0)
        return dict(leaves(model(**copy.deepcopy(inputs))))


def probe(name: str) -> dict[str, Any]:
    """Build `name` and call it on all its input sets.

    Returns:
        `outcome` (`ok`, `failed`, `skipped`), `reason`, `stage` (`build`, `inputs`, `forward`, `decode`) where it isn't ok, `parameters`,
        `axes`, `unnamed` (tensor axes that vary without a name), `flat` and `large` (outputs whose comparison says little), `seconds`,
        `where` (the innermost frame in transformers).
    """
    began = time.perf_counter()
    result: dict[str, Any] = {"name": name, "outcome": "failed", "reason": "", "stage": "build"}
    entry = catalogue.entry(name)
    try:
        sample = build(name)
        result["parameters"] = sum(parameter.numel() for parameter in sample.model.parameters())
        result["axes"] = {axis.name: list(axis.sizes) for axis in sample.axes}
        result["unnamed"] = _unnamed(sample)
        result["stage"] = "forward"
        for set_name, inputs in {"inputs": sample.inputs, **sample.others}.items():
            outputs = call(sample.model, inputs)
            result["reason"] = _doubt(outputs, set_name)
            if set_name == "inputs":
                result["flat"], result["large"] = _flat(outputs), _large(outputs)
            if result["reason"]:
                break
        if not result["reason"] and entry.variant == "decode":
            result["stage"] = "decode"
            result["reason"] = _decode_differs(sample)
        if not result["reason"] and result["parameters"] > MOST_PARAMETERS:
            result["stage"] = "build"
            result["reason"] = f"{result['parameters']:,} parameters where a tiny model has at most {MOST_PARAMETERS:,}"
        if not result["reason"]:
            result.update(outcome="ok", stage="")
    except Exception as error:  # whatever a class raises is its result, and the next class is another process's
        result.update(_failure(error, result["stage"]))
    result["seconds"] = round(time.perf_counter() - began, 3)
    return result


def _doubt(outputs: dict[str, torch.Tensor], set_name: str) -> str:
    """Why outputs can't be trusted; empty where they can."""
    if not outputs:
        return f"{set_name}: no tensor among the outputs"
    for path, tensor in outputs.items():
        if tensor.is_floating_point() and tensor.isnan().any():
            return f"{set_name}: {path} has NaN"
    return ""


def _flat(outputs: dict[str, torch.Tensor]) -> list[str]:
    """Floating outputs that are one value throughout, so that comparing them says nothing."""
    floating = {path: tensor for path, tensor in outputs.items() if tensor.is_floating_point() and tensor.numel() > 1}
    return [path for path, tensor in floating.items() if float(tensor.max() - tensor.min()) < FLAT]


def _large(outputs: dict[str, torch.Tensor]) -> list[str]:
    """Floating outputs beyond any that a trained model gives, whose comparison rounding decides."""
    floating = {path: tensor[tensor.isfinite()] for path, tensor in outputs.items() if tensor.is_floating_point()}
    return [path for path, tensor in floating.items() if tensor.numel() and float(tensor.abs().max()) > LARGE]


def _decode_differs(sample: Sample) -> str:
    """How the step's logits differ from the last position of the whole; empty where they don't."""
    if not sample.wholes:
        return "no whole to compare with"
    for name, inputs in {"inputs": sample.inputs, **sample.others}.items():
        step, whole = call(sample.model, inputs), call(sample.model, sample.wholes[name])
        path = next((path for path in step if path.endswith("logits")), next(iter(step)))
        if path not in whole:
            return f"{name}: the whole has no {path}"
        got, expected = step[path], whole[path]
        if got.ndim < expected.ndim:  # of a transducer: frames, tokens
            expected = expected.select(-2, -1)
        if got.shape != expected.shape:
            expected = expected[..., -got.shape[-2] :, :]
        difference = float((got - expected).abs().max())
        if not difference <= DECODE_TOLERANCE * max(1.0, float(expected.abs().max())):
            return f"{name}: {path} differs by {difference:.2g} from the last position of the whole"
    return ""


def _unnamed(sample: Sample) -> list[str]:
    """Tensor axes that vary between the input sets without an `Axis` of these sizes."""
    named = {axis.sizes for axis in sample.axes}
    rows = [dict(leaves(inputs)) for inputs in [sample.inputs, *sample.others.values()]]
    found = []
    for path, tensor in rows[0].items():
        if not all(path in row and row[path].ndim == tensor.ndim for row in rows):
            found.append(f"{path} (built differently)")
            continue
        for position in range(tensor.ndim):
            sizes = tuple(row[path].shape[position] for row in rows)
            if len(set(sizes)) > 1 and sizes not in named:
                found.append(f"{path}.{position} {list(sizes)}")
    return found


def _failure(error: Exception, stage: str) -> dict[str, Any]:
    """Outcome, reason and place of what was raised."""
    message = " ".join(f"{type(error).__name__}: {error}".split())
    packages = requirements.absent(error)
    if packages:
        return {"outcome": "skipped", "reason": requirements.reason(packages)}
    frames = traceback.extract_tb(error.__traceback__)
    inside = [frame for frame in frames if "/transformers/models/" in frame.filename] or list(frames)
    where = f"{inside[-1].filename.rpartition('/')[2]}:{inside[-1].lineno} {inside[-1].name}: {inside[-1].line}"
    if any(frame.name in ("make_inputs", "make_sample") for frame in frames) and stage == "build":
        stage = "inputs"
    return {"outcome": "failed", "reason": message[:600], "stage": stage, "where": where[:300]}
