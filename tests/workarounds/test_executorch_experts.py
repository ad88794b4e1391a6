"""_patch_experts: every expert on every token, without sorting, counting or copying weights."""

import copy
from typing import Any

import pytest
import torch
from executorch_helpers import export_executorch, some
from torch import nn
from transformers import GptOssConfig, MixtralConfig, NemotronHConfig
from transformers.models.gpt_oss.modeling_gpt_oss import GptOssExperts
from transformers.models.mixtral.modeling_mixtral import MixtralExperts
from transformers.models.nemotron_h.modeling_nemotron_h import NemotronHExperts
from workaround_helpers import assert_matches, assert_restores, fired, leave_out

from exporters.errors import ExportError
from exporters.exporter_executorch import dense_experts_forward

NAME = "executorch:_patch_experts"
HIDDEN, EXPERTS, CHOICES = 8, 4, 2


def _filled(module: nn.Module) -> nn.Module:
    """Weights of a size that shows."""
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.5)
    return module.eval()


def mixtral() -> nn.Module:
    config = MixtralConfig(hidden_size=HIDDEN, intermediate_size=12, num_local_experts=EXPERTS)
    config._experts_implementation = "eager"
    return _filled(MixtralExperts(config))


def gpt_oss() -> nn.Module:
    """Biases, transposed weights, gate and up projection interleaved, a gate of its own."""
    config = GptOssConfig(hidden_size=HIDDEN, intermediate_size=12, num_local_experts=EXPERTS)
    config._experts_implementation = "eager"
    return _filled(GptOssExperts(config))


def nemotron_h() -> nn.Module:
    """No gate."""
    config = NemotronHConfig(hidden_size=HIDDEN, moe_intermediate_size=12, n_routed_experts=EXPERTS, moe_latent_size=None)
    config._experts_implementation = "eager"
    return _filled(NemotronHExperts(config))


def inputs(tokens: int, seed: int = 0) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    scores = torch.rand(tokens, EXPERTS, generator=generator)
    weights, index = scores.topk(CHOICES, dim=-1) if tokens else (scores[:, :CHOICES], torch.zeros(0, CHOICES, dtype=torch.long))
    return {"hidden_states": some(tokens, HIDDEN), "top_k_index": index, "top_k_weights": weights}


EVERY = pytest.mark.parametrize("module", [mixtral(), gpt_oss(), nemotron_h()], ids=["mixtral", "gpt_oss", "nemotron_h"])


@EVERY
@pytest.mark.parametrize("tokens", [9, 1, 0], ids=["some", "one token", "no tokens"])
def test_equals_eager(module: nn.Module, tokens: int) -> None:
    given = inputs(tokens)
    torch.testing.assert_close(dense_experts_forward(module, *given.values()), module(*given.values()), atol=1e-5, rtol=1e-5)


@EVERY
def test_equals_eager_in_other_precisions(module: nn.Module) -> None:
    for dtype, bound in ((torch.float64, 1e-10), (torch.bfloat16, 5e-2)):
        converted = copy.deepcopy(module).to(dtype)
        given = {name: tensor.to(dtype) if tensor.is_floating_point() else tensor for name, tensor in inputs(9).items()}
        expected, actual = converted(*given.values()), dense_experts_forward(converted, *given.values())
        torch.testing.assert_close(actual, expected, atol=bound * float(expected.abs().max()), rtol=bound)


def test_an_index_beyond_the_last_expert_is_nobody() -> None:
    module, given = mixtral(), inputs(9)
    given["top_k_index"][::2, 1] = EXPERTS
    torch.testing.assert_close(dense_experts_forward(module, *given.values()), module(*given.values()), atol=1e-5, rtol=1e-5)


@EVERY
def test_weights_may_be_negative_zero_or_all_on_one_expert(module: nn.Module) -> None:
    given = inputs(6)
    given["top_k_weights"][0] = 0
    given["top_k_weights"][1] = -1.5
    given["top_k_index"][2] = 3
    torch.testing.assert_close(dense_experts_forward(module, *given.values()), module(*given.values()), atol=1e-5, rtol=1e-5)


def test_what_overflows_elsewhere_does_not_leak() -> None:
    module = mixtral()
    with torch.no_grad():
        module.gate_up_proj[0] = float("inf")  # type: ignore[index, operator]
    given = inputs(5)
    given["top_k_index"] = torch.tensor([[1, 2]] * 5)
    assert dense_experts_forward(module, *given.values()).isfinite().all()


def routed(implementation: str) -> nn.Module:
    module = mixtral()
    module.config._experts_implementation = implementation  # type: ignore[union-attr]
    return module


@pytest.mark.parametrize("implementation", ["grouped_mm", "eager", "batched_mm"])
def test_effect(implementation: str) -> None:
    sets = [inputs(9), inputs(14, seed=1), inputs(1, seed=2)]
    exported = export_executorch(routed(implementation), *sets)
    assert_matches(exported, mixtral(), sets)
    assert NAME in fired(exported)
    assert "aten.bmm.default" in exported.stages[-1].details["delegated"]


@pytest.mark.parametrize(("implementation", "complaint"), [("grouped_mm", "grouped_mm_fallback"), ("eager", "data-dependent|u0")])
def test_canary(implementation: str, complaint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    leave_out(monkeypatch, NAME)
    with pytest.raises(ExportError, match=complaint):
        export_executorch(routed(implementation), inputs(9), inputs(14))


def test_originals_come_back() -> None:
    assert_restores(NAME, "executorch.xnnpack")


@pytest.mark.e2e
def test_mixtral() -> None:
    from exporters.zoo.build import build

    sample: Any = build("MixtralForCausalLM")
    exported = export_executorch(sample.model, sample.inputs, *sample.others.values())
    assert_matches(exported, sample.model, [sample.inputs, *sample.others.values()])
    assert NAME in fired(exported)
