"""_fix_fourier_layout: a Fourier transform over another dimension than the last runs between two permutations."""

from collections.abc import Callable

import pytest
import torch
from executorch_helpers import export_executorch, some
from torch import nn
from workaround_helpers import assert_matches, fired, leave_out

from exporters.utils import apply_fx_node_fixes

NAME = "executorch:_fix_fourier_layout"


class Transform(nn.Module):
    def __init__(self, function: Callable[[torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.function(x)


def correlate(x: torch.Tensor) -> torch.Tensor:
    """As Autoformer finds periods."""
    spectrum = torch.fft.rfft(x, dim=1)
    return torch.fft.irfft(spectrum * torch.conj(spectrum), n=x.shape[1], dim=1)


MOVED = [
    pytest.param(Transform(lambda x: torch.fft.rfft(x, dim=1).abs()), id="real to complex"),
    pytest.param(Transform(correlate), id="and back"),
    pytest.param(Transform(lambda x: torch.fft.rfft(x, dim=-2, norm="ortho").abs()), id="normalized, counted from the end"),
    pytest.param(Transform(lambda x: torch.fft.rfft(x, dim=0).real), id="over the rows"),
]
LAST = [pytest.param(Transform(lambda x: torch.fft.rfft(x, dim=-1).abs()), id="last")]


@pytest.mark.parametrize("backend", ["portable", "xnnpack"])
@pytest.mark.parametrize("module", [*MOVED[:3], *LAST])
def test_effect(module: nn.Module, backend: str) -> None:
    sets = [{"x": some(2, 16, 6)}, {"x": some(3, 16, 6)}, {"x": some(1, 16, 6)}]
    assert_matches(export_executorch(module, *sets, backend=backend), module, sets)


def test_fires_where_another_dimension_is_meant() -> None:
    assert NAME in fired(export_executorch(MOVED[0].values[0], {"x": some(2, 16, 6)}))
    assert NAME not in fired(export_executorch(LAST[0].values[0], {"x": some(2, 16, 6)}))


@pytest.mark.parametrize("module", [*MOVED, *LAST])
@pytest.mark.parametrize(
    "x",
    [some(2, 16, 6), some(4, 8, 6, 5), some(2, 16, 6).double(), some(2, 1, 6), some(2, 16, 6) * 1e18, some(2, 9, 6).transpose(1, 2)],
    ids=["some", "four dimensions", "double", "one sample", "large", "not dense"],
)
def test_changes_no_value(module: nn.Module, x: torch.Tensor) -> None:
    program = torch.export.export(module, (x,)).run_decompositions()
    expected = module(x)
    apply_fx_node_fixes("executorch", program.graph_module)
    changed = program.module()(x)
    torch.testing.assert_close(changed, expected, rtol=1e-5 if x.dtype == torch.float32 else 1e-12, atol=1e-5 * float(x.abs().max()))


def test_several_dimensions_keep_their_order() -> None:
    """Only the last of them is halved."""
    module, x = Transform(lambda x: torch.fft.rfftn(x, dim=(2, 0)).abs()), some(4, 5, 6)
    program = torch.export.export(module, (x,)).run_decompositions()
    apply_fx_node_fixes("executorch", program.graph_module)
    torch.testing.assert_close(program.module()(x), module(x))


def test_canary(monkeypatch: pytest.MonkeyPatch) -> None:
    leave_out(monkeypatch, NAME)
    given = {"x": some(2, 16, 6)}
    with pytest.raises(RuntimeError, match="0x12"):
        export_executorch(MOVED[0].values[0], given, backend="portable")(**given)
