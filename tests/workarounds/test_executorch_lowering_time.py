"""_patch_xnnpack_passes and _patch_run_decompositions: less work for the same bytes."""

from typing import Any

import executorch.backends.xnnpack._passes as xnnpack_passes
import pytest
import torch
from executorch_helpers import export_executorch, lowered_bytes, some
from torch import nn
from workaround_helpers import assert_matches, assert_restores, leave_out

from exporters.executorch_decompose import default_table, is_decomposed
from exporters.executorch_passes import _TRIGGERS, needed

PASSES, DECOMPOSITIONS = "executorch.xnnpack:_patch_xnnpack_passes", "executorch:_patch_run_decompositions"
BOTH = pytest.mark.parametrize("name", [PASSES, DECOMPOSITIONS])


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.project = nn.Linear(8, 24)
        self.norm = nn.LayerNorm(8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = self.project(self.norm(x)).chunk(3, -1)
        weights = torch.softmax(torch.bmm(q, k.transpose(1, 2)) * 0.3, -1)
        return torch.bmm(weights, v) + x


class Images(nn.Module):
    """Convolutions of each kind, batch norm, pools, activations, PReLU, padding, concatenation, interpolation."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU())
        self.depthwise = nn.Conv2d(8, 8, 3, padding=1, groups=8)
        self.prelu = nn.PReLU(8)
        self.line = nn.Conv1d(8, 8, 3)
        self.head = nn.Linear(8, 4)

    def forward(self, x: torch.Tensor) -> Any:
        x = self.first(x)
        x = torch.cat([self.prelu(self.depthwise(x)), nn.functional.relu6(x)[:, :4]], 1)[:, :8]
        x = nn.functional.max_pool2d(nn.functional.pad(x, (1, 1, 1, 1)), 2, 2)
        up = nn.functional.interpolate(x, scale_factor=2, mode="bilinear", align_corners=False)
        line = self.line(x.flatten(2))
        return up, self.head(x.mean((-1, -2))), line, x.amax((-1, -2)), torch.nn.functional.avg_pool2d(x, 2, 2)


CASES = [
    pytest.param(Attention(), [some(2, 5, 8), some(3, 9, 8)], id="attention"),
    pytest.param(Attention(), [some(2, 5, 8)], id="static attention"),
    pytest.param(Images(), [some(2, 3, 16, 16), some(3, 3, 16, 16)], id="images"),
    pytest.param(Images(), [some(2, 3, 16, 16)], id="static images"),
]


@BOTH
@pytest.mark.parametrize(("module", "sets"), CASES)
def test_same_bytes(module: nn.Module, sets: list[torch.Tensor], name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    module.eval()
    given = [{"x": x} for x in sets]
    patched = lowered_bytes(module, *given)
    leave_out(monkeypatch, name)
    assert lowered_bytes(module, *given) == patched


@pytest.mark.parametrize(("module", "sets"), CASES)
def test_effect(module: nn.Module, sets: list[torch.Tensor]) -> None:
    module.eval()
    given = [{"x": x} for x in sets]
    assert_matches(export_executorch(module, *given), module, given)


def passes_run(module: nn.Module, given: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> int:
    """How many passes all delegates of an export run."""
    counts = []
    transform = xnnpack_passes.XNNPACKPassManager.transform

    def counting(self: Any) -> Any:
        counts.append(len(self.passes))
        return transform(self)

    with monkeypatch.context() as patched:
        patched.setattr(xnnpack_passes.XNNPACKPassManager, "transform", counting)
        export_executorch(module, given)
    return sum(counts)


def test_canary_of_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    given = {"x": some(2, 5, 8)}
    few = passes_run(Attention(), given, monkeypatch)
    leave_out(monkeypatch, PASSES)
    assert passes_run(Attention(), given, monkeypatch) > 2 * few


def decompositions_run(given: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> int:
    """How often an export of `Attention` retraces a program to decompose it."""
    from torch.export import exported_program

    retraced: list[int] = []
    retrace = exported_program._decompose_exported_program

    def counting(program: Any, **options: Any) -> Any:
        retraced.append(len(program.graph.nodes))
        return retrace(program, **options)

    with monkeypatch.context() as patched:
        patched.setattr(exported_program, "_decompose_exported_program", counting)
        export_executorch(Attention(), given, backend="portable")
    return len(retraced)


def test_canary_of_decompositions(monkeypatch: pytest.MonkeyPatch) -> None:
    given = {"x": some(2, 5, 8)}
    assert decompositions_run(given, monkeypatch) == 1
    leave_out(monkeypatch, DECOMPOSITIONS)
    assert decompositions_run(given, monkeypatch) > 2


@BOTH
def test_originals_come_back(name: str) -> None:
    assert_restores(name, "executorch.xnnpack")


# ── What decides ──────────────────────────────────────────────────────────────


def test_every_pass_is_known() -> None:
    """A pass that an upgrade brings is run, but nobody has thought about it yet."""
    program = torch.export.export(Attention(), (some(2, 5, 8),)).run_decompositions({})
    known = {each.__name__ for each in xnnpack_passes.XNNPACKPassManager(program).passes}
    assert set(_TRIGGERS) == known - {"XNNPACKRemoveCloneOpsTransform"}


def test_an_unknown_pass_is_run() -> None:
    class FromTomorrow:
        pass

    assert needed([FromTomorrow], torch.fx.symbolic_trace(Attention())) == [FromTomorrow]


def test_a_traced_program_is_not_decomposed_yet() -> None:
    assert not is_decomposed(torch.export.export(Attention(), (some(2, 5, 8),)), {})


def test_a_decomposed_program_is() -> None:
    program = torch.export.export(Attention(), (some(2, 5, 8),)).run_decompositions(default_table())
    assert is_decomposed(program, default_table())


def test_a_table_with_more_is_not_satisfied() -> None:
    table = default_table()
    linear = table.pop(torch.ops.aten.linear.default)
    program = torch.export.export(Attention(), (some(2, 5, 8),)).run_decompositions(table)
    assert is_decomposed(program, table)
    assert not is_decomposed(program, {**table, torch.ops.aten.linear.default: linear})
