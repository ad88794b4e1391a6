"""Model patches for vision encoders that take the patches of several images packed into one sequence."""

from collections.abc import Callable
from typing import Any

import torch
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols

from exporters.utils import register_patch

# ── Stage 2: Model patches ────────────────────────────────────────────────────

# Model types whose vision attention asks `is_flash_attention_requested` and, where it is, hands the bounds of the packed images to one call
# of the attention; nothing else in their modules that a forward reaches asks.
_PACKED = (
    "cohere_compass",
    "cosmos3_edge",
    "dots3_note",
    "ernie4_5_vl_moe",
    "exaone4_5",
    "glm4v",
    "glm4v_moe",
    "glm5_next",
    "glm_image",
    "glm_ocr",
    "hunyuan_vl",
    "minicpm_ocr",
    "minicpmv4_6",
    "minicpmv4_7",
    "muse_glimmer",
    "muse_spark",
    "paddleocr_vl",
    "qwen2_5_vl",
    "qwen2_vl",
    "qwen3_5",
    "qwen3_5_moe",
    "qwen3_vl",
    "qwen3_vl_moe",
    "video_llama_3",
)


@register_patch("dynamo", *(f"transformers.models.{kind}.modeling_{kind}.is_flash_attention_requested" for kind in _PACKED))
def _patch_packed_attention(original: Callable[..., bool]) -> Callable[..., bool]:
    """Let packed images take the branch of one attention call; `_patch_attention_over_bounds` makes it a masked one.

    Why: the other branch calls the attention once an image, over pieces whose number and sizes are the values of a tensor.
    Cost: every patch is scored against those of all images.
    Upstream: not filed.
    Seen in: Glm4vVisionModel, GlmOcrVisionModel, MiniCPMV4_7VisionModel
    Bindings: those of the vision encoders; everybody else's question has to be answered truly.
    """
    return lambda *args, **kwargs: True


@register_patch("dynamo", "transformers.modeling_utils.AttentionInterface.get_interface")
def _patch_attention_over_bounds(original: Callable[..., Any]) -> Callable[..., Any]:
    """Where an attention is given the bounds of packed sequences, mask what belongs to another one.

    Why: only flash attention reads the bounds; the implementations that can be traced would attend across images.
    Cost: every position is scored against those of all sequences. Where it is data how many there are, a torch program refuses a single
        position, and more sequences than positions.
    Upstream: not filed; pytorch/pytorch#180202 tells of the attention that asks about a size that is data.
    Seen in: Glm4vVisionModel, GlmOcrVisionModel, MuseGlimmerForConditionalGeneration
    """

    def patch(self: Any, attn_implementation: str, default: Callable[..., Any]) -> Callable[..., Any]:
        interface = original(self, attn_implementation, default)

        def attend(module: Any, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
            bounds = kwargs.get("cu_seq_lens_q")
            # a text model's own packing is causal, says so by not saying it, and is left to its mask
            if bounds is not None and not args and kwargs.get("attention_mask") is None and kwargs.get("is_causal") is False:
                for name in ("cu_seq_lens_q", "cu_seq_lens_k", "max_length_q", "max_length_k"):
                    kwargs.pop(name, None)
                length = query.shape[2]
                if free_unbacked_symbols(length):
                    torch._check(length > 1)
                if free_unbacked_symbols(bounds.shape[0]):
                    # for who plans memory ahead
                    torch._check(bounds.shape[0] - 1 <= length)
                mask = same_sequence(bounds, length)
                if attn_implementation != "sdpa":
                    mask = torch.zeros(mask.shape, dtype=query.dtype, device=mask.device).masked_fill(~mask, torch.finfo(query.dtype).min)
                kwargs["attention_mask"] = mask
            return interface(module, query, key, value, *args, **kwargs)

        return attend

    return patch


def same_sequence(bounds: torch.Tensor, length: int) -> torch.Tensor:
    """Which positions of a packed sequence share a piece of it: (1, 1, length, length), boolean.

    Args:
        bounds: (pieces + 1,), the first 0, the last `length`.
    """
    positions = torch.arange(length, device=bounds.device)
    piece = (positions[:, None] >= bounds[None, 1:]).sum(-1)
    return (piece[:, None] == piece[None, :])[None, None]
