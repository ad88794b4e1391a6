"""_patch_conj: a conjugate is computed, not marked."""

import pytest
import torch
from executorch_helpers import export_executorch, some
from torch import nn
from workaround_helpers import assert_matches, assert_restores, leave_out

from exporters.errors import ExportError
from exporters.utils import apply_patches

NAME = "executorch:_patch_conj"


class Correlation(nn.Module):
    """Autoformer's: the correlation of two series, by way of their frequencies."""

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        frequencies = torch.fft.rfft(x, n=8, dim=1) * torch.conj(torch.fft.rfft(y, n=8, dim=1))
        return torch.fft.irfft(frequencies, n=8, dim=1)


def test_canary(monkeypatch: pytest.MonkeyPatch) -> None:
    leave_out(monkeypatch, NAME)
    with pytest.raises(ExportError, match="_conj"):
        export_executorch(Correlation(), {"x": some(2, 8), "y": some(2, 8) + 1})


def test_effect() -> None:
    inputs = {"x": some(2, 8), "y": some(2, 8) + 1}
    assert_matches(export_executorch(Correlation(), inputs), Correlation(), [inputs, {"x": -inputs["y"], "y": inputs["x"]}])


@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128, torch.float32, torch.float16, torch.int64, torch.bool])
@pytest.mark.parametrize("shape", [(3, 4), (0,), ()])
def test_semantics(dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    values = (torch.randn(shape, dtype=torch.complex64) * 3).to(dtype) if dtype.is_complex else (torch.randn(shape) * 3).to(dtype)
    expected = torch.conj(values).resolve_conj()
    with apply_patches("executorch"):
        assert torch.equal(torch.conj(values), expected)
        assert torch.equal(values.conj(), expected)
        # of what is a conjugate already
        assert torch.equal(torch.conj(values.conj()), values)


def test_originals_come_back() -> None:
    assert_restores(NAME, "executorch")
