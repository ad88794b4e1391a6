"""_fix_mod_of_negative: the remainder of a negative size has the sign of the divisor."""

import operator

import pytest
import torch
from executorch_helpers import export_executorch, some
from torch import nn
from torch.nn import functional as F
from workaround_helpers import assert_matches, fired, leave_out

from exporters.utils import apply_fx_node_fixes

NAME = "executorch:_fix_mod_of_negative"


class Padded(nn.Module):
    """Padded to the next multiple of `chunk`."""

    def __init__(self, chunk: int) -> None:
        super().__init__()
        self.chunk = chunk

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.pad(x, (0, -x.shape[1] % self.chunk)).cumsum(-1)


class Counted(nn.Module):
    """What is over of whole chunks, which is never negative."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + x.shape[1] % 4


SETS = [{"x": some(2, 6)}, {"x": some(3, 8)}, {"x": some(1, 17)}]


@pytest.mark.parametrize("backend", ["portable", "xnnpack"])
@pytest.mark.parametrize("chunk", [4, 40])
def test_effect(chunk: int, backend: str) -> None:
    exported = export_executorch(Padded(chunk), *SETS, backend=backend)
    assert_matches(exported, Padded(chunk), SETS)
    assert NAME in fired(exported)


def test_what_is_never_negative_is_left_alone() -> None:
    exported = export_executorch(Counted(), *SETS, backend="portable")
    assert_matches(exported, Counted(), SETS)
    assert NAME not in fired(exported)


@pytest.mark.parametrize("length", [2, 3, 4, 39, 40, 41])
@pytest.mark.parametrize("chunk", [3, 4, 40])
def test_changes_no_value(chunk: int, length: int) -> None:
    module = Padded(chunk)
    program = torch.export.export(module, (some(2, 6),), dynamic_shapes=({1: torch.export.Dim("length", min=2, max=64)},))
    apply_fx_node_fixes("executorch", program.graph_module)
    assert sum(node.target is operator.mod for node in program.graph.nodes) == 2
    apply_fx_node_fixes("executorch", program.graph_module)
    assert sum(node.target is operator.mod for node in program.graph.nodes) == 2  # once is enough
    x = some(2, length)
    torch.testing.assert_close(program.module()(x), module(x), atol=0, rtol=0)


class Shifted(Padded):
    """Where the program itself adds the divisor: to a remainder, or before one."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        more, less = -x.shape[1] % self.chunk + self.chunk, (3 - 2 * x.shape[1] + self.chunk) % self.chunk
        return F.pad(x, (less, more)).cumsum(-1)


def test_a_divisor_that_the_program_adds_is_no_sign_of_the_repair() -> None:
    exported = export_executorch(Shifted(40), *SETS, backend="portable")
    assert_matches(exported, Shifted(40), SETS)


@pytest.mark.parametrize("dividend", [-41, -40, -1, 0, 1, 39, 40, 41])
@pytest.mark.parametrize("divisor", [-40, -3, 1, 3, 40])
def test_c_gives_what_python_does(dividend: int, divisor: int) -> None:
    def c(a: int, b: int) -> int:
        return int(torch.fmod(torch.tensor(a), b))

    assert c(c(dividend, divisor) + divisor, divisor) == dividend % divisor


def test_canary(monkeypatch: pytest.MonkeyPatch) -> None:
    leave_out(monkeypatch, NAME)
    exported = export_executorch(Padded(40), *SETS, backend="portable")
    with pytest.raises(RuntimeError, match="0x1"):
        exported(**SETS[0])
