"""_aten_scatter_reduce: `mean` is a mean."""

from typing import Any

import pytest
import torch
from torch import nn
from workaround_helpers import assert_matches, export_onnx, fired, leave_out

NAME = "onnx:_aten_scatter_reduce"


class Reduce(nn.Module):
    def __init__(self, reduce: str, include_self: bool, dim: int = 1) -> None:
        super().__init__()
        self.reduce, self.include_self, self.dim = reduce, include_self, dim

    def forward(self, base: torch.Tensor, index: torch.Tensor, source: torch.Tensor) -> torch.Tensor:
        return base.scatter_reduce(self.dim, index, source, reduce=self.reduce, include_self=self.include_self)


def inputs(rows: int, columns: int, dtype: torch.dtype = torch.float32, wider: int = 0) -> dict[str, Any]:
    generator = torch.Generator().manual_seed(columns)

    def some(width: int) -> torch.Tensor:
        return (torch.randn(rows, width, generator=generator) * 9).to(dtype)

    index = torch.randint(0, 3, (rows, columns), generator=generator)
    return {"base": some(4), "index": index, "source": some(columns + wider)}


SCALAR = {"base": torch.tensor(3.0), "index": torch.tensor(0), "source": torch.tensor(5.0)}


@pytest.mark.parametrize("include_self", [True, False], ids=["with self", "without self"])
@pytest.mark.parametrize(
    "given",
    [
        pytest.param(inputs(2, 6), id="float"),
        pytest.param(inputs(2, 6, torch.float64), id="double"),
        pytest.param(inputs(2, 6, torch.int64), id="negative integers round down"),
        pytest.param(inputs(2, 6, torch.int32), id="int32"),
        pytest.param(inputs(2, 6, torch.float16), id="half"),
        pytest.param(inputs(2, 0), id="empty"),
        pytest.param(inputs(2, 3, wider=2), id="a source wider than the index"),
    ],
)
def test_mean_equals_torch(given: dict[str, Any], include_self: bool) -> None:
    module = Reduce("mean", include_self)
    assert_matches(export_onnx(module, given), module, [given])


@pytest.mark.parametrize("dim", [0, -1])
def test_other_axes(dim: int) -> None:
    module, given = Reduce("mean", False, dim), inputs(3, 4)
    given["index"] %= 3
    assert_matches(export_onnx(module, given), module, [given])


def test_scalar() -> None:
    assert_matches(export_onnx(Reduce("mean", True, 0), SCALAR), Reduce("mean", True, 0), [SCALAR])


@pytest.mark.parametrize("reduce", ["sum", "prod", "amax", "amin"])
def test_the_others_are_torchlibs(reduce: str) -> None:
    module, given = Reduce(reduce, False), inputs(2, 6)
    assert_matches(export_onnx(module, given), module, [given])


def test_other_sizes() -> None:
    sets = [inputs(2, 6), inputs(3, 9)]
    exported = export_onnx(Reduce("mean", False), *sets)
    assert_matches(exported, Reduce("mean", False), sets)
    assert NAME in fired(exported)


def test_canary(monkeypatch: pytest.MonkeyPatch) -> None:
    leave_out(monkeypatch, NAME)
    module, given = Reduce("mean", False), inputs(2, 6)
    with pytest.raises(AssertionError):
        assert_matches(export_onnx(module, given), module, [given])
