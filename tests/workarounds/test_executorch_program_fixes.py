"""_fix_constant_leaves and _fix_mutated_inputs: a `.pte` takes and returns the tensors of the signature, nothing else."""

from typing import Any

import pytest
import torch
from executorch_helpers import export_executorch, some
from torch import nn
from workaround_helpers import assert_matches, fired, leave_out

from exporters.program_leaves import without_constant_leaves, without_input_mutations

CONSTANTS, MUTATIONS = "executorch:_fix_constant_leaves", "executorch:_fix_mutated_inputs"


class Gaps(nn.Module):
    """Returns constants between tensors: in a tuple, and a number."""

    def forward(self, x: torch.Tensor) -> Any:
        return x + 1, (None, x * 2, 3), None


class TakesConstants(nn.Module):
    """A list with a number in it, which is a leaf of the inputs."""

    def forward(self, x: torch.Tensor, state: list[Any]) -> Any:
        return x * state[0] + state[1]


class Accumulates(nn.Module):
    """Changes a state in place and returns it, as a recurrent cache does."""

    def forward(self, x: torch.Tensor, state: torch.Tensor, other: torch.Tensor) -> Any:
        state.add_(x)
        other.mul_(2)
        return (x + other).sum(0), state


class NothingSpecial(nn.Module):
    def forward(self, x: torch.Tensor) -> Any:
        return x + 1, x


# ── Constants ─────────────────────────────────────────────────────────────────


def test_constant_outputs() -> None:
    sets = [{"x": some(2, 3)}, {"x": some(4, 3)}]
    exported = export_executorch(Gaps(), *sets)
    for given in sets:
        actual, (none, doubled, three), last = exported(**given)
        assert (none, three, last) == (None, 3, None)
        torch.testing.assert_close((actual, doubled), (given["x"] + 1, given["x"] * 2))
    assert CONSTANTS in fired(exported)
    assert len(exported.program.executorch_program.execution_plan[0].outputs) == 2


def test_constant_inputs() -> None:
    given = {"x": some(2, 3), "state": [3, some(2, 3)]}
    exported = export_executorch(TakesConstants(), given)
    torch.testing.assert_close(exported(**given), given["x"] * 3 + given["state"][1])
    assert len(exported.program.executorch_program.execution_plan[0].inputs) == 2


def test_canary_of_constants(monkeypatch: pytest.MonkeyPatch) -> None:
    leave_out(monkeypatch, CONSTANTS)
    exported = export_executorch(Gaps(), {"x": some(2, 3)})
    assert len(exported.program.executorch_program.execution_plan[0].outputs) == 5


# ── Mutations ─────────────────────────────────────────────────────────────────


def state_inputs(batch: int) -> dict[str, torch.Tensor]:
    return {"x": some(batch, 3), "state": some(batch, 3) + 1, "other": some(batch, 3) - 1}


def test_mutated_inputs() -> None:
    sets = [state_inputs(2), state_inputs(4)]
    exported = export_executorch(Accumulates(), *sets)
    assert_matches(exported, Accumulates(), sets)
    assert MUTATIONS in fired(exported)


def test_canary_of_mutations(monkeypatch: pytest.MonkeyPatch) -> None:
    leave_out(monkeypatch, MUTATIONS)
    exported = export_executorch(Accumulates(), state_inputs(2))
    assert len(exported.program.executorch_program.execution_plan[0].outputs) == 4
    with pytest.raises((AssertionError, RuntimeError)):
        assert_matches(exported, Accumulates(), [state_inputs(2)])


@pytest.mark.parametrize("dtype", [torch.float16, torch.int64, torch.bool])
def test_dtypes_of_mutated_inputs(dtype: torch.dtype) -> None:
    class Fills(nn.Module):
        def forward(self, x: torch.Tensor, state: torch.Tensor) -> Any:
            state.copy_(x)
            return state.clone(), x

    given = {"x": (some(2, 3) * 5).to(dtype), "state": torch.zeros(2, 3, dtype=dtype)}
    assert_matches(export_executorch(Fills(), given), Fills(), [given])


# ── Programs with nothing to mend ─────────────────────────────────────────────


def test_other_programs_are_left_alone() -> None:
    program = torch.export.export(NothingSpecial(), (some(2, 3),)).run_decompositions({})
    assert without_constant_leaves(program) is None
    assert without_input_mutations(program) is None


def test_the_program_before_is_not_changed() -> None:
    given = state_inputs(2)
    program = torch.export.export(Accumulates(), (), given).run_decompositions({})
    fixed = without_input_mutations(program)
    assert fixed is not None
    assert len(program.graph_signature.output_specs) == 4
    assert len(fixed.graph_signature.output_specs) == 2
