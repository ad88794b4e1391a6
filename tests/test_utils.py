"""The registries: what is installed for whom, that it goes away again, and what is seen of it."""

import sys
import threading
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import nn
from torch.fx import Graph, GraphModule, Node, symbolic_trace

from exporters import utils
from exporters.errors import PatchConflict, StaleWorkaround
from exporters.utils import (
    REGISTRY,
    AbsentPackage,
    Registration,
    active_patches,
    apply_fx_node_fixes,
    apply_fx_program_fixes,
    apply_patches,
    observe,
    register_fx_node_fix,
    register_fx_program_fix,
    register_patch,
    resolve,
    target_name,
)


class Base:
    def inherited(self) -> str:
        return "base"


class Thing(Base):
    def method(self, value: int = 1) -> int:
        return value

    @staticmethod
    def static(value: int) -> int:
        return value

    @classmethod
    def of_class(cls, value: int) -> tuple[type, int]:
        return cls, value


def function(value: int) -> int:
    return value


@pytest.fixture(autouse=True)
def registry(monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty registry for each test."""
    monkeypatch.setattr(REGISTRY, "_registrations", [])


@pytest.fixture
def target(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """An importable module `patched_module` with something to patch."""
    module = ModuleType("patched_module")
    module.Thing, module.Base, module.function = Thing, Base, function  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "patched_module", module)
    return module


def plus(number: int) -> Callable[..., Any]:
    def _patch_plus(original: Callable[..., Any]) -> Callable[..., Any]:
        return lambda *args, **kwargs: original(*args, **kwargs) + number

    _patch_plus.__name__ = f"_patch_plus_{number}"
    return _patch_plus


# ── Scopes ────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("backend", "expected"),
    [
        ("dynamo", 1),
        ("onnx", 1 + 10),
        ("executorch", 1 + 100),
        ("executorch.xnnpack", 1 + 100 + 1000),
        ("executorch.cuda", 1 + 100 + 10000),
    ],
)
def test_a_backend_gets_its_scopes_and_no_other(target: ModuleType, backend: str, expected: int) -> None:
    for scope, number in {"dynamo": 1, "onnx": 10, "executorch": 100, "executorch.xnnpack": 1000, "executorch.cuda": 10000}.items():
        register_patch(scope, "patched_module.function")(plus(number))
    with apply_patches(backend):
        assert target.function(0) == expected
    assert target.function is function


def test_decorators_stack(target: ModuleType) -> None:
    register_patch("onnx", "patched_module.function")(register_patch("executorch", "patched_module.function")(plus(1)))
    for backend in ("onnx", "executorch.xnnpack"):
        with apply_patches(backend):
            assert target.function(0) == 1


def test_the_same_name_twice_in_a_scope_is_refused() -> None:
    register_patch("onnx", "patched_module.function")(plus(1))
    with pytest.raises(ValueError, match="registered twice"):
        register_patch("onnx", "patched_module.other")(plus(1))


def test_a_patch_without_a_path_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one path"):
        register_patch("onnx")


# ── What can be patched ───────────────────────────────────────────────────────


def test_several_paths_and_each_its_own_original(target: ModuleType) -> None:
    register_patch("dynamo", "patched_module.function", "patched_module.Thing.method")(plus(5))
    with apply_patches("dynamo"):
        assert target.function(1) == 6
        assert Thing().method(2) == 7
    assert Thing().method(2) == 2


def test_static_and_class_methods_stay_what_they_are(target: ModuleType) -> None:
    def _patch_static(original: Callable[..., Any]) -> Callable[..., Any]:
        return lambda value: original(value) + 1

    def _patch_of_class(original: Callable[..., Any]) -> Callable[..., Any]:
        return lambda cls, value: original(cls, value + 1)

    register_patch("dynamo", "patched_module.Thing.static")(_patch_static)
    register_patch("dynamo", "patched_module.Thing.of_class")(_patch_of_class)
    before = dict(vars(Thing))
    with apply_patches("dynamo"):
        assert Thing.static(1) == Thing().static(1) == 2
        assert Thing.of_class(1) == Thing().of_class(1) == (Thing, 2)
        assert isinstance(vars(Thing)["static"], staticmethod)
        assert isinstance(vars(Thing)["of_class"], classmethod)
    assert dict(vars(Thing)) == before


def test_an_inherited_attribute_is_deleted_again(target: ModuleType) -> None:
    def _patch_inherited(original: Callable[..., Any]) -> Callable[..., Any]:
        return lambda self: original(self) + " patched"

    register_patch("dynamo", "patched_module.Thing.inherited")(_patch_inherited)
    with apply_patches("dynamo"):
        assert Thing().inherited() == "base patched"
        assert Base().inherited() == "base"
    assert "inherited" not in vars(Thing)


def test_a_torch_operator() -> None:
    def _patch_where(original: Callable[..., Any]) -> Callable[..., Any]:
        return lambda condition, *others: original(~condition, *others)

    before = torch.where
    register_patch("onnx", "torch.where")(_patch_where)
    with apply_patches("onnx"):
        assert torch.where(torch.tensor(True), 1, 2) == 2
    assert torch.where is before


@pytest.mark.parametrize("result", [None, 3, Thing])
def test_a_factory_must_return_a_function(target: ModuleType, result: Any) -> None:
    def _patch_wrong(original: Callable[..., Any]) -> Any:
        return result

    register_patch("dynamo", "patched_module.function")(_patch_wrong)
    with pytest.raises(TypeError, match="must return a function"), apply_patches("dynamo"):
        pass
    assert target.function is function
    assert active_patches() == []


# ── Restoring ─────────────────────────────────────────────────────────────────


def test_restored_in_reverse_order_after_an_exception(target: ModuleType) -> None:
    for number in (1, 10, 100):
        register_patch("dynamo", "patched_module.function")(plus(number))
    with pytest.raises(KeyError, match="111"), apply_patches("dynamo"):
        raise KeyError(target.function(0))
    assert target.function is function
    assert active_patches() == []


def test_nesting_installs_once_and_restores_at_the_end(target: ModuleType) -> None:
    register_patch("dynamo", "patched_module.function")(plus(1))
    register_patch("onnx", "patched_module.function")(plus(10))
    with apply_patches("dynamo"):
        with apply_patches("onnx"):
            assert target.function(0) == 11
            assert active_patches() == ["dynamo:_patch_plus_1", "onnx:_patch_plus_10"]
        assert target.function(0) == 1
    assert target.function is function


def test_one_left_out(target: ModuleType) -> None:
    register_patch("dynamo", "patched_module.function")(plus(1))
    register_patch("dynamo", "patched_module.function")(plus(10))
    with apply_patches("dynamo", without=["dynamo:_patch_plus_1"]):
        assert target.function(0) == 10


def test_another_thread_is_refused_and_changes_nothing(target: ModuleType) -> None:
    register_patch("dynamo", "patched_module.function")(plus(1))
    refusals: list[BaseException] = []

    def install() -> None:
        try:
            with apply_patches("dynamo"):
                pass
        except PatchConflict as conflict:
            refusals.append(conflict)

    with apply_patches("dynamo"):
        other = threading.Thread(target=install)
        other.start()
        other.join()
        assert target.function(0) == 1
    assert len(refusals) == 1
    again = threading.Thread(target=install)
    again.start()
    again.join()
    assert len(refusals) == 1
    assert target.function is function


# ── Paths that lead nowhere ───────────────────────────────────────────────────


def test_an_absent_package_is_recorded(target: ModuleType) -> None:
    register_patch("dynamo", "no_such_package.module.function", "patched_module.function")(plus(1))
    with observe() as seen, apply_patches("dynamo"):
        assert target.function(0) == 1
    assert seen.absent == {"no_such_package.module.function": "no_such_package"}


def test_a_modeling_module_that_nobody_imported_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    path = "transformers.models.blt.modeling_blt.BltModel.forward"
    monkeypatch.delitem(sys.modules, "transformers.models.blt.modeling_blt", raising=False)
    register_patch("dynamo", path)(plus(1))
    with observe() as seen, apply_patches("dynamo"):
        assert "transformers.models.blt.modeling_blt" not in sys.modules
    assert seen.unloaded == {path}
    assert seen.installed == set()


@pytest.mark.parametrize(
    "path",
    ["patched_module.gone", "patched_module.Gone.method", "patched_module.Thing.gone", "torch.nn.functional.no_such_function"],
)
def test_a_stale_path_raises_and_leaves_nothing_patched(target: ModuleType, path: str) -> None:
    register_patch("dynamo", "patched_module.function")(plus(1))
    register_patch("dynamo", path)(plus(10))
    with pytest.raises(StaleWorkaround, match=path), apply_patches("dynamo"):
        pass
    assert target.function is function
    assert active_patches() == []


def test_a_missing_submodule_of_an_installed_package_is_stale() -> None:
    with pytest.raises(StaleWorkaround, match=r"torch\.no_such_module\.function"):
        resolve("torch.no_such_module.function")


def test_a_package_that_fails_on_a_missing_dependency_is_absent(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "needs_more.py").write_text("import no_such_dependency\n", encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(AbsentPackage, match="no_such_dependency"):
        resolve("needs_more.function")


# ── Observation ───────────────────────────────────────────────────────────────


def test_calls_are_counted_for_the_innermost_observation(target: ModuleType) -> None:
    register_patch("dynamo", "patched_module.function")(plus(1))
    register_patch("dynamo", "patched_module.Thing.method")(plus(10))
    with observe() as outer, apply_patches("dynamo"):
        target.function(0)
        with observe() as inner:
            target.function(0)
            target.function(0)
    assert outer.called == {"dynamo:_patch_plus_1": 1}
    assert inner.called == {"dynamo:_patch_plus_1": 2}
    assert outer.installed == {"dynamo:_patch_plus_1", "dynamo:_patch_plus_10"}
    assert outer.fired == ["dynamo:_patch_plus_1"]


def test_a_registration_tells_its_fields_and_place() -> None:
    def _patch_documented(original: Callable[..., Any]) -> Callable[..., Any]:
        """Do something
        in two lines.

        Why: a reason
            that goes on.
        Upstream: not filed.
        Seen in: SomeModel
        """
        return original

    registration = Registration("patch", "onnx", _patch_documented, ("torch.where",))
    assert registration.name == "onnx:_patch_documented"
    assert registration.fields == {
        "summary": "Do something in two lines.",
        "Why": "a reason that goes on.",
        "Upstream": "not filed.",
        "Seen in": "SomeModel",
    }
    assert registration.location.startswith(__file__)


# ── Fixes ─────────────────────────────────────────────────────────────────────


class Sums(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.ops.aten.add.Tensor(torch.ops.aten.mul.Tensor(x, 2), 1)


def swap(before: Any, after: Any) -> Callable[[GraphModule, Node], bool]:
    def _fix_swap(graph_module: GraphModule, node: Node) -> bool:
        if node.target is not before:
            return False
        node.target = after
        return True

    return _fix_swap


def test_a_node_fix_sees_the_declared_operators_only() -> None:
    seen: list[str] = []

    def _fix_look(graph_module: GraphModule, node: Node) -> bool:
        seen.append(target_name(node))
        return False

    register_fx_node_fix("onnx", operators=["aten.add.Tensor"])(_fix_look)
    with observe() as observation:
        assert apply_fx_node_fixes("onnx", symbolic_trace(Sums())) == 0
        assert apply_fx_node_fixes("executorch", symbolic_trace(Sums())) == 0
    assert seen == ["aten.add.Tensor"]
    assert observation.fired == []


def test_a_node_fix_that_declares_nothing_sees_every_node() -> None:
    seen: list[str] = []

    def _fix_look(graph_module: GraphModule, node: Node) -> bool:
        seen.append(node.op)
        return False

    register_fx_node_fix("onnx")(_fix_look)
    apply_fx_node_fixes("onnx", symbolic_trace(Sums()))
    assert seen == ["placeholder", "call_function", "call_function", "output"]


def test_a_change_takes_effect_and_is_counted() -> None:
    register_fx_node_fix("onnx")(swap(torch.ops.aten.mul.Tensor, torch.ops.aten.add.Tensor))
    module = symbolic_trace(Sums())
    with observe() as observation:
        assert apply_fx_node_fixes("onnx", module) == 1
        assert apply_fx_node_fixes("onnx", module) == 0
    assert observation.changed == {"onnx:_fix_swap": 1}
    assert module(torch.tensor(5)) == 8


def test_one_fix_left_out() -> None:
    register_fx_node_fix("onnx")(swap(torch.ops.aten.mul.Tensor, torch.ops.aten.add.Tensor))
    assert apply_fx_node_fixes("onnx", symbolic_trace(Sums()), without=["onnx:_fix_swap"]) == 0


def test_subgraphs_are_fixed() -> None:
    class Outer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = symbolic_trace(Sums())

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.inner(x)

    class Keep(torch.fx.Tracer):
        def is_leaf_module(self, module: nn.Module, name: str) -> bool:
            return True

    outer = Outer()
    module = GraphModule(outer, Keep().trace(outer))
    register_fx_node_fix("onnx")(swap(torch.ops.aten.mul.Tensor, torch.ops.aten.add.Tensor))
    assert apply_fx_node_fixes("onnx", module) == 1
    assert module(torch.tensor(5)) == 8


def test_a_node_that_an_earlier_fix_erased_is_skipped() -> None:
    def _fix_erase(graph_module: GraphModule, node: Node) -> bool:
        if node.op != "call_function" or not isinstance(node.args[0], Node) or node.args[0].op != "call_function":
            return False
        before = node.args[0]
        node.args = (before.args[0], 1)
        graph_module.graph.erase_node(before)
        return True

    def _fix_look(graph_module: GraphModule, node: Node) -> bool:
        assert not node._erased
        return False

    register_fx_node_fix("onnx")(_fix_erase)
    register_fx_node_fix("onnx")(_fix_look)
    assert apply_fx_node_fixes("onnx", symbolic_trace(Sums())) == 1


@pytest.mark.parametrize(
    ("target", "name"),
    [
        (torch.ops.aten.add.Tensor, "aten.add.Tensor"),
        (torch.sym_ite, "torch.sym_ite"),
        (__import__("operator").getitem, "_operator.getitem"),
    ],
)
def test_names_of_targets(target: Any, name: str) -> None:
    assert target_name(Graph().call_function(target, ())) == name


def test_program_fixes_chain_and_none_is_no_change() -> None:
    program = torch.export.export(Sums(), (torch.ones(2),))
    other = torch.export.export(Sums(), (torch.ones(3),))
    given: list[Any] = []

    def _fix_replace(program: Any) -> Any:
        given.append(program)
        return other

    def _fix_nothing(program: Any) -> None:
        given.append(program)

    register_fx_program_fix("dynamo")(_fix_replace)
    register_fx_program_fix("onnx")(_fix_nothing)
    with observe() as observation:
        assert apply_fx_program_fixes("onnx", program) is other
        assert apply_fx_program_fixes("onnx", program, without=["dynamo:_fix_replace"]) is program
    assert given == [program, other, program]
    assert observation.changed == {"dynamo:_fix_replace": 1}


@pytest.fixture(autouse=True)
def nothing_left_behind() -> Iterator[None]:
    yield
    assert active_patches() == []
    assert utils._owner is None
