"""_patch_conv3d: a convolution in three dimensions as a sum of those in two."""

from typing import Any

import pytest
import torch
from executorch_helpers import export_executorch, some
from torch import nn
from workaround_helpers import assert_matches, assert_restores, leave_out

from exporters.utils import apply_patches

NAME = "executorch.xnnpack:_patch_conv3d"


class Embed(nn.Module):
    """Patches of two frames, each of them a vector: what vision models begin with."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.conv = nn.Conv3d(3, 5, (2, 4, 4), stride=(2, 4, 4), bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.conv(x.view(-1, 3, 2, 4, 4)).view(-1, 5)


SETS = [{"x": some(4, 96)}, {"x": some(7, 96)}, {"x": some(1, 96)}]


@pytest.mark.parametrize("backend", ["xnnpack", "portable"])
def test_effect(backend: str) -> None:
    assert_matches(export_executorch(Embed(), *SETS, backend=backend), Embed(), SETS)


def test_canary(monkeypatch: pytest.MonkeyPatch) -> None:
    leave_out(monkeypatch, NAME)
    exported = export_executorch(Embed(), *SETS)
    with pytest.raises(RuntimeError, match="execute"):
        exported(**SETS[0])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"stride": 2},
        {"padding": (1, 0, 2)},
        {"dilation": (2, 1, 1), "stride": (1, 2, 1)},
        {"groups": 2, "padding": 1, "bias": torch.arange(4.0)},
        {"padding": "same"},
        {"stride": [2]},
    ],
)
@pytest.mark.parametrize("shape", [(2, 4, 5, 6, 7), (4, 3, 5, 5), (0, 4, 3, 3, 3)])
def test_semantics(shape: tuple[int, ...], options: dict[str, Any], dtype: torch.dtype) -> None:
    options = {name: value.to(dtype) if isinstance(value, torch.Tensor) else value for name, value in options.items()}
    x, weight = some(*shape).to(dtype), some(4, 4 // options.get("groups", 1), 2, 3, 2).to(dtype)
    if options.get("dilation") and shape[-3] < 3:
        pytest.skip("the kernel is larger than the input")
    expected = torch.conv3d(x, weight, **options)
    with apply_patches("executorch.xnnpack"):
        actual = nn.functional.conv3d(x, weight, **options)
    tolerance = 0.1 if dtype is torch.bfloat16 else 1e-4
    torch.testing.assert_close(actual, expected, atol=tolerance, rtol=tolerance)


def test_originals_come_back() -> None:
    assert_restores(NAME, "executorch.xnnpack")
