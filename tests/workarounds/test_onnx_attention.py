"""_aten_scaled_dot_product_attention: rows that may attend to nothing are zero."""

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from workaround_helpers import assert_matches, export_onnx, fired, leave_out

NAME = "onnx:_aten_scaled_dot_product_attention"


class Attend(nn.Module):
    def __init__(self, **options: Any) -> None:
        super().__init__()
        self.options = options

    def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, **self.options)


def boolean_mask(batch: int, rows: int, columns: int) -> torch.Tensor:
    mask = torch.rand(batch, 1, rows, columns, generator=torch.Generator().manual_seed(rows)) > 0.3
    mask[..., 0] = True
    mask[0, :, -1] = False
    return mask


def inputs(batch: int, rows: int, columns: int, mask: torch.Tensor | None, heads: int = 2, kv_heads: int = 2) -> dict[str, Any]:
    generator = torch.Generator().manual_seed(batch + rows)
    given = {
        "q": torch.randn(batch, heads, rows, 8, generator=generator),
        "k": torch.randn(batch, kv_heads, columns, 8, generator=generator),
        "v": torch.randn(batch, kv_heads, columns, 8, generator=generator),
    }
    return given if mask is None else {**given, "mask": mask}


def additive(mask: torch.Tensor, lowest: float) -> torch.Tensor:
    return torch.zeros(mask.shape).masked_fill(~mask, lowest)


MASK = boolean_mask(2, 5, 6)


@pytest.mark.parametrize(
    ("options", "given"),
    [
        pytest.param({}, inputs(2, 5, 6, MASK), id="boolean"),
        pytest.param({}, inputs(2, 5, 6, additive(MASK, float("-inf"))), id="minus infinity"),
        pytest.param({}, inputs(2, 5, 6, additive(MASK, torch.finfo(torch.float32).min)), id="lowest number attends evenly"),
        pytest.param({}, inputs(2, 5, 6, additive(MASK, -3.0)), id="a bias"),
        pytest.param({}, inputs(2, 5, 6, MASK[:1, 0]), id="mask of lower rank"),
        pytest.param({}, inputs(2, 5, 6, torch.zeros(2, 1, 5, 6, dtype=torch.bool)), id="nothing at all"),
        pytest.param({}, inputs(2, 5, 6, MASK[..., :1, :]), id="one row for all"),
        pytest.param({}, inputs(2, 5, 6, None), id="no mask"),
        pytest.param({"is_causal": True}, inputs(2, 5, 5, None), id="causal"),
        pytest.param({"scale": 0.3}, inputs(2, 5, 6, MASK), id="scale"),
        pytest.param({"enable_gqa": True}, inputs(2, 5, 6, MASK, heads=4), id="grouped queries"),
    ],
)
def test_equals_torch(options: dict[str, Any], given: dict[str, Any]) -> None:
    module = Attend(**options)
    assert_matches(export_onnx(module, given), module, [given])


def test_other_sizes() -> None:
    sets = [inputs(2, 5, 6, boolean_mask(2, 5, 6)), inputs(3, 7, 9, boolean_mask(3, 7, 9)), inputs(1, 1, 4, boolean_mask(1, 1, 4))]
    exported = export_onnx(Attend(), *sets)
    assert_matches(exported, Attend(), sets)
    assert NAME in fired(exported)


def test_nan_of_a_query_stays() -> None:
    given = inputs(2, 5, 6, MASK)
    given["q"][1, 0, 0, 0] = float("nan")
    assert_matches(export_onnx(Attend(), given), Attend(), [given])


@pytest.mark.parametrize("mask", [MASK, additive(MASK, float("-inf"))], ids=["boolean", "additive"])
def test_canary(mask: torch.Tensor, monkeypatch: pytest.MonkeyPatch) -> None:
    leave_out(monkeypatch, NAME)
    given = inputs(2, 5, 6, mask)
    with pytest.raises(AssertionError):
        assert_matches(export_onnx(Attend(), given), Attend(), [given])
