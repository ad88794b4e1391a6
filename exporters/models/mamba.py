"""Model patches for state space models: the scan over the sequence."""

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

from exporters.utils import register_patch

# ── Stage 2: Model patches ────────────────────────────────────────────────────


@register_patch(
    "dynamo",
    "transformers.models.mamba.modeling_mamba.mamba_selective_scan",
    "transformers.models.falcon_mamba.modeling_falcon_mamba.mamba_selective_scan",
    "transformers.models.jamba.modeling_jamba.mamba_selective_scan",
    "transformers.models.zamba.modeling_zamba.mamba_selective_scan",
)
def _patch_selective_scan(original: Callable[..., Any]) -> Callable[..., Any]:
    """Step through the sequence with torch's `scan` operator instead of a Python loop.

    Why: the loop is unrolled to the sample's length, which freezes it, and the mask's length with it.
    Cost: none; the same arithmetic in the same order, and a graph whose size doesn't grow with the length.
    Upstream: not filed.
    Seen in: MambaForCausalLM; the same function stands in FalconMamba, Jamba and Zamba
    Operators: Scan
    """

    def patch(
        hidden_states: torch.Tensor,
        dt: torch.Tensor,
        A: torch.Tensor,
        B: torch.Tensor,
        C: torch.Tensor,
        D: torch.Tensor | None = None,
        z: torch.Tensor | None = None,
        delta_bias: torch.Tensor | None = None,
        delta_softplus: bool = False,
        return_last_state: bool = False,
        **unused: Any,
    ) -> Any:
        from torch._higher_order_ops.scan import scan

        if delta_bias is not None:
            dt = dt + delta_bias.to(dt.dtype)[..., None]
        if delta_softplus:
            dt = F.softplus(dt)
        # steps first; then batch, channels, state size
        steps = dt.permute(2, 0, 1)[..., None]
        decay = torch.exp(A * steps)
        update = steps * B.permute(2, 0, 1)[:, :, None, :].float() * hidden_states.permute(2, 0, 1)[..., None].float()
        readout = C.permute(2, 0, 1)[..., None]

        def step(state: torch.Tensor, at: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, torch.Tensor]:
            decay, update, readout = at
            state = decay * state + update
            return state, torch.matmul(state.to(hidden_states.dtype), readout).squeeze(-1)

        start = torch.zeros_like(update[0] * decay[0])
        last_state, outputs = scan(step, start, (decay, update.to(start.dtype), readout))
        output = outputs.permute(1, 2, 0)
        if D is not None:
            output = output + hidden_states * D[None, :, None]
        if z is not None:
            output = output * F.silu(z)
        return (output, last_state) if return_last_state else output

    return patch
