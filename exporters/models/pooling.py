"""Model patch for pooling over a sequence."""

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

from exporters.utils import register_patch

# ── Stage 2: Model patches ────────────────────────────────────────────────────


def _pair(first: int, value: Any) -> tuple[int, int]:
    """A size for two axes, of which the first is not pooled."""
    return first, value[0] if isinstance(value, tuple | list) else value


@register_patch("dynamo", "torch.nn.functional.max_pool1d")
def _patch_max_pool1d(original: Callable[..., Any]) -> Callable[..., Any]:
    """Pool a sequence as an image of one row.

    Why: `max_pool1d` reads the length as a number, which freezes it; `max_pool2d` keeps its symbol.
    Upstream: not filed.
    Seen in: CanineForMultipleChoice
    """

    def patch(
        input: torch.Tensor,
        kernel_size: Any,
        stride: Any = None,
        padding: Any = 0,
        dilation: Any = 1,
        ceil_mode: bool = False,
        return_indices: bool = False,
    ) -> Any:
        if return_indices or not isinstance(input.shape[-1], torch.SymInt):
            return original(input, kernel_size, stride, padding, dilation, ceil_mode=ceil_mode, return_indices=return_indices)
        stride = kernel_size if stride is None else stride
        sizes = (_pair(1, kernel_size), _pair(1, stride), _pair(0, padding), _pair(1, dilation))
        return F.max_pool2d(input.unsqueeze(-2), *sizes, ceil_mode=ceil_mode).squeeze(-2)

    return patch
