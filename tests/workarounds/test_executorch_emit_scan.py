"""_patch_emit_scan: a loop whose carry and outputs have the sizes of this call, not the largest."""

from typing import Any

import pytest
import torch
from executorch_helpers import export_executorch, some
from torch import nn
from torch._higher_order_ops.scan import scan
from workaround_helpers import assert_matches, assert_restores, fired, leave_out

NAME = "executorch:_patch_emit_scan"


class RunningSum(nn.Module):
    """(length, batch, width): a sum that decays, and every step's square."""

    def forward(self, x: torch.Tensor) -> Any:
        def step(carry: torch.Tensor, at: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            carry = 0.5 * carry + at
            return carry, carry * carry

        return scan(step, torch.zeros_like(x[0]), x)


class TwoOfEach(nn.Module):
    """Two carries of different shapes, two inputs, two outputs, and something from outside the loop."""

    def forward(self, x: torch.Tensor, y: torch.Tensor, scale: torch.Tensor) -> Any:
        def step(carry: tuple[torch.Tensor, ...], at: tuple[torch.Tensor, ...]) -> Any:
            first, second = carry[0] + at[0] * scale, carry[1] + at[1].sum(-1)
            return (first, second), (first - 1, second * 2)

        return scan(step, (torch.zeros_like(x[0]), torch.zeros_like(y[0, :, 0])), (x, y))


def test_at_any_length_and_batch() -> None:
    sets = [{"x": some(5, 2, 3)}, {"x": some(9, 4, 3)}, {"x": some(7, 1, 3)}, {"x": some(1, 3, 3)}]
    exported = export_executorch(RunningSum(), *sets[:2])
    # back and forth: nothing of one call's sizes may stay for the next
    assert_matches(exported, RunningSum(), [*sets, *reversed(sets)])
    assert NAME in fired(exported)


def test_several_carries_and_outputs() -> None:
    sets = [{"x": some(5, 2, 3), "y": some(5, 2, 4), "scale": some(3)}, {"x": some(8, 4, 3), "y": some(8, 4, 4), "scale": some(3)}]
    exported = export_executorch(TwoOfEach(), *sets)
    assert_matches(exported, TwoOfEach(), [*sets, sets[0]])


def test_static_sizes_stay_right() -> None:
    given = {"x": some(5, 2, 3)}
    exported = export_executorch(RunningSum(), given)
    assert_matches(exported, RunningSum(), [given, given])


@pytest.mark.parametrize("dtype", [torch.float16, torch.int64])
def test_other_dtypes(dtype: torch.dtype) -> None:
    class Sum(nn.Module):
        def forward(self, x: torch.Tensor) -> Any:
            return scan(lambda carry, at: (carry + at, carry * 2), torch.zeros_like(x[0]), x)

    sets = [{"x": (some(5, 2, 3) * 9).to(dtype)}, {"x": (some(9, 4, 3) * 9).to(dtype)}]
    assert_matches(export_executorch(Sum(), *sets), Sum(), sets)


def test_canary(monkeypatch: pytest.MonkeyPatch) -> None:
    leave_out(monkeypatch, NAME)
    exported = export_executorch(RunningSum(), {"x": some(5, 2, 3)}, {"x": some(9, 4, 3)})
    with pytest.raises(RuntimeError, match="error 0x12"):  # InvalidArgument
        exported(x=some(5, 2, 3))


def test_originals_come_back() -> None:
    assert_restores(NAME, "executorch.xnnpack")


@pytest.mark.e2e
def test_mamba() -> None:
    from exporters.zoo.build import build

    sample = build("MambaForCausalLM")
    exported = export_executorch(sample.model, sample.inputs, *sample.others.values())
    assert_matches(exported, sample.model, [sample.inputs, *sample.others.values()])
    assert NAME in fired(exported)
