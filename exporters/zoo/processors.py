"""Sounds and pictures for checkpoints, through the feature extractor or image processor that came with them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from exporters.zoo.request import SETS, SIZES, Leaf

# by main input, what the axis behind the batch counts where it varies
SOUND = {"input_values": "samples", "input_features": "frames"}
PICTURE = "pixel_values"
MEDIA = frozenset({*SOUND, PICTURE})
_SECONDS: dict[str, tuple[float, ...]] = {"inputs": (1.0, 0.7), "other": (1.5, 0.9, 1.2), "batch_1": (0.8,)}
_PIXELS = 4  # of a picture, for each that the rules would make: a processor has something to shrink

Given = dict[str, dict[str, Leaf]]


def media_inputs(folder: Path, main_input: str, parameters: frozenset[str]) -> Iterator[tuple[Given | None, str]]:
    """Processed sounds or pictures for every input set, from a checkpoint's own processor.

    Sounds come twice, as long as the longest of them and as long as the extractor makes them of its own accord: which of the two a model
    takes is for the caller to try.

    Args:
        folder: the checkpoint.
        main_input: `input_values`, `input_features` or `pixel_values`.
        parameters: of forward; whatever else the processor makes is left out.

    Yields:
        The leaves by set and where they come from; None and why not, where the folder has no processor that works here.
    """
    try:
        processor = _processor(folder, main_input)
    except ImportError as error:
        yield None, f"rules: its processor can't be imported ({first_line(error)})"
        return
    except Exception:  # processors of every age raise whatever they like; without one, inputs come from the rules
        yield None, "rules"
        return
    source = f"{'tones' if main_input in SOUND else 'gradients'} through its {type(processor).__name__}"
    for options in ({"padding": True}, {}) if main_input in SOUND else ({},):
        try:
            made = {name: _processed(processor, main_input, name, options) for name in SETS}
        except Exception as error:  # as above
            yield None, f"rules: its {type(processor).__name__} can't be used ({first_line(error)})"
        else:
            yield leaves(made, parameters), source


def _processor(folder: Path, main_input: str) -> Any:
    from transformers import AutoFeatureExtractor, AutoImageProcessor

    kind = AutoImageProcessor if main_input == PICTURE else AutoFeatureExtractor
    return kind.from_pretrained(folder, local_files_only=True)


def _processed(processor: Any, main_input: str, name: str, options: Mapping[str, Any]) -> Mapping[str, Any]:
    """One set; `options` of the call."""
    if main_input == PICTURE:
        shown: Mapping[str, Any] = processor(pictures(name, SIZES["batch"][SETS.index(name)]), return_tensors="pt")
        return shown
    rate = processor.sampling_rate
    heard: Mapping[str, Any] = processor(waves(name, rate), sampling_rate=rate, return_tensors="pt", **options)
    return heard


# ── Raw material ──────────────────────────────────────────────────────────────


def waves(name: str, rate: int) -> list[np.ndarray]:
    """A chord a row, float32, of several lengths, so that rows need padding."""
    rows = []
    for row, seconds in enumerate(_SECONDS[name]):
        time = np.arange(int(seconds * rate), dtype=np.float32) / rate
        chord = np.stack([np.sin(2 * np.pi * pitch * (1 + row / 7) * time) for pitch in (220.0, 330.0, 550.0)])
        rows.append(chord.sum(axis=0).astype(np.float32))
    return rows


def pictures(name: str, count: int) -> list[np.ndarray]:
    """Gradients of color, (height, width, 3) uint8, one size a set."""
    index = SETS.index(name)
    height, width = SIZES["image_height"][index] * _PIXELS, SIZES["image_width"][index] * _PIXELS
    y, x = np.mgrid[0:height, 0:width]
    return [np.stack([(x * (item + 2)) % 256, (y * (item + 3)) % 256, (x + y) % 256], axis=-1).astype(np.uint8) for item in range(count)]


# ── Axes ──────────────────────────────────────────────────────────────────────


def leaves(made: Mapping[str, Mapping[str, Any]], parameters: frozenset[str]) -> Given:
    """What forward takes of what a processor made, each axis named if it varies between the sets.

    An axis has the name of the first that had its sizes: what varies alike is one axis.
    """
    keys = [key for key in made[SETS[0]] if key in parameters]
    names: dict[tuple[int, ...], str] = {SIZES[axis]: axis for axis in ("images", "batch")}
    found: Given = {name: {} for name in SETS}
    for key in sorted(keys, key=lambda key: (key != "input_ids", key not in MEDIA)):
        shapes = [tuple(made[name][key].shape) for name in SETS]
        columns = list(zip(*shapes, strict=True))
        axes = tuple(
            "" if len(set(sizes)) == 1 else _named(names, sizes, key, position, len(columns)) for position, sizes in enumerate(columns)
        )
        for name in SETS:
            # a mask that was cut from a wave's has every so many of its samples: strides that a trace would take for sizes that vary
            found[name][key] = Leaf(made[name][key].contiguous(), axes)
    return found


def _named(names: dict[tuple[int, ...], str], sizes: tuple[int, ...], key: str, position: int, rank: int) -> str:
    if sizes not in names:
        name = _name(key, position, rank)
        names[sizes] = f"{key}_{position}" if name in names.values() else name
    return names[sizes]


def _name(key: str, position: int, rank: int) -> str:
    """What an axis that varies counts, from the parameter and the axis' place."""
    if key == "input_ids":
        return "sequence"
    if position == 0:
        return "patches"
    if key in SOUND:
        return SOUND[key]
    if key.startswith(PICTURE) and rank - position <= 2:
        return "image_height" if position == rank - 2 else "image_width"
    return f"{key}_{position}"


def first_line(error: BaseException) -> str:
    """What was raised, in one line that a report can carry."""
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)[:160]
