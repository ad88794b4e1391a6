"""_fix_view_of_attention: a view of an attention's result may copy; any other view is left alone."""

import copy

import pytest
import torch
from torch import nn
from torch.nn.functional import scaled_dot_product_attention
from workaround_helpers import leave_out

from exporters import DynamoConfig, DynamoExporter, varying
from exporters.errors import ExportError
from exporters.exported import Exported
from exporters.models.attention import _fix_view_of_attention
from exporters.zoo.build import build
from exporters.zoo.sample import Sample

NAME = "dynamo:_fix_view_of_attention"


class Attend(nn.Module):
    """GPT-2's pattern: heads joined after a `contiguous()` that is a no-op for the fused attention, then a flat view."""

    def forward(self, q: torch.Tensor) -> torch.Tensor:
        joined = scaled_dot_product_attention(q, q, q).transpose(1, 2).contiguous().flatten(2)
        return joined.view(-1, joined.shape[-1])


def export_gpt2() -> tuple[Sample, Exported]:
    sample = build("GPT2LMHeadModel")
    shapes = varying(sample.inputs, sample.others, sample.axes)
    config = DynamoConfig(dynamic=True, dynamic_shapes=shapes.dynamic_shapes)
    return sample, DynamoExporter().export(sample.model, sample.inputs, config=config)


def test_canary(monkeypatch: pytest.MonkeyPatch) -> None:
    leave_out(monkeypatch, NAME)
    with pytest.raises(ExportError, match="Cannot view a tensor"):
        export_gpt2()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize(("batch", "length"), [(2, 5), (3, 7), (1, 1)])
def test_semantics(dtype: torch.dtype, batch: int, length: int) -> None:
    """The reshaped decomposition equals the view of eager."""
    sample = {"q": torch.randn(2, 2, 5, 4, dtype=dtype)}
    shapes = varying(sample, {"other": {"q": torch.randn(3, 2, 7, 4, dtype=dtype)}, "one": {"q": torch.randn(1, 2, 1, 4, dtype=dtype)}})
    exported = DynamoExporter().export(Attend(), sample, config=DynamoConfig(dynamic=True, dynamic_shapes=shapes.dynamic_shapes))
    given = torch.randn(batch, 2, length, 4, dtype=dtype)
    for stage in exported.stages:
        assert torch.allclose(stage.program.module()(q=given), Attend()(given), atol=2e-3 if dtype is torch.float16 else 1e-5)


@pytest.mark.parametrize("source", ["add.Tensor", "matmul.default"])
def test_other_views_stay(source: str) -> None:
    packet, _, overload = source.partition(".")
    graph = torch.fx.Graph()
    x = graph.placeholder("x")
    value = graph.call_function(getattr(getattr(torch.ops.aten, packet), overload), (x, x))
    view = graph.call_function(torch.ops.aten.view.default, (value, [-1]))
    graph.output(view)
    module = torch.fx.GraphModule(nn.Module(), graph)
    assert not _fix_view_of_attention(module, view)
    assert view.target is torch.ops.aten.view.default


def test_effect() -> None:
    sample, exported = export_gpt2()
    assert exported.stages[0].seen.changed[NAME] > 0
    for given in (sample.inputs, *sample.others.values()):
        with torch.no_grad():
            expected = sample.model(**copy.deepcopy(given)).logits
            leaves = exported.signature.flatten(copy.deepcopy(given))
            decomposed = exported.stages[1].program.module()
            actual = decomposed(**dict(zip(exported.signature.arguments, leaves, strict=True)))
        assert torch.allclose(actual.logits, expected, atol=1e-4)
