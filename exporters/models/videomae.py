"""Model patch for VideoMAE: the visible and the masked patches of each video, gathered by a mask."""

from collections.abc import Callable
from typing import Any
from unittest import mock

import torch
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols

from exporters.utils import register_patch

# ── Stage 2: Model patches ────────────────────────────────────────────────────


@register_patch("dynamo", "transformers.models.videomae.modeling_videomae.VideoMAEForPreTraining.forward")
def _patch_rows_of_data(original: Callable[..., Any]) -> Callable[..., Any]:
    """Give the number of patches a video a symbol of its own, where the patches of all videos were gathered by a mask.

    Why: the number would be the quotient of a symbol that is data and the batch, about which torch can't answer whether it is 0 or 1.
    Cost: a torch program refuses one patch a video, or none. What eager refuses, patches that can't be shared out evenly, each runtime
        refuses too: its reshape has the number spelled out.
    Upstream: pytorch/pytorch#180202 is its sibling, an attention over a batch that is data.
    Seen in: VideoMAEForPreTraining
    """
    reshape = torch.Tensor.reshape

    def rows(self: torch.Tensor, *shape: Any) -> torch.Tensor:
        if len(shape) != 3 or shape[1] != -1 or self.dim() != 2 or not free_unbacked_symbols(self.shape[0]):
            return reshape(self, *shape)
        videos, _, width = shape
        patches = torch.scalar_tensor(self.shape[0] // videos, dtype=torch.int64).item()
        torch._check(patches > 1)
        torch._check(self.shape[0] == videos * patches)
        return reshape(self, videos, patches, width)

    def patch(self: Any, *args: Any, **kwargs: Any) -> Any:
        with mock.patch.object(torch.Tensor, "reshape", rows):
            return original(self, *args, **kwargs)

    return patch
