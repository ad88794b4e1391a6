"""Model patches for what vision encoders compute from the grids of several images: places, windows, blocks.

The originals loop over the images and read each one's height and width as numbers. Here every patch of the packed sequence works out
its own image, and its place in it, from its index.
"""

from collections.abc import Callable
from typing import Any

import torch

from exporters.utils import register_patch

# ── Stage 2: Model patches ────────────────────────────────────────────────────

# model types whose modules hold each function under a name of their own
_POSITIONS = (
    "cohere_compass",
    "dots3_note",
    "ernie4_5_vl_moe",
    "exaone4_5",
    "glm4v",
    "glm4v_moe",
    "glm5_next",
    "glm_image",
    "glm_ocr",
    "inkling2",
    "kimi_k25",
    "lfm3_vl",
    "minimax_m3_vl",
    "muse_glimmer",
    "muse_spark",
    "paddleocr_vl",
    "qwen2_5_omni",
    "qwen2_5_vl",
    "qwen2_vl",
    "qwen3_5",
    "qwen3_5_moe",
    "qwen3_omni_moe",
    "qwen3_vl",
    "qwen3_vl_moe",
    "qwen4_exp",
    "step3p7",
    "video_llama_3",
)
_WINDOWS = ("exaone4_5", "minicpm_ocr", "minicpmv4_6", "minicpmv4_7", "muse_glimmer", "muse_spark", "qwen2_5_omni", "qwen2_5_vl")
_INTERPOLATION = (
    "cohere_compass",
    "inkling2",
    "kimi_k25",
    "muse_glimmer",
    "muse_spark",
    "paddleocr_vl",
    "qwen3_5",
    "qwen3_5_moe",
    "qwen3_omni_moe",
    "qwen3_vl",
    "qwen3_vl_moe",
    "qwen4_exp",
)
_NEAREST = ("minicpm_ocr", "minicpmv4_6", "minicpmv4_7")


@register_patch(
    "dynamo",
    "transformers.vision_utils.get_vision_position_ids",
    *(f"transformers.models.{kind}.modeling_{kind}.get_vision_position_ids" for kind in _POSITIONS),
)
def _patch_grid_positions(original: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    """Number the patches of all images at once, from the place of each in the packed sequence.

    Why: the original loops over the images and reads each one's height and width as numbers, which freezes how many there are.
    Upstream: not filed.
    Seen in: Glm4vVisionModel, GlmOcrVisionModel
    """

    def patch(
        grid_thw: torch.Tensor,
        spatial_merge_size: int | torch.Tensor,
        include_temporal: bool = False,
        kwargs: dict[str, Any] | None = None,
    ) -> torch.Tensor:
        if kwargs is not None and kwargs.get("position_ids") is not None:
            return original(grid_thw, spatial_merge_size, include_temporal, kwargs=kwargs)
        _, frame, row, column = _by_blocks(grid_thw, spatial_merge_size)
        return torch.stack([frame, row, column] if include_temporal else [row, column], dim=-1)

    return patch


@register_patch(
    "dynamo",
    "transformers.models.muse_glimmer.modeling_muse_glimmer.get_vision_pixel_shuffle_index",
    "transformers.models.muse_spark.modeling_muse_spark.get_vision_pixel_shuffle_index",
)
def _patch_shuffle_index(original: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    """Find the patches of each block of all images at once.

    Why: the original loops over the images and reads each one's height and width as numbers, which freezes how many there are.
    Upstream: not filed.
    Seen in: MuseGlimmerForConditionalGeneration
    """

    def patch(grid_thw: torch.Tensor, merge_size: int, kwargs: dict[str, Any] | None = None) -> torch.Tensor:
        if kwargs is not None and kwargs.get("pixel_shuffle_index") is not None:
            return original(grid_thw, merge_size, kwargs=kwargs)
        image, frame, row, column = _by_blocks(grid_thw, merge_size)
        frames, heights, widths = grid_thw.unbind(-1)
        return _starts(frames * heights * widths)[image] + (frame * heights[image] + row) * widths[image] + column

    return patch


@register_patch(
    "dynamo",
    "transformers.vision_utils.get_vision_window_index",
    *(f"transformers.models.{kind}.modeling_{kind}.get_vision_window_index" for kind in _WINDOWS),
)
def _patch_window_index(original: Callable[..., Any]) -> Callable[..., Any]:
    """Put the patches of all images into the order of their windows at once.

    Why: the original loops over the images and reads each one's height and width as numbers, which freezes how many there are.
    Upstream: not filed.
    Seen in: MuseGlimmerForConditionalGeneration
    """

    def patch(
        grid_thw: torch.Tensor, spatial_merge_size: int, window_size: int, patch_size: int, kwargs: dict[str, Any] | None = None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        if kwargs is not None and kwargs.get("window_index") is not None and kwargs.get("cu_window_seqlens") is not None:
            return original(grid_thw, spatial_merge_size, window_size, patch_size, kwargs=kwargs)
        side = window_size // spatial_merge_size // patch_size
        frames, heights, widths = grid_thw.long().unbind(-1)
        heights, widths = heights // spatial_merge_size, widths // spatial_merge_size
        image, index = _packed(frames * heights * widths)
        height, width = heights[image], widths[image]
        frame, index = index // (height * width), index % (height * width)
        # windows stand in rows of windows; the last of a row, and the last row, may be smaller
        top = index // (side * width) * side
        window_height = torch.clamp(height - top, max=side)
        index = index - top * width
        left = index // (side * window_height) * side
        window_width = torch.clamp(width - left, max=side)
        index = index - left * window_height
        row, column = top + index // window_width, left + index % window_width
        window_index = _starts(frames * heights * widths)[image] + (frame * height + row) * width + column
        bounds = torch.cat([(index == 0).nonzero().squeeze(-1), (frames * heights * widths).sum()[None]])
        return window_index, (bounds * spatial_merge_size**2).to(torch.int32)

    return patch


@register_patch(
    "dynamo",
    "transformers.vision_utils.get_vision_interpolation_indices_and_weights",
    *(f"transformers.models.{kind}.modeling_{kind}.get_vision_interpolation_indices_and_weights" for kind in _INTERPOLATION),
)
def _patch_interpolation(original: Callable[..., Any]) -> Callable[..., Any]:
    """Find the places between which a patch's position is interpolated, from the place of the patch in the packed sequence.

    Why: the original cuts the last image off a list of sums, one for each image: torch asks whether one is left, and then refuses two
        images or fewer.
    Upstream: not filed.
    Seen in: MuseGlimmerForConditionalGeneration
    """
    from transformers.vision_utils import _interpolation_axis_taps_weights as taps_and_weights

    def patch(
        grid_thw: torch.Tensor,
        num_grid_per_side: int,
        mode: str = "bilinear",
        align_corners: bool = False,
        spatial_merge_size: int = 1,
        padding: str = "border",
        kwargs: dict[str, Any] | None = None,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        if kwargs is not None and kwargs.get("interp_indices") is not None and kwargs.get("interp_weights") is not None:
            return original(grid_thw, num_grid_per_side, mode, align_corners, spatial_merge_size, padding, kwargs=kwargs)
        image, _, row, column = _by_blocks(grid_thw, spatial_merge_size)
        _, heights, widths = grid_thw.unbind(-1)
        rows, by_row = taps_and_weights(row, heights[image], num_grid_per_side, mode, align_corners, padding)
        columns, by_column = taps_and_weights(column, widths[image], num_grid_per_side, mode, align_corners, padding)
        indices = rows[:, :, None] * num_grid_per_side + columns[:, None, :]
        return indices.flatten(1), (by_row[:, :, None] * by_column[:, None, :]).flatten(1)

    return patch


@register_patch(
    "dynamo",
    "transformers.vision_utils.get_vision_nearest_position_ids",
    *(f"transformers.models.{kind}.modeling_{kind}.get_vision_nearest_position_ids" for kind in _NEAREST),
)
def _patch_nearest_positions(original: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    """Find the nearest place in the table of positions for the patches of all images at once.

    Why: the original loops over the images and reads each one's height and width as numbers, which freezes how many there are.
    Upstream: not filed.
    Seen in: MiniCPMV4_7VisionModel
    """

    def patch(target_sizes: torch.Tensor, num_patches_per_side: int, kwargs: dict[str, Any] | None = None) -> torch.Tensor:
        if kwargs is not None and kwargs.get("position_ids") is not None:
            return original(target_sizes, num_patches_per_side, kwargs=kwargs)
        heights, widths = target_sizes.long().unbind(-1)
        image, index = _packed(heights * widths)
        height, width = heights[image], widths[image]
        # made here and now: runtimes differ in the last bit of a range of fractions
        step = 1 / num_patches_per_side
        places = torch.tensor([step + step * place for place in range(num_patches_per_side - 1)], device=target_sizes.device)
        row, column = ((part[:, None] >= places).sum(-1) for part in ((index // width) / height, (index % width) / width))
        return row * num_patches_per_side + column

    return patch


# ── Places in a packed sequence ───────────────────────────────────────────────


def _starts(sizes: torch.Tensor) -> torch.Tensor:
    """Where each image begins."""
    return sizes.cumsum(0) - sizes


def _packed(sizes: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """For every patch of a packed sequence, which image it belongs to and its index in that."""
    image = torch.repeat_interleave(torch.arange(sizes.shape[0], device=sizes.device), sizes)
    return image, torch.arange(image.shape[0], device=image.device) - _starts(sizes)[image]


def _by_blocks(grid_thw: torch.Tensor, side: int | torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Image, frame, row and column of every patch, where the patches of a block that will be merged into one stand together.

    Args:
        side: of a block, in patches; one for all images, or one for each.
    """
    frames, heights, widths = grid_thw.long().unbind(-1)
    image, index = _packed(frames * heights * widths)
    width, area = widths[image], (heights * widths)[image]
    side = side[image] if isinstance(side, torch.Tensor) else side
    frame, in_frame = index // area, index % area
    block, in_block = in_frame // (side * side), in_frame % (side * side)
    row = block // (width // side) * side + in_block // side
    column = block % (width // side) * side + in_block % side
    return image, frame, row, column
