"""_fix_number_outputs: a model may return numbers between its tensors."""

from typing import Any

import pytest
import torch
from torch import nn
from workaround_helpers import fired, leave_out

from exporters import OnnxConfig, OnnxExporter
from exporters.errors import ExportError
from exporters.program_leaves import without_number_outputs

NAME = "onnx:_fix_number_outputs"


class Gaps(nn.Module):
    """Returns a tensor, nothing, a doubled one, and numbers."""

    def forward(self, x: torch.Tensor) -> Any:
        return x + 1, (None, x * 2, 3), None, True, 0.5


class TensorsOnly(nn.Module):
    def forward(self, x: torch.Tensor) -> Any:
        return x + 1, None


def export(model: nn.Module, x: torch.Tensor) -> Any:
    return OnnxExporter().export(model, {"x": x}, config=OnnxConfig(dynamic=True))


def test_canary_numbers_cannot_be_translated(monkeypatch: pytest.MonkeyPatch) -> None:
    leave_out(monkeypatch, NAME)
    with pytest.raises(ExportError, match="has no attribute 'name'"):
        export(Gaps(), torch.rand(2, 3))


@pytest.mark.parametrize(
    "given",
    [
        torch.randn(4, 3),
        torch.randn(0, 3),
        torch.tensor([[float("nan"), float("-inf"), -1e30]] * 2),
        torch.randn(5, 3).half(),
        torch.tensor([[-3, 0, 2**40]] * 2),
    ],
    ids=["random", "empty", "out of range", "half", "integers"],
)
def test_semantics_every_output_is_the_models(given: torch.Tensor) -> None:
    exported = export(Gaps(), torch.ones(2, 3, dtype=given.dtype))
    actual, (none, doubled, three), last, true, half = exported(x=given)
    assert (none, three, last, true, half) == (None, 3, None, True, 0.5)
    torch.testing.assert_close((actual, doubled), (given + 1, given * 2), equal_nan=True)


def test_semantics_a_scalar() -> None:
    exported = OnnxExporter().export(Gaps(), {"x": torch.tensor(2.0)}, config=OnnxConfig())
    actual, (_, doubled, three), *_ = exported(x=torch.tensor(-4.0))
    assert (actual, doubled, three) == (torch.tensor(-3.0), torch.tensor(-8.0), 3)


def test_effect_it_is_told_and_the_graph_returns_tensors_only() -> None:
    exported = export(Gaps(), torch.rand(2, 3))
    assert NAME in fired(exported)
    assert len(exported.stages[-1].model_ir.graph.outputs) == 2


def test_a_program_without_numbers_is_left_alone() -> None:
    program = torch.export.export(TensorsOnly(), (torch.rand(2, 3),))
    assert without_number_outputs(program) is None


def test_restore_the_traced_program_keeps_its_outputs() -> None:
    """A fix works on a graph of its own."""
    exported = export(Gaps(), torch.rand(2, 3))
    assert len(exported.stages[0].program.graph_signature.output_specs) == 7
