"""_patch_lgamma on ONNX; its semantics are those of test_executorch_lgamma.py, which holds the one function that both use."""

import pytest
import torch
from torch import nn
from workaround_helpers import assert_matches, assert_restores, export_onnx, fired, leave_out

from exporters.errors import ExportError
from exporters.utils import apply_patches

NAME = "onnx:_patch_lgamma"


class LogGamma(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.lgamma(x) + x.lgamma()


def test_canary(monkeypatch: pytest.MonkeyPatch) -> None:
    leave_out(monkeypatch, NAME)
    with pytest.raises(ExportError, match="lgamma"):
        export_onnx(LogGamma(), {"x": torch.rand(4)})


def test_effect() -> None:
    sets = [{"x": torch.linspace(0.1, 40, 8)}, {"x": torch.linspace(-4.3, 6, 11)}, {"x": torch.tensor([1e5, 3e20])}]
    exported = export_onnx(LogGamma(), *sets)
    assert_matches(exported, LogGamma(), sets)
    assert NAME in fired(exported)


@pytest.mark.parametrize("values", [torch.tensor([2.5]), torch.tensor(3), torch.empty(0), torch.tensor([-1.5, 0.0, float("nan")])])
def test_semantics(values: torch.Tensor) -> None:
    expected = torch.lgamma(values)
    with apply_patches("onnx"):
        torch.testing.assert_close(torch.lgamma(values), expected, atol=1e-5, rtol=1e-5, equal_nan=True)


def test_originals_come_back() -> None:
    assert_restores(NAME, "onnx")
