"""Model patch for CANINE: attention within windows of characters."""

from collections.abc import Callable
from typing import Any

import torch

from exporters.utils import register_patch

# ── Stage 2: Model patches ────────────────────────────────────────────────────


@register_patch("dynamo", "transformers.models.canine.modeling_canine.CanineAttention.forward")
def _patch_local_attention(original: Callable[..., Any]) -> Callable[..., Any]:
    """Attend to the whole sequence once, with everything outside of a position's own window masked.

    Why: a Python loop cuts the windows, once for each 128 characters, which freezes the number of characters.
    Cost: scores for all pairs of characters instead of those within 128 of each other.
    Upstream: not filed.
    Seen in: CanineForMultipleChoice
    """

    def patch(
        self: Any, hidden_states: torch.Tensor, attention_mask: torch.Tensor | None = None, output_attentions: bool | None = False
    ) -> Any:
        width = self.attend_from_chunk_width
        apart = {width, self.attend_from_chunk_stride, self.attend_to_chunk_width, self.attend_to_chunk_stride} == {width}
        special = self.first_position_attends_to_all or self.always_attend_to_first_position
        if not self.local or special or not apart or output_attentions or attention_mask is None:
            return original(self, hidden_states, attention_mask, output_attentions)
        window = torch.arange(hidden_states.shape[1], device=hidden_states.device) // width
        # The attention turns a mask m into the bias (1 - m) * lowest. -inf becomes -inf, below a padded character's own lowest:
        # a window of padding alone still attends within itself.
        mask = torch.where(window[:, None] == window[None, :], attention_mask, float("-inf"))
        attended = self.self(hidden_states, hidden_states, mask, False)[0]
        return (self.output(attended, hidden_states),)

    return patch
