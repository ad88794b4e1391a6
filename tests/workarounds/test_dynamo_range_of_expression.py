"""_fix_range_of_expression: a size derived from another has no range of its own; the symbol keeps its."""

from pathlib import Path

import pytest
import sympy
import torch
from torch import nn
from torch.export import Dim
from workaround_helpers import leave_out

from exporters import DynamoConfig, DynamoExporter, artifacts
from exporters.errors import ExportError
from exporters.exporter_dynamo import _fix_range_of_expression
from exporters.stages import ProgramStage

NAME = "dynamo:_fix_range_of_expression"


class OneLonger(nn.Module):
    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return x * mask[:, 1:] + torch.arange(x.shape[1])


def traced() -> ProgramStage:
    length = Dim("length", min=2, max=64)
    config = DynamoConfig(dynamic=True, dynamic_shapes={"x": {1: length}, "mask": {1: length + 1}})
    return DynamoExporter().trace(OneLonger(), {"x": torch.randn(2, 5), "mask": torch.ones(2, 6)}, config=config)


def decomposed_elsewhere(stage: ProgramStage, folder: Path) -> ProgramStage:
    artifacts.save_program(stage, folder, aliases={})
    return DynamoExporter().decompose(artifacts.load_program(folder))


def test_canary(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    leave_out(monkeypatch, NAME)
    with pytest.raises((ExportError, AssertionError, TypeError), match="Symbol"):
        decomposed_elsewhere(traced(), tmp_path)


def test_effect_and_semantics(tmp_path: Path) -> None:
    stage = traced()
    assert stage.seen.changed[NAME] == 1
    module = decomposed_elsewhere(stage, tmp_path).program.module()
    for batch, length in ((2, 5), (2, 9), (2, 2)):
        x, mask = torch.randn(batch, length), torch.rand(batch, length + 1)
        assert torch.equal(module(x=x, mask=mask), OneLonger()(x, mask))


def test_ranges_of_symbols_stay() -> None:
    ranges = traced().program.range_constraints
    assert ranges
    assert all(isinstance(key, sympy.Symbol) for key in ranges)
    assert any(int(value.upper) == 64 for value in ranges.values())


def test_a_program_without_derived_sizes_is_left_alone() -> None:
    program = DynamoExporter().trace(nn.Linear(4, 4), {"input": torch.randn(2, 4)}, config=DynamoConfig(dynamic=True)).program
    assert _fix_range_of_expression(program) is None
