"""_patch_cast_classifier and _patch_router_cast: routers that cast their weights inside forward."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from transformers import NllbMoeConfig, SwitchTransformersConfig
from transformers.models.nllb_moe.modeling_nllb_moe import NllbMoeTop2Router
from transformers.models.switch_transformers.modeling_switch_transformers import SwitchTransformersTop1Router
from workaround_helpers import assert_restores, leave_out

from exporters.configs import DynamoConfig
from exporters.errors import ExportError
from exporters.exporter_dynamo import DynamoExporter
from exporters.utils import apply_patches

CAST, FORWARD = "dynamo:_patch_cast_classifier", "dynamo:_patch_router_cast"


def nllb() -> nn.Module:
    return NllbMoeTop2Router(NllbMoeConfig(d_model=8, num_experts=4, router_dtype="float32")).eval()


def switch() -> nn.Module:
    return SwitchTransformersTop1Router(SwitchTransformersConfig(d_model=8, num_experts=4, expert_capacity=3)).eval()


def states(router: nn.Module, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    shape = (6, 8) if isinstance(router, NllbMoeTop2Router) else (2, 3, 8)
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0)).to(dtype)


ROUTERS = pytest.mark.parametrize(("name", "make"), [(CAST, nllb), (FORWARD, switch)], ids=["nllb_moe", "switch"])


@ROUTERS
@pytest.mark.parametrize("weights", [torch.float32, torch.float16], ids=["nothing to cast", "cast"])
def test_same_result_and_same_weights(name: str, make: Callable[[], nn.Module], weights: torch.dtype) -> None:
    ours, theirs = make().to(weights), make().to(weights)
    theirs.load_state_dict(ours.state_dict())
    given = states(ours)
    expected = theirs(given)
    with apply_patches("dynamo"):
        actual = ours(given)
    for got, wanted in zip(actual, expected, strict=True):
        torch.testing.assert_close(got, wanted, atol=0, rtol=0)
    assert ours.classifier.weight.dtype == theirs.classifier.weight.dtype == torch.float32
    assert "to" not in vars(ours.classifier)


@ROUTERS
def test_originals_come_back(name: str, make: Callable[[], nn.Module]) -> None:
    assert_restores(name)


def trace(router: nn.Module, given: torch.Tensor) -> Any:
    return DynamoExporter().export(router, {"hidden_states": given}, config=DynamoConfig(dynamic=True))


@ROUTERS
def test_effect(name: str, make: Callable[[], nn.Module]) -> None:
    router = make()
    given = states(router)
    exported = trace(router, given)
    assert name in exported.stages[0].seen.fired
    for sample in (given, given.repeat_interleave(2, 0)):
        for got, wanted in zip(exported(hidden_states=sample), router(sample), strict=True):
            torch.testing.assert_close(got, wanted)


@ROUTERS
def test_canary(name: str, make: Callable[[], nn.Module], monkeypatch: pytest.MonkeyPatch) -> None:
    leave_out(monkeypatch, name)
    router = make()
    with pytest.raises(ExportError):
        trace(router, states(router))
