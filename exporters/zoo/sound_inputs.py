"""Input rules for sound: waves, log-mel frames, and their masks."""

from __future__ import annotations

from collections.abc import Callable

import torch
from transformers import PreTrainedConfig

from exporters.zoo.request import Leaf, Request, first_of, part

_XVECTOR_SAMPLES = 6400  # 20 frames of 20 ms, as its five convolutions over frames need


def audio(config: PreTrainedConfig) -> PreTrainedConfig:
    """The part of the config that knows sound."""
    return part(config, "audio_config", "encoder_config", "audio_encoder_config", "audio_encoder", "speech_config", "encoder")


def _real(rows: int, length: int) -> torch.Tensor:
    """(rows, length) bool: row 1 is a tenth shorter."""
    lengths = torch.tensor([length - (length // 10 if row == 1 else 0) for row in range(rows)])
    return torch.arange(length)[None] < lengths[:, None]


def _input_values(request: Request) -> Leaf:
    """A wave of zero mean and unit variance, silent where it is padded; a spectrogram for transformers over images of sound."""
    rows, length = request.sizes["batch"], request.sizes["samples"]
    seen = audio(request.config)
    if first_of(seen, "frequency_stride") is not None:
        return Leaf(request.normal((rows, seen.max_length, seen.num_mel_bins)), ("batch", "", ""))
    step = request.option("samples_step") or (_XVECTOR_SAMPLES if request.class_name.endswith("ForXVector") else None)
    if step:  # whole frames only
        length = request.sizes["samples"] = step * {2000: 2, 2800: 3, 1600: 1}[length]
    wave = request.normal((rows, length)) * _real(rows, length)
    channels = request.option("wave_channels")
    if channels is None and any(first_of(seen, name) is not None for name in ("audio_channels", "codebook_size", "downsampling_ratios")):
        channels = first_of(seen, "audio_channels") or 1
    if channels:
        return Leaf(wave.unsqueeze(1).repeat(1, channels, 1), ("batch", "", "samples"))
    return Leaf(wave, ("batch", "samples"))


def _mel_bins(seen: PreTrainedConfig) -> int:
    names = (
        "input_feat_per_channel", "feature_projection_input_dim", "num_mel_bins", "n_mel_bins", "input_feat_size", "input_size",
        "input_dim", "feature_size", "mel_dim", "num_features",
    )  # fmt: skip
    value = first_of(seen, *names)
    return value if isinstance(value, int) else 80


def _input_features(request: Request) -> Leaf:
    """Log-mel frames: bins before frames where the encoder has that many positions and halves them, frames before bins elsewhere."""
    seen = audio(request.config)
    rows = request.sizes["batch"]
    positions = first_of(seen, "max_source_positions")
    layout = _layout(request)
    frames = request.option("frames")
    if frames is None and positions is not None and layout == "bins_first":
        frames = 2 * positions
    size = frames or request.sizes["frames"]
    name = "" if frames else "frames"
    bins = request.option("bins") or _mel_bins(seen)
    if layout == "bins_first":
        return Leaf(request.normal((rows, bins, size)), ("batch", "", name))
    return Leaf(request.normal((rows, size, bins)), ("batch", name, ""))


def _layout(request: Request) -> str:
    """Encoders with a fixed number of positions take the bins first, as Whisper's does."""
    seen = audio(request.config)
    stacked = first_of(seen, "input_feat_per_channel", "feature_projection_input_dim") is not None
    usual = "bins_first" if first_of(seen, "max_source_positions") is not None and not stacked else "frames_first"
    return str(request.option("features_layout", usual))


def _frames(request: Request) -> tuple[int, int, str] | None:
    """Rows, frames and the frames' axis name of the features that were made."""
    made = request.made.get("input_features")
    if made is None:
        return None
    axis = -1 if _layout(request) == "bins_first" else 1
    return made.tensor.shape[0], made.tensor.shape[axis], made.axes[axis]


def _features_mask(request: Request) -> Leaf | None:
    size = _frames(request)
    if size is None:
        return None
    rows, frames, name = size
    # a fixed number of frames is padded by its feature extractor, and the mask says nothing of it
    real = _real(rows, frames) if name else torch.ones(rows, frames, dtype=torch.bool)
    return Leaf(real.long(), ("batch", name))


def _attention_mask(request: Request) -> Leaf | None:
    """For a model of sound alone."""
    if "input_ids" in request.made or "input_ids" in request.parameters:
        return None
    if "input_values" in request.made and first_of(request.config, "feat_extract_norm") == "layer":
        rows, length = request.made["input_values"].tensor.shape[0], request.made["input_values"].tensor.shape[-1]
        return Leaf(_real(rows, length).long(), ("batch", "samples"))
    size = _frames(request)
    if size is not None and size[2]:
        return _features_mask(request)
    return None  # mel frames of a fixed number have no padding


RULES: dict[str, Callable[[Request], Leaf | None]] = {
    "input_values": _input_values,
    "input_features": _input_features,
    "input_features_mask": _features_mask,
    "feature_attention_mask": _features_mask,
    "attention_mask": _attention_mask,
}
