"""Inputs as a user would pass them, from the names of forward's parameters and the sizes in the config.

One rule a parameter. A rule gives the tensor and the names of its axes, so that the axes that vary are known by the
rule that made them and never guessed afterwards.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn
from transformers import PreTrainedConfig

from exporters.zoo.overrides import Override
from exporters.zoo.sample import Axis

FIRST_ORDINARY_ID = 25  # below are special tokens, the shrunk ones included
PADDING = 2  # of row 1 in every batch that has one

SETS = ("inputs", "other", "batch_1")
# Size of everything that may vary, in each of the sets. No two alike, or two axes could not be told apart.
SIZES: dict[str, tuple[int, int, int]] = {
    "batch": (2, 3, 1),
    "images": (3, 4, 1),
    "sequence": (10, 14, 7),
    "decoder_sequence": (6, 9, 5),
    "samples": (2000, 2800, 1600),
    "image_height": (64, 96, 128),
    "image_width": (96, 128, 64),
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
        config: the model's config.
        parameters: names of forward's parameters.
        main_input: the one that carries the data.
        options: `Override.inputs`.
        sizes: size by axis name.
        generator: where every random value comes from.
        padding: side on which short rows are padded, `right` or `left`.
        made: leaves made so far, in the order of `RULES`.
    """

    config: PreTrainedConfig
    parameters: frozenset[str]
    main_input: str
    options: Mapping[str, Any]
    sizes: dict[str, int]
    generator: torch.Generator
    padding: str = "right"
    made: dict[str, Leaf] = field(default_factory=dict)

    @property
    def text(self) -> PreTrainedConfig:
        return self.config.get_text_config()

    def integers(self, low: int, high: int, shape: tuple[int, ...]) -> torch.Tensor:
        return torch.randint(low, high, shape, generator=self.generator)

    def normal(self, shape: tuple[int, ...]) -> torch.Tensor:
        return torch.randn(shape, generator=self.generator)

    def varies(self, axis: str) -> bool:
        return axis in self.options.get("varies", ())


# ── Text ──────────────────────────────────────────────────────────────────────


def row_lengths(rows: int, length: int) -> list[int]:
    """How much of each row is real: row 1 is padded by 2, later ones by 0 to 2."""
    return [length - (row * PADDING) % 3 for row in range(rows)]


def _first_id(value: int | list[int] | None) -> int | None:
    return value[0] if isinstance(value, list) else value


def _pad_id(config: PreTrainedConfig) -> int:
    """The padding token, or what users take where there is none."""
    for name in ("pad_token_id", "eos_token_id"):
        value = _first_id(getattr(config, name, None))
        if value is not None and value >= 0:
            return value
    return 0


def _ordinary_ids(request: Request, vocabulary: int, shape: tuple[int, ...]) -> torch.Tensor:
    return request.integers(min(FIRST_ORDINARY_ID, vocabulary // 2), vocabulary, shape)


def _real(request: Request, rows: int, length: int) -> torch.Tensor:
    """(rows, length) bool: True where a token is no padding."""
    lengths = torch.tensor(row_lengths(rows, length))[:, None]
    positions = torch.arange(length)[None]
    return positions < lengths if request.padding == "right" else positions >= length - lengths


def _input_ids(request: Request) -> Leaf | None:
    text = request.text
    vocabulary = getattr(text, "vocab_size", None)
    if request.main_input != "input_ids" or vocabulary is None:
        return None
    rows, length = request.sizes["batch"], request.sizes["sequence"]
    image_token = getattr(request.config, "image_token_id", None) if "pixel_values" in request.parameters else None
    images = [0] * rows
    if image_token is not None:
        images = images_of_rows(rows, request.sizes["images"])
        length = request.sizes["sequence"] = length + max(images) * image_tokens(request.config)
    real = _real(request, rows, length)
    ids = torch.where(real, _ordinary_ids(request, vocabulary, (rows, length)), _pad_id(text))
    eos = _first_id(getattr(text, "eos_token_id", None))
    for row in range(rows):
        places = real[row].nonzero().flatten()
        if eos is not None and not _continues_text(request):
            ids[row, places[-1]] = eos  # as tokenizers of encoders end a text; CLIP pools there
        if image_token is not None:
            # after the first word, as a processor expands an image's placeholder
            ids[row, places[1 : 1 + images[row] * image_tokens(request.config)]] = image_token
    return Leaf(ids, ("batch", "sequence"))


def _continues_text(request: Request) -> bool:
    """Whether it is a decoder whose text goes on, so that no end of text belongs into it."""
    return "cache" in request.parameters and not request.config.is_encoder_decoder


def _attention_mask(request: Request) -> Leaf | None:
    if "input_ids" in request.made:
        rows, length = request.made["input_ids"].tensor.shape
        return Leaf(_real(request, rows, length).long(), ("batch", "sequence"))
    if "input_values" in request.made and getattr(request.config, "feat_extract_norm", None) == "layer":
        rows, length = request.made["input_values"].tensor.shape
        return Leaf(_real_samples(rows, length).long(), ("batch", "samples"))
    return None  # patches and mel frames of a fixed number have no padding


def _token_type_ids(request: Request) -> Leaf | None:
    if "input_ids" not in request.made or (getattr(request.text, "type_vocab_size", None) or 0) < 2:
        return None
    rows, length = request.made["input_ids"].tensor.shape
    second = (torch.arange(length) >= length // 2).long()  # two sentences
    return Leaf(second.repeat(rows, 1) * request.made["attention_mask"].tensor, ("batch", "sequence"))


def _decoder_input_ids(request: Request) -> Leaf | None:
    if not request.config.is_encoder_decoder:
        return None
    shape = (request.sizes["batch"], request.sizes["decoder_sequence"])
    ids = _ordinary_ids(request, request.text.vocab_size, shape)
    start = _first_id(getattr(request.config, "decoder_start_token_id", None))
    ids[:, 0] = start if start is not None else _pad_id(request.config)
    return Leaf(ids, ("batch", "decoder_sequence"))


# ── Images ────────────────────────────────────────────────────────────────────


def _vision(config: PreTrainedConfig) -> PreTrainedConfig:
    return getattr(config, "vision_config", None) or config


def images_of_rows(rows: int, images: int) -> list[int]:
    """Spread `images` over `rows`, the first rows taking one more."""
    return [images // rows + (row < images % rows) for row in range(rows)]


def image_tokens(config: PreTrainedConfig) -> int:
    """How many placeholders stand for one image: a token a patch, the class token where the model keeps it."""
    vision = _vision(config)
    kept = getattr(config, "vision_feature_select_strategy", "default") == "full"
    return (vision.image_size // vision.patch_size) ** 2 + int(kept)


def _image_shape(request: Request) -> tuple[int, int]:
    """(height, width), the sizes that vary or the config's fixed one."""
    size = getattr(_vision(request.config), "image_size", None) or SIZES["image_height"][0]
    height, width = (size, size) if isinstance(size, int) else (size[-2], size[-1])
    if request.varies("image_height"):
        height = request.sizes["image_height"]
    if request.varies("image_width"):
        width = request.sizes["image_width"]
    return height, width


def _counts_images(request: Request) -> bool:
    """Whether the number of images isn't the batch's."""
    has_places = getattr(request.config, "image_token_id", None) is not None and "input_ids" in request.made
    return has_places or request.options.get("images") == "free"


def _pixel_values(request: Request) -> Leaf | None:
    rows_axis = "images" if _counts_images(request) else "batch"
    height, width = _image_shape(request)
    channels = getattr(_vision(request.config), "num_channels", 3)
    pixels = request.normal((request.sizes[rows_axis], channels, height, width))
    if "pixel_mask" in request.parameters:
        pixels = pixels * _real_pixels(request, pixels).unsqueeze(1)
    axes = (rows_axis, "", *(axis if request.varies(axis) else "" for axis in ("image_height", "image_width")))
    return Leaf(pixels, axes)


def _real_pixels(request: Request, pixels: torch.Tensor) -> torch.Tensor:
    """(batch, height, width) bool: image 1 is a quarter lower and narrower than the batch, as after resizing."""
    rows, _, height, width = pixels.shape
    real = torch.ones(rows, height, width, dtype=torch.bool)
    if rows > 1:
        real[1, height - height // 4 :] = False
        real[1, :, width - width // 4 :] = False
    return real


def _pixel_mask(request: Request) -> Leaf | None:
    if "pixel_values" not in request.made:
        return None
    pixels = request.made["pixel_values"]
    return Leaf(_real_pixels(request, pixels.tensor).long(), (pixels.axes[0], *pixels.axes[2:]))


# ── Sound ─────────────────────────────────────────────────────────────────────


def _real_samples(rows: int, length: int) -> torch.Tensor:
    """(rows, length) bool: row 1 is a tenth shorter."""
    lengths = torch.tensor([length - (length // 10 if row == 1 else 0) for row in range(rows)])
    return torch.arange(length)[None] < lengths[:, None]


def _input_values(request: Request) -> Leaf | None:
    """A wave of zero mean and unit variance, silent where it is padded."""
    rows, length = request.sizes["batch"], request.sizes["samples"]
    return Leaf(request.normal((rows, length)) * _real_samples(rows, length), ("batch", "samples"))


def _input_features(request: Request) -> Leaf | None:
    """Log-mel frames, as many as the encoder's positions want: its convolutions halve them."""
    config = request.config
    return Leaf(request.normal((request.sizes["batch"], config.num_mel_bins, 2 * config.max_source_positions)), ("batch", "", ""))


RULES: dict[str, Callable[[Request], Leaf | None]] = {
    "input_ids": _input_ids,
    "pixel_values": _pixel_values,
    "pixel_mask": _pixel_mask,
    "input_values": _input_values,
    "input_features": _input_features,
    "attention_mask": _attention_mask,
    "token_type_ids": _token_type_ids,
    "decoder_input_ids": _decoder_input_ids,
}

TEXT = frozenset({"input_ids", "attention_mask", "token_type_ids"})

# ── Bounds ────────────────────────────────────────────────────────────────────

_BOUND_FIELDS: dict[str, tuple[str, ...]] = {
    "sequence": ("max_position_embeddings", "n_positions"),
    "decoder_sequence": ("max_target_positions", "max_position_embeddings"),
}


def _receptive_field(config: PreTrainedConfig) -> int:
    """Samples that a stack of convolutions needs for one frame."""
    field_size = 1
    for kernel, stride in zip(reversed(config.conv_kernel), reversed(config.conv_stride), strict=True):
        field_size = (field_size - 1) * stride + kernel
    return field_size


def _positions(config: PreTrainedConfig, name: str) -> tuple[int, str] | None:
    """How many positions the config has for the axis `name`, and the field that says so."""
    for bound_field in _BOUND_FIELDS.get(name, ()):
        for part in (config.get_text_config(), config):
            bound = getattr(part, bound_field, None)
            if isinstance(bound, int) and bound > 0:
                return bound, bound_field
    return None


def _sizes(config: PreTrainedConfig, index: int) -> dict[str, int]:
    """The sizes of one input set, none beyond the model's positions."""
    sizes = {name: of_sets[index] for name, of_sets in SIZES.items()}
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
    return Axis(name, sizes, **bounds)


# ── Input sets ────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class InputSets:
    """All input sets of a model, leaf by leaf, and what varies between them."""

    leaves: dict[str, dict[str, Leaf]]
    axes: tuple[Axis, ...]

    def tensors(self, name: str) -> dict[str, Any]:
        """The keyword inputs of one set."""
        return {parameter: leaf.tensor for parameter, leaf in self.leaves[name].items()}


def make_inputs(
    model: nn.Module,
    main_input: str,
    declared: Override,
    *,
    seed: int,
    padding: str = "right",
    given: Mapping[str, Mapping[str, Leaf]] | None = None,
) -> InputSets:
    """Make every set of `SETS` for `model`.

    Args:
        model: has a transformers config; only its config and forward's signature are looked at.
        main_input: name of the parameter that carries the data.
        declared: what the rules can't know.
        seed: same seed, same inputs.
        padding: side on which short texts are padded.
        given: by set, the text inputs that a tokenizer made; the rules make the rest.
    """
    config: PreTrainedConfig = model.config
    parameters = frozenset(inspect.signature(model.forward).parameters)
    leaves: dict[str, dict[str, Leaf]] = {}
    for index, name in enumerate(SETS):
        request = Request(
            config=config,
            parameters=parameters,
            main_input=main_input,
            options=declared.inputs,
            sizes=_sizes(config, index),
            generator=torch.Generator().manual_seed(seed + index),
            padding=padding,
            made=dict(given[name]) if given else {},
        )
        # a tokenizer that made no token types wants none
        open_rules = {parameter: rule for parameter, rule in RULES.items() if not (given and parameter in TEXT)}
        for parameter, rule in open_rules.items():
            leaf = rule(request) if parameter in parameters else None
            if leaf is not None:
                request.made[parameter] = leaf
        leaves[name] = request.made
    return InputSets(leaves, _axes(leaves, config, declared.inputs.get("bounds", {})))


def _axes(leaves: Mapping[str, dict[str, Leaf]], config: PreTrainedConfig, bounds: Mapping[str, Any]) -> tuple[Axis, ...]:
    """The named axes of the leaves that vary, each once, with their sizes in every set."""
    found: dict[str, tuple[int, ...]] = {}
    for parameter, leaf in leaves[SETS[0]].items():
        for position, name in enumerate(leaf.axes):
            if name:
                found[name] = tuple(leaves[set_name][parameter].tensor.shape[position] for set_name in SETS)
    return tuple(_axis(name, sizes, config, bounds) for name, sizes in found.items() if len(set(sizes)) > 1)
