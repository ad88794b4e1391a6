"""Sounds and pictures for checkpoints, through the feature extractor or image processor that came with them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from exporters.zoo.request import SETS, SIZES, Leaf

# by main input, what the axis behind the batch counts where it varies
_SOUND = {"input_values": "samples", "input_features": "frames"}
_PICTURE = "pixel_values"
MEDIA = frozenset({*_SOUND, _PICTURE})
_SECONDS: dict[str, tuple[float, ...]] = {"inputs": (1.0, 0.7), "other": (1.5, 0.9, 1.2), "batch_1": (0.8,)}

Given = dict[str, dict[str, Leaf]]


def media_inputs(folder: Path, main_input: str, parameters: frozenset[str]) -> tuple[Given | None, str]:
    """Processed sounds or pictures for every input set, from a checkpoint's own processor.

    Args:
        folder: the checkpoint.
        main_input: `input_values`, `input_features` or `pixel_values`.
        parameters: of forward; whatever else the processor makes is left out.

    Returns:
        The leaves by set and where they come from; None and why not, where the folder has no processor that works here.
    """
    try:
        processor, make = _processor(folder, main_input)
    except ImportError as error:
        return None, f"rules: its processor can't be imported ({_first_line(error)})"
    except Exception:  # processors of every age raise whatever they like; without one, inputs come from the rules
        return None, "rules"
    made = {name: make(processor, name) for name in SETS}
    return _leaves(
        made, main_input, parameters
    ), f"{'tones' if main_input in _SOUND else 'gradients'} through its {type(processor).__name__}"


def _processor(folder: Path, main_input: str) -> tuple[Any, Callable[[Any, str], Mapping[str, Any]]]:
    from transformers import AutoFeatureExtractor, AutoImageProcessor

    if main_input == _PICTURE:
        return AutoImageProcessor.from_pretrained(folder, local_files_only=True), _pictures
    return AutoFeatureExtractor.from_pretrained(folder, local_files_only=True), _sounds


def _sounds(extractor: Any, name: str) -> Mapping[str, Any]:
    """Chords of several lengths, so that rows need padding."""
    rate = extractor.sampling_rate
    waves = []
    for row, seconds in enumerate(_SECONDS[name]):
        time = np.arange(int(seconds * rate), dtype=np.float32) / rate
        waves.append(sum(np.sin(2 * np.pi * pitch * (1 + row / 7) * time) for pitch in (220.0, 330.0, 550.0)).astype(np.float32))
    encoded: Mapping[str, Any] = extractor(waves, sampling_rate=rate, padding=True, return_tensors="pt")
    return encoded


def _pictures(processor: Any, name: str) -> Mapping[str, Any]:
    """Gradients of color, (height, width, 3) uint8, one size a set."""
    index = SETS.index(name)
    height, width = SIZES["image_height"][index] * 4, SIZES["image_width"][index] * 4
    rows = []
    for row in range(SIZES["batch"][index]):
        y, x = np.mgrid[0:height, 0:width]
        rows.append(np.stack([(x * (row + 2)) % 256, (y * (row + 3)) % 256, (x + y) % 256], axis=-1).astype(np.uint8))
    encoded: Mapping[str, Any] = processor(rows, return_tensors="pt")
    return encoded


def _leaves(made: Mapping[str, Mapping[str, Any]], main_input: str, parameters: frozenset[str]) -> Given:
    """What forward takes of it, each axis named if it varies between the sets."""
    leaves: Given = {name: {} for name in SETS}
    for key in made[SETS[0]]:
        if key not in parameters:
            continue
        shapes = [tuple(made[name][key].shape) for name in SETS]
        axes = tuple(
            _axis(position, {shape[position] for shape in shapes}, len(shapes[0]), main_input) for position in range(len(shapes[0]))
        )
        for name in SETS:
            leaves[name][key] = Leaf(made[name][key], axes)
    return leaves


def _axis(position: int, sizes: set[int], rank: int, main_input: str) -> str:
    if position == 0:
        return "batch"
    if len(sizes) == 1:
        return ""
    return _SOUND.get(main_input) or ("image_height" if position == rank - 2 else "image_width")


def _first_line(error: ImportError) -> str:
    return next((line.strip() for line in str(error).splitlines() if line.strip()), "no reason given")[:120]
