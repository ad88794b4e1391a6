"""Input rules for images and videos, in the layout that forward's signature asks for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from transformers import PreTrainedConfig

from exporters.zoo.placeholders import rows_of_items as images_of_rows
from exporters.zoo.request import SIZES, Leaf, Request, first_of, part

__all__ = ["RULES", "image_tokens", "images_of_rows", "vision"]

VIDEO_FRAMES = 4


def vision(config: PreTrainedConfig) -> PreTrainedConfig:
    """The part of the config that knows images."""
    found = part(config, "vision_config", "image_config", "vision_model_config", "encoder", "qformer_config", "backbone_config")
    inner = getattr(found, "vision_config", None)
    return inner if isinstance(inner, PreTrainedConfig) else found


def image_tokens(config: PreTrainedConfig) -> int:
    """How many placeholders stand for one image: a token a patch, the class token where the model keeps it."""
    seen = vision(config)
    kept = getattr(config, "vision_feature_select_strategy", "default") == "full"
    return (seen.image_size // seen.patch_size) ** 2 + int(kept)


def _pair(value: Any) -> tuple[int, int]:
    return (value, value) if isinstance(value, int) else (value[-2], value[-1])


def _image_shape(request: Request) -> tuple[int, int]:
    """(height, width), the sizes that vary or the config's fixed one."""
    declared = request.option("image_size")
    fields = ("image_size", "img_size", "pretrain_image_size")
    size = declared or first_of(request.config, "image_size") or first_of(vision(request.config), *fields)
    height, width = _pair(size or SIZES["image_height"][0])
    if request.varies("image_height"):
        height = request.sizes["image_height"]
    if request.varies("image_width"):
        width = request.sizes["image_width"]
    return height, width


def _channels(request: Request) -> int:
    value = first_of(vision(request.config), "num_channels", "in_channels", "in_chans", "num_input_channels")
    value = value if isinstance(value, int) else first_of(request.config, "num_channels", "in_channels")
    return value if isinstance(value, int) else 3


def counts_images(config: PreTrainedConfig, parameters: frozenset[str], option: str | None) -> bool:
    """Whether the number of images isn't the batch's; `option` as declared under `Override.inputs["images"]`."""
    token = first_of(config, "image_token_id", "image_token_index")
    has_places = token is not None and "input_ids" in parameters and option != "batch"
    return has_places or option == "free"


# ── Flattened patches, with the grid of each image ────────────────────────────


def _grid(request: Request, images: int) -> torch.Tensor:
    """(images, 3): one frame, and rows and columns of patches that whole merges divide; the first and every other image is wider."""
    merge = first_of(vision(request.config), "spatial_merge_size", "merge_size") or first_of(request.config, "spatial_merge_size") or 1
    merge = merge if isinstance(merge, int) else 2
    step = max(2, merge)
    return torch.tensor([[1, step, step * (2 - image % 2)] for image in range(images)])


def _patch_width(request: Request) -> int:
    seen = vision(request.config)
    patch = first_of(seen, "patch_size") or first_of(request.config, "patch_size") or 14
    height, width = _pair(patch)
    return _channels(request) * (first_of(seen, "temporal_patch_size", "patch_temporal") or 1) * height * width


def _image_grid_thw(request: Request) -> Leaf | None:
    if request.option("images") == "none":
        return None
    return Leaf(_grid(request, request.sizes["images"]), ("images", ""))


def _grid_thw(request: Request) -> Leaf:
    return Leaf(_grid(request, request.sizes["images"]), ("images", ""))


def _hidden_states(request: Request) -> Leaf | None:
    """Of a vision tower that is given flattened patches and their grid."""
    if "grid_thw" not in request.made or "hidden_states" not in request.required:
        return None
    patches = int(request.made["grid_thw"].tensor.prod(dim=1).sum())
    return Leaf(request.normal((patches, _patch_width(request))), ("patches", ""))


# ── Pixels ────────────────────────────────────────────────────────────────────


def _pixel_values(request: Request) -> Leaf | None:
    if request.option("images") == "none":
        return None
    for grid in ("image_grid_thw", "grid_thw"):
        if grid in request.made:
            patches = int(request.made[grid].tensor.prod(dim=1).sum())
            if request.option("patches") == "square":
                side = first_of(vision(request.config), "patch_size")
                before = tuple(request.option("before", ()))
                square = (*before, patches, _channels(request), side, side)
                return Leaf(request.normal(square), (*([""] * len(before)), "patches", "", "", ""))
            if request.option("patches") == "merged":  # squares of whole merges, channels last
                seen = vision(request.config)
                side = seen.spatial_merge_size * seen.patch_size
                return Leaf(request.normal((patches, side, side, _channels(request))), ("patches", "", "", ""))  # its grid counts merges
            return Leaf(request.normal((patches, _patch_width(request))), ("patches", ""))
    free = counts_images(request.config, request.parameters, request.option("images"))
    rows_axis = "images" if free else "batch"
    height, width = _image_shape(request)
    shape: tuple[int, ...] = (request.sizes[rows_axis],)
    axes: tuple[str, ...] = (rows_axis,)
    if "layout" in request.options:  # what stands between the image and its channels: tiles, frames, images of a row
        inner = [int(size) for size in request.option("layout")]
        shape, axes = (*shape, *inner), (*axes, *([""] * len(inner)))
    pixels = request.normal((*shape, _channels(request), height, width))
    if "pixel_mask" in request.parameters and pixels.ndim == 4:
        pixels = pixels * _real_pixels(pixels).unsqueeze(1)
    varying = tuple(axis if request.varies(axis) else "" for axis in ("image_height", "image_width"))
    return Leaf(pixels, (*axes, "", *varying))


def _real_pixels(pixels: torch.Tensor) -> torch.Tensor:
    """(batch, height, width) bool: image 1 is a quarter lower and narrower than the batch, as after resizing."""
    rows, _, height, width = pixels.shape
    real = torch.ones(rows, height, width, dtype=torch.bool)
    if rows > 1:
        real[1, height - height // 4 :] = False
        real[1, :, width - width // 4 :] = False
    return real


def _pixel_mask(request: Request) -> Leaf | None:
    if "pixel_values" not in request.made or request.made["pixel_values"].tensor.ndim != 4:
        return None
    pixels = request.made["pixel_values"]
    return Leaf(_real_pixels(pixels.tensor).long(), (pixels.axes[0], *pixels.axes[2:]))


def _pixel_attention_mask(request: Request) -> Leaf | None:
    """Of images of a row, each whole."""
    pixels = request.made.get("pixel_values")
    if pixels is None or pixels.tensor.ndim != 5:
        return None
    rows, images, _, height, width = pixels.tensor.shape
    return Leaf(torch.ones(rows, images, height, width, dtype=torch.long), (*pixels.axes[:2], *pixels.axes[3:]))


def _image_sizes(request: Request) -> Leaf | None:
    pixels = request.made.get("pixel_values")
    if pixels is None or not ("image_sizes" in request.required or pixels.tensor.ndim == 5 or request.option("image_sizes")):
        return None
    height, width = pixels.tensor.shape[-2:]
    return Leaf(torch.tensor([[height, width]] * pixels.tensor.shape[0]), (pixels.axes[0], ""))


def _pixel_values_videos(request: Request) -> Leaf | None:
    if request.main_input != "pixel_values_videos" and "pixel_values_videos" not in request.required:
        return None
    height, width = _image_shape(request)
    frames = (
        request.option("frames")
        or first_of(request.config, "num_frames", "frames_per_clip")
        or first_of(vision(request.config), "num_frames", "frames_per_clip")
    )
    return Leaf(
        request.normal((request.sizes["batch"], frames or VIDEO_FRAMES, _channels(request), height, width)), ("batch", "", "", "", "")
    )


def _bool_masked_pos(request: Request) -> Leaf | None:
    """Half of the patches, the same number in every row."""
    data = request.made.get("pixel_values") or request.made.get("pixel_values_videos")
    if data is None or not ("bool_masked_pos" in request.required or "Masked" in request.class_name):
        return None
    rows = data.tensor.shape[0]
    height, width = data.tensor.shape[-2:]
    patch = _pair(first_of(vision(request.config), "patch_size") or 8)
    patches = (height // patch[0]) * (width // patch[1])
    if data.tensor.ndim == 5:
        patches *= data.tensor.shape[1] // (first_of(request.config, "tubelet_size") or 1)
    masked = torch.zeros(rows, patches, dtype=torch.bool)
    masked[:, request.integers(0, 2, (1,)).item() :: 2] = True
    return Leaf(masked, (data.axes[0], ""))


RULES: dict[str, Callable[[Request], Leaf | None]] = {
    "image_grid_thw": _image_grid_thw,
    "grid_thw": _grid_thw,
    "hidden_states": _hidden_states,
    "pixel_values": _pixel_values,
    "pixel_values_videos": _pixel_values_videos,
    "pixel_mask": _pixel_mask,
    "pixel_attention_mask": _pixel_attention_mask,
    "image_sizes": _image_sizes,
    "bool_masked_pos": _bool_masked_pos,
}
