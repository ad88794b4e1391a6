"""Model patches for mixtures of experts: routers that cast their weights, and loops over the experts that got tokens."""

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from exporters.utils import register_patch

# ── Stage 2: Model patches ────────────────────────────────────────────────────


@register_patch("dynamo", "transformers.models.switch_transformers.modeling_switch_transformers.SwitchTransformersTop1Router.forward")
def _patch_router_cast(original: Callable[..., Any]) -> Callable[..., Any]:
    """Run the router with `classifier.to` doing nothing, where its weights have the router's dtype already.

    Why: `Module.to` makes new parameters during forward, which `torch.export` doesn't know; here it stands inside `forward` itself.
    Cost: none; a classifier of another dtype is still cast, and still can't be traced: convert the model before its export.
    Upstream: not filed.
    Seen in: SwitchTransformersForConditionalGeneration
    """

    def patch(self: Any, *args: Any, **kwargs: Any) -> Any:
        classifier = self.classifier
        if any(parameter.dtype != self.dtype for parameter in classifier.parameters()):
            return original(self, *args, **kwargs)
        classifier.to = lambda dtype: classifier
        try:
            return original(self, *args, **kwargs)
        finally:
            del classifier.to

    return patch


@register_patch(
    "dynamo",
    "transformers.models.nllb_moe.modeling_nllb_moe.NllbMoeExperts.forward",
    "transformers.models.switch_transformers.modeling_switch_transformers.SwitchTransformersExperts.forward",
)
def _patch_expert_loop(original: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    """Run every expert on every token, and weight with zero where the router didn't choose it.

    The two models tell the choice differently: Switch by a mask of (tokens, 1, experts); NLLB-MoE by integers of
    (tokens, choices), each the number of an expert, the zeros of its router's mask included.

    Why: the loop goes over the experts that got a token, and each over its own number of tokens: data that a trace doesn't have.
    Cost: every expert works on every token, instead of on those routed to it.
    Upstream: not filed.
    Seen in: NllbMoeForConditionalGeneration, SwitchTransformersForConditionalGeneration
    """

    def patch(self: nn.ModuleDict, hidden_states: torch.Tensor, routing: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        if self.training:
            return original(self, hidden_states, routing, weights)
        experts = torch.arange(self.num_experts, device=routing.device)
        chosen = routing[..., None] == experts if routing.dim() == 2 else routing != 0
        kept = 1 - getattr(self, "moe_token_dropout", 0)
        result = torch.zeros_like(hidden_states)
        for index in range(self.num_experts):
            mine = chosen[..., index]
            weight = torch.where(mine, weights, 0).sum(-1, keepdim=True)
            output = self[f"expert_{index}"](hidden_states) * weight * kept
            # a token that wasn't routed here gets nothing, not even the NaN of an output that overflowed
            result = result + torch.where(mine.any(-1, keepdim=True), output, 0).to(hidden_states.dtype)
        return result

    return patch


@register_patch("dynamo", "transformers.models.dbrx.modeling_dbrx.DbrxExperts.forward")
def _patch_dbrx_expert_loop(original: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    """Run every expert on every token, and weight with zero where the router didn't choose it.

    Why: the loop goes over the experts that got a token, and each over its own number of tokens: data that a trace doesn't have.
    Cost: every expert works on every token, instead of on those routed to it.
    Upstream: not filed.
    Seen in: DbrxForCausalLM
    """

    def patch(self: Any, hidden_states: torch.Tensor, top_k_index: torch.Tensor, top_k_weights: torch.Tensor) -> torch.Tensor:
        tokens = hidden_states.reshape(-1, self.hidden_size)
        gates, ups, downs = (
            weight.view(self.num_experts, self.ffn_hidden_size, self.hidden_size) for weight in (self.mlp.w1, self.mlp.v1, self.mlp.w2)
        )
        result = torch.zeros_like(tokens)
        for index in range(self.num_experts):
            mine = top_k_index == index
            weight = torch.where(mine, top_k_weights, 0).sum(-1, keepdim=True)
            output = self.mlp(tokens, gates[index], ups[index], downs[index]) * weight
            result = result + torch.where(mine.any(-1, keepdim=True), output, 0).to(tokens.dtype)
        return result.view(hidden_states.shape[0], -1, self.hidden_size)

    return patch
