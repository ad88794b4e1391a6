"""_aten_grouped_mm: one matrix multiplication a group of rows."""

from typing import Any

import pytest
import torch
from torch import nn
from transformers.integrations import moe  # noqa: F401  (defines the custom operator)
from workaround_helpers import assert_matches, export_onnx, fired, leave_out

from exporters.errors import ExportError

NAME = "onnx:_aten_grouped_mm"


class Grouped(nn.Module):
    def forward(self, rows: torch.Tensor, matrices: torch.Tensor, offs: torch.Tensor) -> torch.Tensor:
        return torch.ops.transformers.grouped_mm_fallback(rows, matrices, offs)


class TorchGrouped(nn.Module):
    """torch's own operator takes bfloat16 only."""

    def forward(self, rows: torch.Tensor, matrices: torch.Tensor, offs: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.grouped_mm(rows.bfloat16(), matrices.bfloat16(), offs=offs).float()


def inputs(offsets: list[int], rows: int, dtype: torch.dtype = torch.int32) -> dict[str, Any]:
    generator = torch.Generator().manual_seed(rows)
    return {
        "rows": torch.randn(rows, 8, generator=generator),
        "matrices": torch.randn(len(offsets), 8, 16, generator=generator),
        "offs": torch.tensor(offsets, dtype=dtype),
    }


@pytest.mark.parametrize(
    "given",
    [
        pytest.param(inputs([2, 5, 9], 9), id="all rows"),
        pytest.param(inputs([0, 4, 4, 7], 7), id="empty groups"),
        pytest.param(inputs([2, 5], 9), id="rows behind the last offset"),
        pytest.param(inputs([0, 0], 3), id="only empty groups"),
        pytest.param(inputs([3], 3, torch.int64), id="one group, 64 bit offsets"),
        pytest.param(inputs([0, 0], 0), id="no rows"),
    ],
)
def test_equals_the_operator(given: dict[str, Any]) -> None:
    assert_matches(export_onnx(Grouped(), given), Grouped(), [given])


def test_offsets_and_rows_may_change() -> None:
    first, second = inputs([2, 5, 9], 9), inputs([7, 7, 13], 13)
    exported = export_onnx(Grouped(), first, second)
    assert_matches(exported, Grouped(), [first, second, inputs([0, 0, 1], 1)])
    assert NAME in fired(exported)


def test_torchs_own_operator() -> None:
    first, second = inputs([2, 5, 9], 9), inputs([7, 7, 13], 13)
    exported = export_onnx(TorchGrouped(), first, second)
    assert_matches(exported, TorchGrouped(), [first, second])


def test_no_row_is_multiplied_twice() -> None:
    exported = export_onnx(Grouped(), inputs([2, 5, 9], 9))
    assert sum(node.op_type == "MatMul" for node in exported.program.graph) == 3


@pytest.mark.parametrize("module", [Grouped(), TorchGrouped()], ids=["fallback", "torch"])
def test_canary(module: nn.Module, monkeypatch: pytest.MonkeyPatch) -> None:
    leave_out(monkeypatch, NAME)
    with pytest.raises(ExportError, match=r"grouped_mm|offsets"):
        export_onnx(module, inputs([2, 5, 9], 9))


@pytest.mark.e2e
def test_mixtral() -> None:
    from exporters.zoo.build import build

    sample = build("MixtralForCausalLM")
    exported = export_onnx(sample.model, sample.inputs, *sample.others.values())
    assert_matches(exported, sample.model, [sample.inputs, *sample.others.values()])
    assert NAME in fired(exported)
