"""_patch_clone_of_output: a delegate may return a tensor and a copy of it."""

import pytest
import torch
from executorch.backends.transforms.remove_clone_ops import RemoveCloneOpsTransform
from executorch_helpers import export_executorch, some
from two_uses import TwoUses
from workaround_helpers import assert_matches, assert_restores, fired, leave_out

from exporters.errors import ExportError
from exporters.utils import apply_patches

NAME = "executorch.xnnpack:_patch_clone_of_output"


def test_effect() -> None:
    sets = [{"x": some(2, 4, 3)}, {"x": some(3, 4, 3)}, {"x": some(1, 4, 3)}]
    exported = export_executorch(TwoUses(), *sets)
    assert_matches(exported, TwoUses(), sets)
    assert NAME in fired(exported)


@pytest.mark.parametrize("dtype", [torch.float16, torch.float64, torch.int64])
def test_other_dtypes(dtype: torch.dtype) -> None:
    given = {"x": (some(2, 4, 3) * 9).to(dtype)}
    assert_matches(export_executorch(TwoUses(), given), TwoUses(), [given])


def test_canary(monkeypatch: pytest.MonkeyPatch) -> None:
    leave_out(monkeypatch, NAME)
    with pytest.raises(ExportError, match="already in the inputs"):
        export_executorch(TwoUses(), {"x": some(2, 4, 3)}, {"x": some(3, 4, 3)})


def graph_of(returned: str) -> torch.fx.Graph:
    """A copy of a computed value; `returned` names what comes out."""
    graph = torch.fx.Graph()
    x = graph.placeholder("x")
    value = graph.call_function(torch.relu, (x,))
    copy = graph.call_function(torch.clone, (value,))
    after = graph.call_function(torch.abs, (copy,))
    graph.output(tuple({"value": value, "copy": copy, "after": after}[name] for name in returned.split()))
    return graph


@pytest.mark.parametrize(("returned", "kept"), [("value copy", True), ("copy", False), ("value after", False), ("after", False)])
def test_keeps_only_copies_returned_beside_their_source(returned: str, kept: bool) -> None:
    copy = next(node for node in graph_of(returned).nodes if node.target is torch.clone)
    transform = RemoveCloneOpsTransform(preserve_input_output_copies=True)
    assert not transform._is_input_output_copy(copy)
    with apply_patches("executorch.xnnpack"):
        assert transform._is_input_output_copy(copy) is kept


def test_originals_come_back() -> None:
    assert_restores(NAME, "executorch.xnnpack")
