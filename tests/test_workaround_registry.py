"""What every registration must be: explained, unique, pointing at something that exists, and complete in its bindings."""

import importlib
import inspect
import re
import sys
from collections.abc import Iterator
from types import ModuleType

import pytest

import exporters.exporter_executorch
import exporters.exporter_onnx  # noqa: F401
from exporters import exporter_onnx
from exporters.utils import REGISTRY, AbsentPackage, Registration, resolve

EVERYTHING = REGISTRY.select()
PATCHES = [registration for registration in EVERYTHING if registration.kind == "patch"]
UPSTREAM = re.compile(r"(https://github\.com/[\w.-]+/[\w.-]+/(issues|pull)/\d+|[\w.-]+/[\w.-]+#\d+|not filed)")

each = pytest.mark.parametrize("registration", EVERYTHING, ids=lambda registration: registration.name)
each_patch = pytest.mark.parametrize("registration", PATCHES, ids=lambda registration: registration.name)


@each
def test_says_what_it_does_why_and_where(registration: Registration) -> None:
    fields = registration.fields
    assert fields["summary"]
    for name in ("Why", "Upstream", "Seen in"):
        assert fields.get(name), f"{registration.location}: {name} is missing"
    assert UPSTREAM.search(fields["Upstream"]), f"{registration.location}: a link to an issue or a pull request, or 'not filed'"


@each
def test_is_named_for_its_kind(registration: Registration) -> None:
    prefix = {"patch": "_patch_", "fx_node_fix": "_fix_", "fx_program_fix": "_fix_", "translation": "_aten_", "ir_fix": "_fix_ir_"}
    assert registration.function.__name__.startswith(prefix[registration.kind])


@each
def test_has_a_test_of_its_own(registration: Registration, request: pytest.FixtureRequest) -> None:
    tests = (request.config.rootpath / "tests" / "workarounds").glob("test_*.py")
    assert any(registration.function.__name__ in path.read_text(encoding="utf-8") for path in tests)


@each_patch
def test_no_path_is_stale(registration: Registration) -> None:
    for path in registration.targets:
        try:
            _, _, raw = resolve(path)
        except AbsentPackage as absent:
            pytest.skip(f"{absent} is not installed")
        assert raw is not None


def bindings(function: object) -> Iterator[str]:
    """`module.name` of every imported module that holds a function under any name."""
    for module_name, module in list(sys.modules.items()):
        if isinstance(module, ModuleType) and module_name.partition(".")[0] in ("torch", "transformers", "executorch"):
            yield from (f"{module_name}.{name}" for name, value in list(vars(module).items()) if value is function)


@each_patch
def test_every_binding_of_a_function_is_listed(registration: Registration) -> None:
    """A name imported elsewhere (`from x import name`) is a binding of its own, which the patch of another doesn't reach.

    A patch that is meant for some of them says so in its field `Bindings`.
    """
    if registration.fields.get("Bindings"):
        return
    for path in registration.targets:
        try:
            owner, _, raw = resolve(path)
        except AbsentPackage:
            continue
        if inspect.isclass(owner) or not inspect.isfunction(raw):
            continue
        unlisted = {found for found in bindings(raw) if _canonical(found) not in {_canonical(known) for known in registration.targets}}
        assert not unlisted, f"{path} is also bound as {', '.join(sorted(unlisted))}"


def _canonical(path: str) -> tuple[int, str]:
    """A binding by the identity of its module: one module may be known under several names."""
    module, _, name = path.rpartition(".")
    return id(importlib.import_module(module)), name


def test_names_are_unique() -> None:
    names = [registration.name for registration in EVERYTHING]
    assert len(names) == len(set(names))


def test_the_tables_of_the_onnx_exporter_are_registered() -> None:
    translations = {target for registration in EVERYTHING if registration.kind == "translation" for target in registration.targets}
    assert translations == set(exporter_onnx._ONNX_TRANSLATION_TABLE)
    assert {registration.function for registration in EVERYTHING if registration.kind == "ir_fix"} == set(exporter_onnx._IR_FIXES)


def test_translations_of_operators_that_exist() -> None:
    from transformers.integrations import moe  # noqa: F401  (defines a custom operator)

    assert {str(target) for target in exporter_onnx._custom_translations()} == set(exporter_onnx._ONNX_TRANSLATION_TABLE)
