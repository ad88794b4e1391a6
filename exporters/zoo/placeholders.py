"""Where the features of images, videos and sounds go in a text: as many placeholder tokens as the model makes features."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from transformers import PreTrainedConfig

from exporters.zoo.request import Request, first_of

# kind -> the model's method, the config's fields for the token, forward's parameters for the data
_KINDS: dict[str, tuple[str, tuple[str, ...], tuple[str, ...]]] = {
    "image": ("get_image_features", ("image_token_id", "image_token_index", "media_placeholder_token_id"), ("pixel_values",)),
    "video": ("get_video_features", ("video_token_id", "video_token_index"), ("pixel_values_videos",)),
    "audio": ("get_audio_features", ("audio_token_id", "audio_token_index"), ("input_features", "input_values", "audio_input_features")),
}


@dataclass(frozen=True)
class Placeholder:
    """One item's place in a text.

    Attributes:
        kind: `image`, `video` or `audio`.
        row: of the batch.
        token: what stands for one feature.
        tokens: all that goes there, delimiters included.
    """

    kind: str
    row: int
    token: int
    tokens: tuple[int, ...]

    @property
    def count(self) -> int:
        return len(self.tokens)


def rows_of_items(rows: int, items: int) -> list[int]:
    """Spread `items` over `rows`, the first rows taking one more."""
    return [items // rows + (row < items % rows) for row in range(rows)]


def placeholders(request: Request) -> list[Placeholder]:
    """The places of everything that was made before the text, row by row."""
    found: list[Placeholder] = []
    for kind in _KINDS:
        token, counts = _counted(request, kind)
        if token is None:
            continue
        before, after = delimiters(request.config, kind)
        per_row = rows_of_items(request.sizes["batch"], len(counts))
        remaining = iter(counts)
        for row, items in enumerate(per_row):
            for _ in range(items):
                found.append(Placeholder(kind, row, token, (*before, *[token] * next(remaining), *after)))
    return found


def delimiters(config: PreTrainedConfig, kind: str) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """What stands before and after an item, so that two items that follow each other stay two."""
    stems = ("audio",) if kind == "audio" else ("vision", kind)
    start = first_of(config, *(f"{stem}_{end}" for stem in stems for end in ("start_token_id", "bos_token_id", "begin_token_id")))
    end = first_of(config, *(f"{stem}_{end}" for stem in stems for end in ("end_token_id", "eos_token_id")))
    return ((start,) if isinstance(start, int) else (), (end,) if isinstance(end, int) else ())


def _counted(request: Request, kind: str) -> tuple[int | None, list[int]]:
    """The placeholder token of `kind` and how many features each item has; no token where the text has no places for it."""
    method, fields, data = _KINDS[kind]
    declared = request.option(f"{kind}_token")
    declared = getattr(request.config, declared) if isinstance(declared, str) else declared
    token = declared if declared is not None else _token(request, fields)
    given = next((name for name in data if name in request.made), None)
    if token is None or given is None or token is False:
        return None, []
    per_item = request.option(f"{kind}_tokens")
    if per_item is not None:
        return token, [int(per_item)] * request.made[given].tensor.shape[0]
    ask = _asked(request.model, method)
    if ask is None:
        return None, []
    wanted = inspect.signature(ask).parameters
    arguments = {name: leaf.tensor for name, leaf in request.made.items() if name in wanted}
    if not set(arguments) & set(data):  # `input_features` by another name
        first = next(iter(wanted))
        arguments[first] = request.made[given].tensor
    with torch.no_grad(), torch.random.fork_rng(devices=[]):
        features = _features(ask(**arguments))
    return token, _counts(features, _weights(request, kind, request.made[given].tensor))


def _asked(model: nn.Module, method: str) -> Callable[..., Any] | None:
    """The method of the model inside, which outer ones only hand their arguments on to; else the model's own."""
    inner = [getattr(model, name, None) for name in ("model", "thinker", "vlm", "encoder")]
    for owner in (*(getattr(one, name, None) for one in inner for name in ("model", "encoder")), *inner, model):
        ask = getattr(owner, method, None)
        if ask is not None and not any(p.kind is p.VAR_POSITIONAL for p in inspect.signature(ask).parameters.values()):
            return ask
    return None


def questions(model: nn.Module) -> list[Callable[..., Any]]:
    """The methods by which `model` tells the features of an image, a video or a sound."""
    return [ask for kind in ("image", "audio") if (ask := _asked(model, _KINDS[kind][0])) is not None]


def _token(request: Request, fields: tuple[str, ...]) -> int | None:
    for config in (request.config, *(getattr(request.config, name, None) for name in ("thinker_config", "vlm_config", "encoder"))):
        value = first_of(config, *fields) if config is not None else None
        if isinstance(value, int):
            return value
    return None


def _weights(request: Request, kind: str, data: torch.Tensor) -> list[int]:
    """How large each image, video or sound is, where its size is told; 1 each otherwise."""
    for name in ("image_grid_thw", "image_grid_hw", "grid_thw", "target_sizes") if kind == "image" else ("video_grid_thw",):
        if name in request.made:
            return [int(grid.prod()) for grid in request.made[name].tensor]
    for name in ("image_sizes", "spatial_shapes"):
        if name in request.made:
            return [1] * request.made[name].tensor.shape[0]
    return [1] * data.shape[0]


def _features(output: Any) -> Any:
    """The features that go into the text, of whatever a model wraps them in."""
    for name in ("pooler_output", "last_hidden_state"):
        value = getattr(output, name, None)
        if value is not None:
            return value
    return output[0] if isinstance(output, tuple) and len(output) and not isinstance(output[0], torch.Tensor) else output


def _counts(features: Any, weights: list[int]) -> list[int]:
    """Features of each item: a list has an entry an item, three axes are (items, features, width), two are all features together."""
    if isinstance(features, torch.Tensor) and features.ndim == 3 and features.shape[0] == len(weights):
        return [features.shape[1]] * len(weights)
    if isinstance(features, torch.Tensor):
        return _share(features.shape[:-1].numel(), weights)
    sizes = [entry.shape[:-1].numel() for entry in _tensors(features)]
    return sizes if len(sizes) == len(weights) else _share(sum(sizes), weights)


def _tensors(value: Any) -> Iterable[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _tensors(item)


def _share(total: int, weights: list[int]) -> list[int]:
    """`total` in proportion to the weights; what doesn't divide goes to the first ones."""
    whole = sum(weights)
    shares = [total * weight // whole for weight in weights]
    return [share + (index < total - sum(shares)) for index, share in enumerate(shares)]
