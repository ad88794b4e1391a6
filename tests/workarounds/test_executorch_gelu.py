"""_patch_gelu_constraints: a GELU by the hyperbolic tangent is not taken for the exact one."""

import pytest
import torch
from executorch_helpers import export_executorch
from torch import nn
from workaround_helpers import assert_restores, fired, leave_out

NAME = "executorch.xnnpack:_patch_gelu_constraints"
VALUES = torch.linspace(-6, 6, 241).reshape(1, 241)
FAR = torch.tensor([1e30, -1e30, 3e4, 0.0])  # none is infinite: what eager gives then, inf or NaN, depends on the CPU


class Gelu(nn.Module):
    def __init__(self, approximate: str) -> None:
        super().__init__()
        self.approximate = approximate

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.gelu(x * 1.5, approximate=self.approximate)


@pytest.mark.parametrize("approximate", ["none", "tanh"])
@pytest.mark.parametrize("values", [VALUES, VALUES[:, :0], FAR], ids=["usual", "none", "far"])
def test_effect(approximate: str, values: torch.Tensor) -> None:
    exported = export_executorch(Gelu(approximate), {"x": values})
    torch.testing.assert_close(exported(x=values), Gelu(approximate)(values), atol=2e-6, rtol=1e-4)
    assert NAME in fired(exported)
    if values.numel():  # of nothing there is nothing to delegate
        assert ("aten.gelu.default" in exported.stages[-1].details["delegated"]) == (approximate == "none")


def test_canary(monkeypatch: pytest.MonkeyPatch) -> None:
    leave_out(monkeypatch, NAME)
    exported = export_executorch(Gelu("tanh"), {"x": VALUES})
    assert (exported(x=VALUES) - Gelu("tanh")(VALUES)).abs().max() > 3e-4


def test_originals_come_back() -> None:
    assert_restores(NAME, "executorch.xnnpack")
