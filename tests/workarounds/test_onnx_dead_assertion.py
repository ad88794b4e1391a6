"""_fix_dead_assertion: what only fed an assertion goes with it; what is used stays."""

import operator

import pytest
import torch
from torch import nn
from transformers.utils import torch_compilable_check
from workaround_helpers import assert_matches, export_onnx, fired, leave_out

from exporters.errors import ExportError
from exporters.exporter_onnx import _fix_dead_assertion

NAME = "onnx:_fix_dead_assertion"


class Checked(nn.Module):
    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        torch_compilable_check(mask.sum() * x.shape[-1] == x.numel(), "as many places as rows")
        return x * 2


def inputs(rows: int) -> dict[str, torch.Tensor]:
    return {"x": torch.randn(rows, 3), "mask": torch.ones(rows, dtype=torch.long)}


def test_effect() -> None:
    sets = [inputs(4), inputs(7)]
    exported = export_onnx(Checked(), *sets)
    assert_matches(exported, Checked(), sets)
    assert NAME in fired(exported)
    assert [node.op_type for node in exported.program.graph] == ["Mul"]


def test_canary(monkeypatch: pytest.MonkeyPatch) -> None:
    leave_out(monkeypatch, NAME)
    with pytest.raises(ExportError, match="_is_all_true"):
        export_onnx(Checked(), inputs(4), inputs(7))


def test_a_condition_that_is_used_stays() -> None:
    graph = torch.fx.Graph()
    x = graph.placeholder("x")
    condition = graph.call_function(torch.ops.aten._is_all_true.default, (x,))
    number = graph.call_function(torch.ops.aten._local_scalar_dense.default, (condition,))
    graph.output(number)
    module = torch.fx.GraphModule(nn.Module(), graph)
    assert not _fix_dead_assertion(module, condition)
    assert not _fix_dead_assertion(module, number)
    assert len(graph.nodes) == 4


def test_an_assertion_that_still_stands_keeps_its_condition() -> None:
    graph = torch.fx.Graph()
    x = graph.placeholder("x")
    condition = graph.call_function(torch.ops.aten._is_all_true.default, (x,))
    number = graph.call_function(torch.ops.aten._local_scalar_dense.default, (condition,))
    graph.call_function(torch.ops.aten._assert_scalar.default, (number, "message"))
    graph.output(x)
    module = torch.fx.GraphModule(nn.Module(), graph)
    assert not _fix_dead_assertion(module, condition)


def dead_count() -> tuple[torch.fx.GraphModule, torch.fx.Node]:
    graph = torch.fx.Graph()
    x = graph.placeholder("x")
    number = graph.call_function(torch.ops.aten.sym_numel.default, (x,))
    graph.call_function(operator.eq, (number, 56))
    graph.output(x)
    return torch.fx.GraphModule(nn.Module(), graph), number


def test_a_number_of_elements_that_was_only_compared_goes() -> None:
    module, number = dead_count()
    assert _fix_dead_assertion(module, number)
    assert [node.op for node in module.graph.nodes] == ["placeholder", "output"]


def test_a_number_of_elements_that_is_used_stays() -> None:
    module, number = dead_count()
    output = next(node for node in module.graph.nodes if node.op == "output")
    output.args = ((output.args[0], number),)
    assert not _fix_dead_assertion(module, number)
    assert len(module.graph.nodes) == 4
