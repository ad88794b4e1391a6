"""Model patch for CSM: a head for each codebook."""

from collections.abc import Callable
from typing import Any

import torch

from exporters.utils import register_patch

# ── Stage 2: Model patches ────────────────────────────────────────────────────


@register_patch("dynamo", "transformers.models.csm.modeling_csm.CsmCodebooksHead.forward")
def _patch_codebook_heads(original: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    """Multiply each position with the matrix of its codebook, all positions in one product.

    Why: a Python loop goes over the positions, which freezes how many there are.
    Upstream: not filed.
    Seen in: CsmDepthDecoderForCausalLM
    """

    def patch(self: Any, hidden_states: torch.Tensor, codebook_indices: torch.Tensor | None = None) -> torch.Tensor:
        if codebook_indices is None or codebook_indices.dim() != 1:
            return original(self, hidden_states, codebook_indices)
        weights = self.weight[codebook_indices - 1]
        # positions, batch, width
        by_position = hidden_states[:, : weights.shape[0]].transpose(0, 1)
        return torch.matmul(by_position, weights).transpose(0, 1)

    return patch
