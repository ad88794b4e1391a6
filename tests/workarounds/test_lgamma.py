"""_patch_lgamma: the logarithm of the gamma function without a kernel or a translation for it."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from executorch_helpers import export_executorch
from torch import nn
from workaround_helpers import assert_matches, assert_restores, export_onnx, fired, leave_out

from exporters.errors import ExportError
from exporters.utils import apply_patches

EXPORTS: dict[str, Callable[..., Any]] = {"executorch": export_executorch, "onnx": export_onnx}
each_scope = pytest.mark.parametrize("scope", EXPORTS)


class LogGamma(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.lgamma(x) + x.lgamma()


@each_scope
def test_canary(monkeypatch: pytest.MonkeyPatch, scope: str) -> None:
    leave_out(monkeypatch, f"{scope}:_patch_lgamma")
    with pytest.raises(ExportError, match="lgamma"):
        EXPORTS[scope](LogGamma(), {"x": torch.rand(4)})


@each_scope
def test_effect(scope: str) -> None:
    sets = [{"x": torch.linspace(0.1, 40, 8)}, {"x": torch.linspace(-4.3, 6, 11)}, {"x": torch.tensor([1e5, 3e20])}]
    exported = EXPORTS[scope](LogGamma(), *sets)
    assert_matches(exported, LogGamma(), sets)
    assert f"{scope}:_patch_lgamma" in fired(exported)


VALUES = {
    "usual": torch.linspace(0.01, 60, 500),
    "negative": torch.linspace(-9.97, 0.6, 500),
    "poles": torch.arange(-5.0, 4.0),
    "large": torch.tensor([1e3, 1e6, 1e20, 3e36, 1e38]),
    "small": torch.tensor([1e-3, 1e-10, 1e-30, -1e-3, -1e-10]),
    "not finite": torch.tensor([float("inf"), float("-inf"), float("nan")]),
    "integers": torch.arange(-3, 9),
    "truth values": torch.tensor([True, False]),
    "a number": torch.tensor(2.5),
    "nothing": torch.empty(0, 3),
}


@pytest.mark.parametrize("dtype", [None, torch.float64, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("kind", VALUES)
def test_semantics(kind: str, dtype: torch.dtype | None) -> None:
    values = VALUES[kind].to(dtype) if dtype else VALUES[kind]
    expected = torch.lgamma(values)
    with apply_patches("executorch"):
        actual = torch.lgamma(values)
    tolerance = {torch.float16: 1e-3, torch.bfloat16: 1e-2}.get(expected.dtype, 1e-5)
    torch.testing.assert_close(actual, expected, atol=tolerance, rtol=tolerance, equal_nan=True)


@each_scope
def test_originals_come_back(scope: str) -> None:
    assert_restores(f"{scope}:_patch_lgamma", scope)
