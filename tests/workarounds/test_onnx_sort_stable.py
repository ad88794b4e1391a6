"""_aten_sort_stable: equals keep their order."""

import pytest
import torch
from torch import nn
from workaround_helpers import assert_matches, export_onnx, fired, leave_out

from exporters.errors import ExportError

NAME = "onnx:_aten_sort_stable"


class Sort(nn.Module):
    def __init__(self, dim: int = -1, descending: bool = False) -> None:
        super().__init__()
        self.dim, self.descending = dim, descending

    def forward(self, values: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        ordered, indices = torch.sort(values, dim=self.dim, descending=self.descending, stable=True)
        return ordered, indices


def tied(*shape: int, dtype: torch.dtype = torch.float32) -> dict[str, torch.Tensor]:
    return {"values": torch.randint(-2, 3, shape, generator=torch.Generator().manual_seed(7)).to(dtype)}


@pytest.mark.parametrize("descending", [False, True], ids=["up", "down"])
@pytest.mark.parametrize(
    "given",
    [
        pytest.param(tied(3, 40), id="float"),
        pytest.param(tied(300, dtype=torch.int64), id="int64"),
        pytest.param(tied(2, 30, dtype=torch.int32), id="int32"),
        pytest.param(tied(2, 30, dtype=torch.int16), id="int16"),
        pytest.param(tied(2, 30, dtype=torch.uint8), id="uint8"),
        pytest.param(tied(2, 30, dtype=torch.bool), id="bool"),
        pytest.param(tied(2, 30, dtype=torch.float16), id="half"),
        pytest.param(tied(2, 30, dtype=torch.float64), id="double"),
        pytest.param(tied(0), id="empty"),
        pytest.param(tied(), id="0-d"),
        pytest.param({"values": torch.tensor([1.0, float("inf"), -1.0, float("-inf"), 1.0])}, id="infinities"),
    ],
)
def test_equals_torch(given: dict[str, torch.Tensor], descending: bool) -> None:
    module = Sort(descending=descending)
    assert_matches(export_onnx(module, given), module, [given])


def test_first_axis() -> None:
    given = tied(30, 2)
    assert_matches(export_onnx(Sort(0), given), Sort(0), [given])


def test_other_sizes() -> None:
    sets = [tied(3, 40), tied(2, 7)]
    exported = export_onnx(Sort(), *sets)
    assert_matches(exported, Sort(), sets)
    assert NAME in fired(exported)


def test_canary(monkeypatch: pytest.MonkeyPatch) -> None:
    leave_out(monkeypatch, NAME)
    with pytest.raises(ExportError, match=r"aten\.sort"):
        export_onnx(Sort(), tied(3, 40))
