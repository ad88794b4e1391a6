"""_patch_expert_loop: all experts on all tokens, weighted with zero where the router chose another."""

import copy
from typing import Any

import pytest
import torch
from torch import nn
from transformers import NllbMoeConfig, SwitchTransformersConfig
from transformers.models.nllb_moe.modeling_nllb_moe import NllbMoeExperts
from transformers.models.switch_transformers.modeling_switch_transformers import SwitchTransformersExperts
from workaround_helpers import assert_matches, assert_restores, export_onnx, fired, leave_out

from exporters.errors import ExportError
from exporters.utils import apply_patches

NAME = "dynamo:_patch_expert_loop"
EXPERTS, WIDTH = 4, 8


def generator() -> torch.Generator:
    return torch.Generator().manual_seed(3)


def nllb(dropout: float = 0.0) -> nn.Module:
    config = NllbMoeConfig(d_model=WIDTH, num_experts=EXPERTS, moe_token_dropout=dropout)
    return NllbMoeExperts(config, ffn_dim=12).eval()


def switch() -> nn.Module:
    return SwitchTransformersExperts(SwitchTransformersConfig(d_model=WIDTH, d_ff=12, num_experts=EXPERTS)).eval()


def nllb_inputs(tokens: int, classes: int = 2, dtype: torch.dtype = torch.float32) -> tuple[torch.Tensor, ...]:
    mask = torch.randint(0, classes, (tokens, EXPERTS), generator=generator())
    return torch.randn(tokens, WIDTH, generator=generator()).to(dtype), mask, torch.rand(tokens, EXPERTS, generator=generator()).to(dtype)


def switch_inputs(tokens: int, dropped: int = 0, dtype: torch.dtype = torch.float32) -> tuple[torch.Tensor, ...]:
    chosen = nn.functional.one_hot(torch.randint(0, EXPERTS - 1, (tokens,), generator=generator()), EXPERTS)[:, None]
    chosen[:dropped] = 0
    return torch.randn(tokens, WIDTH, generator=generator()).to(dtype), chosen, torch.rand(tokens, 1, generator=generator()).to(dtype)


@pytest.mark.parametrize(
    ("module", "given"),
    [
        pytest.param(nllb(), nllb_inputs(7), id="nllb, a router's mask"),
        pytest.param(nllb(), nllb_inputs(7, classes=EXPERTS), id="nllb, every class"),
        pytest.param(nllb(0.2), nllb_inputs(7), id="nllb, the factor of token dropout"),
        pytest.param(nllb().half(), nllb_inputs(7, dtype=torch.float16), id="nllb, half"),
        pytest.param(nllb(), nllb_inputs(0), id="nllb, no token"),
        pytest.param(nllb(), (*nllb_inputs(3)[:1], torch.zeros(3, EXPERTS, dtype=torch.long), torch.zeros(3, EXPERTS)), id="nllb, zeros"),
        pytest.param(switch(), switch_inputs(7), id="switch, an expert without tokens"),
        pytest.param(switch(), switch_inputs(7, dropped=3), id="switch, tokens beyond capacity"),
        pytest.param(switch(), switch_inputs(7, dropped=7), id="switch, no token routed"),
        pytest.param(switch().half(), switch_inputs(7, dtype=torch.float16), id="switch, half"),
        pytest.param(switch(), switch_inputs(0), id="switch, no token"),
    ],
)
def test_equals_the_loop(module: nn.Module, given: tuple[torch.Tensor, ...]) -> None:
    with torch.no_grad():
        expected = module(*given)
        with apply_patches("dynamo"):
            actual = module(*copy.deepcopy(given))
    tolerance = 2e-3 if expected.dtype == torch.float16 else 1e-5
    torch.testing.assert_close(actual, expected, atol=tolerance, rtol=tolerance)


def test_an_expert_that_overflows_touches_only_its_tokens() -> None:
    module = switch()
    with torch.no_grad():
        module["expert_0"].wo.weight.fill_(float("inf"))
    given = switch_inputs(7)
    with torch.no_grad(), apply_patches("dynamo"):
        result = module(*given)
    elsewhere = given[1][:, 0, 0] == 0
    assert elsewhere.any()
    assert torch.isfinite(result[elsewhere]).all()


def test_training_is_left_alone() -> None:
    module = nllb(0.5).train()
    torch.manual_seed(0)
    expected = module(*nllb_inputs(7))
    torch.manual_seed(0)
    with apply_patches("dynamo"):
        torch.testing.assert_close(module(*nllb_inputs(7)), expected)


def test_originals_come_back() -> None:
    assert_restores(NAME)


class Named(nn.Module):
    """The experts behind names that an export can use."""

    def __init__(self, experts: nn.Module) -> None:
        super().__init__()
        self.experts = experts

    def forward(self, states: torch.Tensor, routing: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        return self.experts(states, routing, weights)


def named(given: tuple[torch.Tensor, ...]) -> dict[str, Any]:
    return dict(zip(("states", "routing", "weights"), given, strict=True))


MODULES = pytest.mark.parametrize(
    ("module", "make"), [(Named(nllb(0.2)), nllb_inputs), (Named(switch()), switch_inputs)], ids=["nllb_moe", "switch"]
)


@MODULES
def test_effect(module: nn.Module, make: Any) -> None:
    sets = [named(make(7)), named(make(12)), named(make(1))]
    exported = export_onnx(module, *sets[:2])
    assert_matches(exported, module, sets)
    assert NAME in fired(exported)


@MODULES
def test_canary(module: nn.Module, make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    leave_out(monkeypatch, NAME)
    with pytest.raises(ExportError):
        export_onnx(module, named(make(7)), named(make(12)))


@pytest.mark.e2e
def test_nllb_moe() -> None:
    from exporters.zoo.build import build

    sample = build("NllbMoeForConditionalGeneration")
    exported = export_onnx(sample.model, sample.inputs, *sample.others.values())
    assert_matches(exported, sample.model, [sample.inputs, *sample.others.values()])
    assert NAME in fired(exported)
