"""_fix_pool_arguments: a pool without a stride, or with one number for both axes."""

from typing import Any

import pytest
import torch
from executorch_helpers import export_executorch, some
from torch import nn
from torch.nn import functional as F
from workaround_helpers import assert_matches, fired, leave_out

from exporters.errors import ExportError
from exporters.utils import apply_fx_node_fixes

NAME = "executorch.xnnpack:_fix_pool_arguments"


class Pool(nn.Module):
    def __init__(self, function: Any, *args: Any, **options: Any) -> None:
        super().__init__()
        self.function, self.args, self.options = function, args, options

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.function(torch.relu(x), *self.args, **self.options)


LOOSE = [
    pytest.param(Pool(F.max_pool2d, 2), id="max, no stride"),
    pytest.param(Pool(F.max_pool2d, (2, 3)), id="max, no stride, two sizes"),
    pytest.param(Pool(F.max_pool2d, [3]), id="max, one size in a list"),
    pytest.param(Pool(F.max_pool2d, 3, None, 1), id="max, no stride, padded"),
    pytest.param(Pool(F.avg_pool2d, 2), id="average, no stride"),
    pytest.param(Pool(F.avg_pool2d, [3], [2]), id="average, one number in each list"),
]
STRICT = [pytest.param(Pool(F.max_pool2d, 3, 2), id="max"), pytest.param(Pool(F.avg_pool2d, 2, 2), id="average")]


@pytest.mark.parametrize("module", [*LOOSE, *STRICT])
def test_effect(module: nn.Module) -> None:
    sets = [{"x": some(2, 3, 12, 12)}, {"x": some(3, 3, 12, 12)}]
    assert_matches(export_executorch(module, *sets), module, sets)


def test_fires_where_the_stride_is_missing() -> None:
    given = {"x": some(2, 3, 12, 12)}
    assert NAME in fired(export_executorch(Pool(F.max_pool2d, 2), given))
    assert NAME not in fired(export_executorch(Pool(F.max_pool2d, (2, 2), (2, 2)), given))


@pytest.mark.parametrize("module", [*LOOSE, *STRICT])
@pytest.mark.parametrize(
    "x", [some(2, 3, 7, 9), some(3, 7, 9).half(), some(0, 3, 7, 9), some(2, 3, 7, 9) * 1e30], ids=["some", "half", "empty", "large"]
)
def test_changes_no_value(module: nn.Module, x: torch.Tensor) -> None:
    program = torch.export.export(module, (x,))
    expected = module(x)
    apply_fx_node_fixes("executorch.xnnpack", program.graph_module)
    torch.testing.assert_close(program.module()(x), expected, atol=0, rtol=0)


def test_canary(monkeypatch: pytest.MonkeyPatch) -> None:
    leave_out(monkeypatch, NAME)
    with pytest.raises(ExportError, match="index out of range"):
        export_executorch(Pool(F.max_pool2d, 2), {"x": some(2, 3, 12, 12)})
