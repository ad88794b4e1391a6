"""Input rules for time series and for what an override declares tensor by tensor."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from exporters.zoo.request import Leaf, Request, first_of, lookup


def _past_length(request: Request) -> int:
    """The context, and before it what the largest lag reaches back to."""
    config = request.config
    context = first_of(config, "context_length", "prediction_length") or 32
    lags = first_of(config, "lags_sequence")
    return int(context) + (max(lags) if lags else 0)


def _past_values(request: Request) -> Leaf:
    config = request.config
    rows, length = request.sizes["batch"], _past_length(request)
    channels = first_of(config, "num_input_channels", "input_size")
    channels = channels if isinstance(channels, int) else 1
    if first_of(config, "num_input_channels") is None and channels == 1:
        return Leaf(request.normal((rows, length)), ("batch", ""))
    return Leaf(request.normal((rows, length, channels)), ("batch", "", ""))


def _past_time_features(request: Request) -> Leaf:
    count = first_of(request.config, "num_time_features") or 0
    return Leaf(request.normal((request.sizes["batch"], _past_length(request), count)), ("batch", "", ""))


def _past_observed_mask(request: Request) -> Leaf:
    """Two values of row 1 are missing."""
    values = request.made["past_values"]
    mask = torch.ones_like(values.tensor)
    if mask.shape[0] > 1:
        mask[1, :2] = 0
    return Leaf(mask, values.axes)


def _future_length(request: Request) -> int:
    return int(first_of(request.config, "prediction_length") or 8)


def _future_values(request: Request) -> Leaf | None:
    if "future_time_features" not in request.parameters:
        return None  # only for the loss
    values = request.made["past_values"].tensor
    shape = (values.shape[0], _future_length(request), *values.shape[2:])
    return Leaf(request.normal(shape), ("batch", *([""] * (len(shape) - 1))))


def _future_time_features(request: Request) -> Leaf:
    count = first_of(request.config, "num_time_features") or 0
    return Leaf(request.normal((request.sizes["batch"], _future_length(request), count)), ("batch", "", ""))


RULES: dict[str, Callable[[Request], Leaf | None]] = {
    "past_values": _past_values,
    "past_time_features": _past_time_features,
    "past_observed_mask": _past_observed_mask,
    "future_values": _future_values,
    "future_time_features": _future_time_features,
}

# ── Declared tensors ──────────────────────────────────────────────────────────


def declared(request: Request, name: str, spec: Mapping[str, Any]) -> Leaf:
    """The tensor that `Override.inputs["tensors"][name]` describes.

    `axes` lists names of sizes that vary, numbers, and config paths (`@decoder.d_model`); names and paths may be multiplied or
    divided (`@rate*2`, `samples/320`). `of` says what is in it: `normal`, `uniform`, `ids` (below `below`), `ones`, `zeros`,
    `mask` (row 1 is shorter), `later` (ones above the diagonal), `range`, `grid` (rows and columns), `some` (`count` ones), `last` (a
    one at the end); `like` takes shape and axes from another leaf, `values` writes them out, for `each` row or image. `dtype` overrules
    the usual one.
    """
    if "values" in spec:
        tensor = torch.tensor(spec["values"])
        if "each" not in spec:
            return Leaf(_cast(tensor, spec), ("",) * tensor.ndim)
        repeated = tensor.unsqueeze(0).repeat(request.sizes[spec["each"]], *([1] * tensor.ndim))
        return Leaf(_cast(repeated, spec), (spec["each"], *([""] * tensor.ndim)))
    if "like" in spec:
        model = request.made[spec["like"]]
        shape, axes = tuple(model.tensor.shape), model.axes
        extra = [_size(request, axis) for axis in spec.get("axes", ())]
        shape, axes = (*shape, *(size for size, _ in extra)), (*axes, *(axis for _, axis in extra))
    else:
        sizes = [_size(request, axis) for axis in spec["axes"]]
        shape, axes = tuple(size for size, _ in sizes), tuple(axis for _, axis in sizes)
    return Leaf(_cast(_content(request, spec, shape), spec), axes)


def _size(request: Request, axis: Any) -> tuple[int, str]:
    """Size and name of one axis."""
    if isinstance(axis, int):
        return axis, ""
    path, _, divisor = axis.partition("/")
    path, _, factor = path.partition("*")
    size = lookup(request.config, path[1:]) if path.startswith("@") else request.sizes[path]
    size = int(size) * int(factor or 1) // int(divisor or 1)
    return size, "" if path.startswith("@") else axis


def _content(request: Request, spec: Mapping[str, Any], shape: tuple[int, ...]) -> torch.Tensor:
    kind = spec.get("of", "normal")
    if kind == "normal":
        return request.normal(shape) * float(spec.get("scale", 1.0))
    if kind == "uniform":
        return request.uniform(shape)
    if kind == "ids":
        below = spec["below"]
        below = int(lookup(request.config, below[1:])) if isinstance(below, str) else int(below)
        return request.integers(int(spec.get("from", 0)), below, shape)
    if kind == "mask":
        mask = torch.ones(shape, dtype=torch.long)
        if shape[0] > 1:
            mask[1, -max(1, shape[1] // 5) :] = 0
        return mask
    if kind == "later":  # (…, tokens, tokens): ones where the second comes after the first
        return torch.ones(shape).triu(1)
    if kind == "last":  # ones where a text ends
        ends = torch.zeros(shape, dtype=torch.long)
        ends[..., -1] = 1
        return ends
    if kind == "some":  # ones at `count` places after the first
        places = torch.zeros(shape, dtype=torch.long)
        places[:, 1 : 1 + int(spec["count"])] = 1
        return places
    if kind == "grid":  # (…, rows * columns, 2): column and row of every patch
        rows, columns = spec["grid"]
        places = torch.stack(torch.meshgrid(torch.arange(columns), torch.arange(rows), indexing="xy"), dim=-1).flatten(0, 1)
        return places.expand(shape).clone()
    if kind == "range":
        return torch.arange(shape[-1]).expand(shape).clone() + int(spec.get("from", 0))
    return torch.zeros(shape, dtype=torch.long) if kind == "zeros" else torch.ones(shape, dtype=torch.long)


def _cast(tensor: torch.Tensor, spec: Mapping[str, Any]) -> torch.Tensor:
    return tensor.to(getattr(torch, spec["dtype"])) if "dtype" in spec else tensor
