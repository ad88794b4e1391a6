"""_fix_layout_of_batch_norm: a batch norm over a transposed input returns what its kernel returns, once decomposed too."""

import pytest
import torch
from torch import nn
from workaround_helpers import leave_out

from exporters import DynamoConfig, DynamoExporter, varying
from exporters.exported import Exported

NAME = "dynamo:_fix_layout_of_batch_norm"
MODULES = {3: nn.BatchNorm1d, 4: nn.BatchNorm2d, 5: nn.BatchNorm3d}


class Normalize(nn.Module):
    """PatchTST's pattern: channels last, transposed for the norm and back, then joined."""

    def __init__(self, dims: int, dtype: torch.dtype = torch.float32) -> None:
        super().__init__()
        self.norm = MODULES[dims](4, dtype=dtype)
        self.norm.running_mean.uniform_()
        self.eval()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(x.transpose(1, -1)).transpose(1, -1).reshape(-1, x.shape[-1])


def some(dims: int, batch: int, length: int) -> torch.Tensor:
    return torch.randn(batch, *([length] * (dims - 2)), 4)


def export(module: nn.Module, dims: int, dtype: torch.dtype = torch.float32) -> Exported:
    sample, other = {"x": some(dims, 2, 5).to(dtype)}, {"x": some(dims, 3, 7).to(dtype)}
    shapes = varying(sample, {"other": other})
    return DynamoExporter().export(module, sample, config=DynamoConfig(dynamic=True, dynamic_shapes=shapes.dynamic_shapes))


def test_canary(monkeypatch: pytest.MonkeyPatch) -> None:
    leave_out(monkeypatch, NAME)
    decomposed = export(Normalize(3), 3).stages[1].program.module()
    with pytest.raises(RuntimeError, match="view size is not compatible"):
        decomposed(x=some(3, 2, 5))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("dims", [3, 4, 5])
def test_semantics(dims: int, dtype: torch.dtype) -> None:
    module = Normalize(dims, dtype)
    exported = export(module, dims, dtype)
    for batch, length in [(2, 5), (3, 7), (1, 1)]:
        given = some(dims, batch, length).to(dtype)
        for stage in exported.stages:
            torch.testing.assert_close(stage.program.module()(x=given), module(given), equal_nan=True)


@pytest.mark.parametrize("channels_last", [False, True])
def test_an_input_of_an_agreed_layout_is_left_alone(channels_last: bool) -> None:
    module = nn.BatchNorm2d(4).eval()
    x = torch.randn(2, 4, 5, 6)
    if channels_last:
        x = x.contiguous(memory_format=torch.channels_last)
    exported = DynamoExporter().export(module, {"input": x})
    assert NAME not in exported.stages[0].seen.fired
    torch.testing.assert_close(exported.stages[1].program.module()(input=x), module(x))
