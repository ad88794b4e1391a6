"""_patch_dim_order: a size that is data is larger than 1, and smaller than its multiples."""

from collections.abc import Sequence

import pytest
import torch
from executorch.exir import tensor as exir
from executorch_helpers import config_for
from torch import nn
from torch.fx.experimental.symbolic_shapes import ShapeEnv
from workaround_helpers import assert_restores, leave_out

from exporters import executorch_layout
from exporters.errors import ExportError
from exporters.exported import Exported
from exporters.exporter_executorch import ExecutorchExporter
from exporters.utils import apply_patches

NAME = "executorch:_patch_dim_order"


class Smaller(nn.Module):
    """How many of the first numbers each position is not smaller than: as many numbers as the data says."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        count = (x > 0).sum().item()
        torch._check(count >= 0)
        torch._check(count <= 12)
        return (torch.arange(5)[:, None] >= torch.arange(count)[None, :]).sum(-1)


def export() -> Exported:
    inputs = {"x": torch.tensor([[1.0, -1, 2], [0, 3, 4]])}
    return ExecutorchExporter().export(Smaller(), inputs, config=config_for(inputs))


def test_canary(monkeypatch: pytest.MonkeyPatch) -> None:
    leave_out(monkeypatch, NAME)
    with pytest.raises(ExportError, match=r"u\d+ < 1"):
        export()


def test_effect() -> None:
    exported = export()
    for x in ([[1.0, -1, 2], [0, 3, 4]], [[0.0, 0, 1], [0, 0, 0]], [[1.0, 1, 1], [1, 1, 1]]):
        given = torch.tensor(x)
        assert torch.equal(exported(x=given), Smaller()(given))


@pytest.mark.parametrize("strides", [(), (1,), (12, 4, 1), (4, 3, 1, 1), (3, 1, 3, 3), (5, 1, 15), (1, 1, 1), (6, 4, 1), (1, 100, 10)])
def test_semantics(strides: Sequence[int]) -> None:
    assert executorch_layout.dim_order(strides) == exir.dim_order_from_stride(strides)


def test_sizes_of_data() -> None:
    environment = ShapeEnv()
    size, other = environment.create_unbacked_symint(), environment.create_unbacked_symint()
    for symbol in (size, other):
        torch._check(symbol >= 0)
    with apply_patches("executorch"):
        assert exir.dim_order_from_stride((size, 1)) == (0, 1)
        assert exir.dim_order_from_stride((1, size)) == (1, 0)
        assert exir.dim_order_from_stride((size * other, other, 1)) == (0, 1, 2)
        assert exir.dim_order_from_stride((size, 1, size * 8)) == (2, 0, 1)


def test_a_stride_of_zero_is_refused() -> None:
    size = ShapeEnv().create_unbacked_symint()
    with apply_patches("executorch"), pytest.raises(RuntimeError, match="0 in strides"):
        exir.dim_order_from_stride((size, 0, 1))


def test_originals_come_back() -> None:
    assert_restores(NAME, "executorch")
