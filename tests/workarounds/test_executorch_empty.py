"""_fix_empty_of_size: `empty` of a size that varies keeps varying."""

import pytest
import torch
from executorch_helpers import export_executorch, some
from torch import nn
from workaround_helpers import assert_matches, fired, leave_out

from exporters.utils import apply_fx_node_fixes

NAME = "executorch:_fix_empty_of_size"


class Halves(nn.Module):
    """A tensor made without values, whose halves are then set."""

    def __init__(self, dtype: torch.dtype | None = None) -> None:
        super().__init__()
        self.dtype = dtype

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        made = torch.empty(x.shape[0], 2 * x.shape[1], dtype=self.dtype or x.dtype)
        made[:, : x.shape[1]] = x
        made[:, x.shape[1] :] = -x
        return made


SETS = [{"x": some(2, 4)}, {"x": some(3, 4)}, {"x": some(1, 4)}]


@pytest.mark.parametrize("backend", ["portable", "xnnpack"])
def test_effect(backend: str) -> None:
    exported = export_executorch(Halves(), *SETS, backend=backend)
    assert_matches(exported, Halves(), SETS)
    assert NAME in fired(exported)


def test_a_size_that_is_a_number_is_left_alone() -> None:
    exported = export_executorch(Halves(), SETS[0])
    assert_matches(exported, Halves(), SETS[:1])
    assert NAME not in fired(exported)


@pytest.mark.parametrize("dtype", [None, torch.float16, torch.float64, torch.int32, torch.bool])
@pytest.mark.parametrize("x", [some(2, 4), some(3, 4) * 100, -some(2, 1).abs(), some(0, 4)], ids=["some", "large", "negative", "empty"])
def test_changes_no_value(x: torch.Tensor, dtype: torch.dtype | None) -> None:
    module = Halves(dtype)
    batch = torch.export.Dim("batch", min=0, max=8)
    program = torch.export.export(module, (some(2, x.shape[1]),), dynamic_shapes=({0: batch},)).run_decompositions()
    expected = module(x)
    apply_fx_node_fixes("executorch", program.graph_module)
    assert not [node for node in program.graph.nodes if str(node.target) == "aten.empty.memory_format"]
    torch.testing.assert_close(program.module()(x), expected, atol=0, rtol=0)


def test_canary(monkeypatch: pytest.MonkeyPatch) -> None:
    """The batch is the sample's, and nothing has said so."""
    leave_out(monkeypatch, NAME)
    exported = export_executorch(Halves(), *SETS, backend="portable")
    exported(**SETS[0])
    with pytest.raises(RuntimeError, match="0x1"):
        exported(**SETS[1])
