"""Model patch for VideoMAE: the visible patches of each video, gathered by a mask."""

from collections.abc import Callable
from typing import Any

import torch
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols

from exporters.utils import register_patch

# ── Stage 2: Model patches ────────────────────────────────────────────────────


@register_patch("dynamo", "torch.Tensor.reshape")
def _patch_rows_of_data(original: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    """Give the length of a row a symbol of its own, where rows are made of what a mask has gathered.

    Why: the length would be the quotient of a symbol that is data and the batch, about which torch can't answer whether it is 0 or 1.
    Cost: a torch program refuses rows of one element or none, and rows of different lengths, by assertions. The other formats have no
        assertions and serve short rows; what eager refuses, rows of different lengths, they may take.
    Upstream: https://github.com/pytorch/pytorch/issues/180202 is its sibling, an attention over a batch that is data.
    Seen in: VideoMAEForPreTraining
    """

    def patch(self: torch.Tensor, *shape: Any) -> torch.Tensor:
        if len(shape) != 3 or shape[1] != -1 or self.dim() != 2 or not free_unbacked_symbols(self.shape[0]):
            return original(self, *shape)
        rows, _, width = shape
        length = torch.scalar_tensor(self.shape[0] // rows, dtype=torch.int64).item()
        torch._check(length > 1)
        torch._check(self.shape[0] == rows * length)
        return original(self, rows, length, width)

    return patch
