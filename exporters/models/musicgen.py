"""Model patch for MusicGen: a row for each codebook of each example."""

from collections.abc import Callable
from typing import Any

import torch

from exporters.utils import register_patch

# ── Stage 2: Model patches ────────────────────────────────────────────────────


@register_patch("dynamo", "transformers.models.musicgen.modeling_musicgen.MusicgenDecoder.forward")
def _patch_codebook_rows(original: Callable[..., Any]) -> Callable[..., Any]:
    """Say that there are as many rows of codes as codebooks times examples.

    Why: the number of examples is otherwise a quotient of the rows, about which torch asks
        whether it is 1, and then refuses a single example.
    Cost: a batch of states that eager would repeat for every example is refused.
    Upstream: not filed.
    Seen in: MusicgenForCausalLM
    """

    def patch(self: Any, input_ids: torch.Tensor | None = None, attention_mask: torch.Tensor | None = None, **kwargs: Any) -> Any:
        by_example = attention_mask if attention_mask is not None else kwargs.get("encoder_hidden_states")
        if input_ids is not None and by_example is not None:
            torch._check(input_ids.shape[0] == by_example.shape[0] * self.num_codebooks)
        return original(self, input_ids, attention_mask, **kwargs)

    return patch
