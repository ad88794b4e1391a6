"""Model patches for Longformer and LED: attention within a window, and to and from chosen tokens."""

import inspect
import math
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from exporters.utils import register_patch

# ── Stage 2: Model patches ────────────────────────────────────────────────────


@register_patch(
    "dynamo",
    "transformers.models.longformer.modeling_longformer.LongformerSelfAttention.forward",
    "transformers.models.led.modeling_led.LEDEncoderSelfAttention.forward",
)
def _patch_window_attention(original: Callable[..., Any]) -> Callable[..., Any]:
    """Score every token against every other one, and mask those outside of its window.

    Why: the windows are cut by `as_strided` into chunks whose number is rounded by a tensor operation, and the tokens with global attention
        are gathered by how many there are: data that a trace doesn't have.
    Cost: scores for all pairs of tokens instead of those in a window, and those of global attention for every token.
    Upstream: not filed; huggingface/optimum#505 tells of the numbers that a traced window gives.
    Seen in: LEDForConditionalGeneration, LongformerForMaskedLM
    """

    def patch(
        self: Any,
        hidden_states: torch.Tensor,
        attention_mask: torch.Tensor | None = None,
        is_index_masked: torch.Tensor | None = None,
        is_index_global_attn: torch.Tensor | None = None,
        is_global_attn: Any = None,
        output_attentions: bool = False,
    ) -> Any:
        if output_attentions or self.training or is_index_masked is None or is_index_global_attn is None:
            return original(self, hidden_states, attention_mask, is_index_masked, is_index_global_attn, is_global_attn, output_attentions)

        def heads(projection: nn.Module) -> torch.Tensor:
            return projection(hidden_states).unflatten(-1, (self.num_heads, self.head_dim)).transpose(1, 2)

        def attend(query: nn.Module, key: nn.Module, value: nn.Module, visible: torch.Tensor) -> torch.Tensor:
            scores = torch.matmul(heads(query) / math.sqrt(self.head_dim), heads(key).transpose(-1, -2))
            scores = scores.masked_fill(~visible, torch.finfo(scores.dtype).min)
            return torch.matmul(scores.softmax(-1, dtype=torch.float32).to(scores.dtype), heads(value))

        position = torch.arange(hidden_states.shape[1], device=hidden_states.device)
        near = (position[:, None] - position[None, :]).abs() <= self.one_sided_attn_window_size
        padding, chosen = is_index_masked[:, None, None, :], is_index_global_attn[:, None, None, :]
        local = attend(self.query, self.key, self.value, chosen | (near & ~padding))
        # what stands at padding attends to nothing
        local = torch.where(padding.transpose(-1, -2), 0, local)
        everywhere = attend(self.query_global, self.key_global, self.value_global, ~padding)
        attended = torch.where(chosen.transpose(-1, -2), everywhere, local)
        return (attended.transpose(1, 2).flatten(2),)

    return patch


@register_patch(
    "dynamo",
    "transformers.models.longformer.modeling_longformer.LongformerModel._pad_to_window_size",
    "transformers.models.led.modeling_led.LEDEncoder._pad_to_window_size",
)
def _patch_window_padding(original: Callable[..., Any]) -> Callable[..., Any]:
    """Leave the inputs as long as they are: `_patch_window_attention` needs no whole number of windows.

    Why: whether anything is padded, and cut off again, freezes what the length leaves when divided by the window.
    Cost: none; what is padded is masked, and cut off in the end. A model that returns its attentions is padded as before.
    Upstream: not filed.
    Seen in: LEDForConditionalGeneration, LongformerForMaskedLM
    """
    signature = inspect.signature(original)

    def patch(self: Any, *args: Any, **kwargs: Any) -> Any:
        if self.config.output_attentions or self.training:
            return original(self, *args, **kwargs)
        # they are returned in the order in which they are taken
        _, *tensors, _ = signature.bind(self, *args, **kwargs).arguments.values()
        return 0, *tensors

    return patch
