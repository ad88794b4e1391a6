"""_fix_symbolic_split: pieces of a dynamic size, cut with slices."""

import pytest
import torch
from torch import nn
from workaround_helpers import assert_matches, export_onnx, fired, leave_out

from exporters.errors import ExportError

NAME = "onnx:_fix_symbolic_split"


class Halves(nn.Module):
    def __init__(self, pieces: int = 2, dim: int = 1, keep: tuple[int, ...] = (0, 1)) -> None:
        super().__init__()
        self.pieces, self.dim, self.keep = pieces, dim, keep

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        pieces = x.chunk(self.pieces, dim=self.dim)
        return tuple(pieces[index] * 2 for index in self.keep)


def inputs(rows: int, columns: int) -> dict[str, torch.Tensor]:
    return {"x": torch.randn(rows, columns, generator=torch.Generator().manual_seed(columns))}


@pytest.mark.parametrize(
    ("module", "sets"),
    [
        pytest.param(Halves(), [inputs(2, 6), inputs(3, 8)], id="even"),
        pytest.param(Halves(), [inputs(2, 6), inputs(3, 7)], id="the last one shorter"),
        pytest.param(Halves(3, -1, (0, 1, 2)), [inputs(2, 6), inputs(3, 8)], id="three, counted from behind"),
        pytest.param(Halves(3, 1, (2,)), [inputs(2, 6), inputs(3, 9)], id="only the last is used"),
        pytest.param(Halves(3, 1, (0,)), [inputs(2, 6), inputs(3, 9)], id="only the first is used"),
        pytest.param(Halves(2, 0), [inputs(4, 3), inputs(6, 5)], id="first axis"),
    ],
)
def test_equals_torch(module: nn.Module, sets: list[dict[str, torch.Tensor]]) -> None:
    exported = export_onnx(module, *sets)
    assert_matches(exported, module, sets)
    assert NAME in fired(exported)
    assert not any("Sequence" in node.op_type for node in exported.program.graph)


def test_a_size_that_is_a_number_is_left_alone() -> None:
    exported = export_onnx(Halves(), inputs(2, 6))
    assert_matches(exported, Halves(), [inputs(2, 6)])
    assert NAME not in fired(exported)


def test_canary(monkeypatch: pytest.MonkeyPatch) -> None:
    leave_out(monkeypatch, NAME)
    with pytest.raises(ExportError, match="ndim"):
        export_onnx(Halves(), inputs(2, 6), inputs(3, 8))
