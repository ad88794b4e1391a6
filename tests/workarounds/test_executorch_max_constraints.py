"""_patch_max_constraints: a maximum over an axis that XNNPACK can't pool is left to kernels."""

import pytest
import torch
from executorch_helpers import export_executorch, some
from torch import nn
from workaround_helpers import assert_matches, assert_restores, fired, leave_out

from exporters.errors import ExportError

NAME = "executorch.xnnpack:_patch_max_constraints"


class Largest(nn.Module):
    def __init__(self, dim: int, keepdim: bool) -> None:
        super().__init__()
        self.dim, self.keepdim = dim, keepdim

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (x * 2).max(self.dim, keepdim=self.keepdim).values + 1


@pytest.mark.parametrize("dim", [0, 1, 2, 3, -1, -2])
@pytest.mark.parametrize("keepdim", [True, False])
def test_any_axis(dim: int, keepdim: bool) -> None:
    module, inputs = Largest(dim, keepdim), {"x": some(2, 3, 4, 5)}
    exported = export_executorch(module, inputs)
    assert NAME in fired(exported)
    assert_matches(exported, module, [inputs, {"x": -inputs["x"]}, {"x": torch.full((2, 3, 4, 5), float("-inf"))}])


@pytest.mark.parametrize(("dim", "keepdim"), [(1, True), (2, False)])
def test_canary(dim: int, keepdim: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    leave_out(monkeypatch, NAME)
    with pytest.raises(ExportError):
        export_executorch(Largest(dim, keepdim), {"x": some(2, 3, 4, 5)})


def test_what_xnnpack_can_pool_it_still_gets() -> None:
    exported = export_executorch(Largest(3, True), {"x": some(2, 3, 4, 5)})
    assert any("max" in name for name in exported.stages[-1].details["delegated"])


def test_originals_come_back() -> None:
    assert_restores(NAME, "executorch.xnnpack")
