"""_patch_selective_scan: a scan in the graph instead of a loop over the sample's length."""

import importlib
from typing import Any

import pytest
import torch
from torch import nn
from transformers.models.falcon_mamba import modeling_falcon_mamba  # noqa: F401
from transformers.models.jamba import modeling_jamba  # noqa: F401
from transformers.models.mamba import modeling_mamba
from transformers.models.zamba import modeling_zamba  # noqa: F401
from workaround_helpers import assert_matches, assert_restores, export_onnx, fired, leave_out, registration

from exporters.errors import ExportError
from exporters.utils import apply_patches

NAME = "dynamo:_patch_selective_scan"


def inputs(batch: int, length: int, dtype: torch.dtype = torch.float32) -> dict[str, Any]:
    generator = torch.Generator().manual_seed(length)

    def some(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator)

    return {
        "hidden_states": some(batch, 6, length).to(dtype),
        "dt": some(batch, 6, length).to(dtype),
        "A": -torch.exp(some(6, 4)),
        "B": some(batch, 4, length).to(dtype),
        "C": some(batch, 4, length).to(dtype),
    }


def extras() -> dict[str, Any]:
    generator = torch.Generator().manual_seed(1)
    return {"D": torch.randn(6, generator=generator), "delta_bias": torch.randn(6, generator=generator), "delta_softplus": True}


@pytest.mark.parametrize("path", registration(NAME).targets)
@pytest.mark.parametrize(
    ("given", "options"),
    [
        pytest.param(inputs(2, 7), {}, id="plain"),
        pytest.param(inputs(2, 7), {**extras(), "return_last_state": True}, id="as the model calls it"),
        pytest.param(inputs(2, 7), {**extras(), "z": torch.randn(2, 6, 7)}, id="gate"),
        pytest.param(inputs(2, 1), {"return_last_state": True}, id="one step"),
        pytest.param(inputs(0, 3), {"return_last_state": True}, id="empty batch"),
        pytest.param(inputs(2, 7, torch.float16), {**extras(), "return_last_state": True}, id="half"),
        pytest.param(inputs(2, 7, torch.float64), {"return_last_state": True}, id="double"),
        pytest.param(inputs(1, 300), extras(), id="long"),
    ],
)
def test_equals_the_loop(path: str, given: dict[str, Any], options: dict[str, Any]) -> None:
    module, _, function = path.rpartition(".")
    owner = importlib.import_module(module)
    expected = getattr(owner, function)(**given, **options)
    with apply_patches("dynamo"):
        actual = getattr(owner, function)(**given, **options)
    half = given["dt"].dtype == torch.float16
    torch.testing.assert_close(actual, expected, atol=2e-2 if half else 1e-5, rtol=2e-3 if half else 1e-5)


def test_originals_come_back() -> None:
    assert_restores(NAME)


class Scan(nn.Module):
    def forward(self, **given: torch.Tensor) -> Any:
        return modeling_mamba.mamba_selective_scan(**given, return_last_state=True)


def test_effect() -> None:
    sets = [inputs(2, 7), inputs(3, 12), inputs(1, 40)]
    exported = export_onnx(Scan(), *sets[:2])
    assert_matches(exported, Scan(), sets)
    assert NAME in fired(exported)
    assert sum(node.op_type == "Scan" for node in exported.program.graph) == 1


def test_canary(monkeypatch: pytest.MonkeyPatch) -> None:
    leave_out(monkeypatch, NAME)
    with pytest.raises(ExportError):  # the length is frozen
        export_onnx(Scan(), inputs(2, 7), inputs(3, 12))


@pytest.mark.e2e
def test_mamba() -> None:
    from exporters.zoo.build import build

    sample = build("MambaForCausalLM")
    exported = export_onnx(sample.model, sample.inputs, *sample.others.values())
    assert_matches(exported, sample.model, [sample.inputs, *sample.others.values()])
    assert NAME in fired(exported)
