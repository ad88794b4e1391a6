"""_aten_cummax and _aten_cummin: extremes of prefixes, and the last place of each."""

import pytest
import torch
from torch import nn
from workaround_helpers import assert_matches, export_onnx, fired, leave_out

from exporters.errors import ExportError


class Cumulative(nn.Module):
    def __init__(self, kind: str, dim: int = 1) -> None:
        super().__init__()
        self.function, self.dim = getattr(torch, kind), dim

    def forward(self, values: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        extreme, place = self.function(values, dim=self.dim)
        return extreme, place


def tied(*shape: int, dtype: torch.dtype = torch.int64) -> dict[str, torch.Tensor]:
    return {"values": torch.randint(-3, 4, shape, generator=torch.Generator().manual_seed(7)).to(dtype)}


KINDS = pytest.mark.parametrize("kind", ["cummax", "cummin"])


@KINDS
@pytest.mark.parametrize("dtype", [torch.int64, torch.int32])
@pytest.mark.parametrize("dim", [0, 1, -1])
def test_equals_torch(kind: str, dtype: torch.dtype, dim: int) -> None:
    sets = [tied(3, 9, 4, dtype=dtype), tied(2, 5, 7, dtype=dtype)]
    module = Cumulative(kind, dim)
    exported = export_onnx(module, *sets)
    assert_matches(exported, module, [*sets, tied(1, 1, 1, dtype=dtype)])
    assert f"onnx:_aten_{kind}" in fired(exported)


@KINDS
def test_extremes_of_the_type(kind: str) -> None:
    limits = torch.iinfo(torch.int64)
    given = {"values": torch.tensor([[0, limits.min, limits.max, limits.min, limits.max, 1]])}
    assert_matches(export_onnx(Cumulative(kind), given), Cumulative(kind), [given])


@KINDS
def test_floats_are_refused(kind: str) -> None:
    with pytest.raises(ExportError):
        export_onnx(Cumulative(kind), {"values": torch.rand(2, 3)})


@KINDS
def test_canary(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    leave_out(monkeypatch, f"onnx:_aten_{kind}")
    with pytest.raises(ExportError, match=kind):
        export_onnx(Cumulative(kind), tied(3, 9))
