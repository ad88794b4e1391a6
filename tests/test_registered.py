"""What a process registers or leaves out itself is part of what its exports are made with."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import exporters.exporter_dynamo  # noqa: F401
from exporters import utils
from exporters.code_index import CodeIndex, code_index
from exporters.registered import with_registered
from exporters.utils import REGISTRY, leaving_out, register_patch


@pytest.fixture(scope="module")
def index() -> CodeIndex:
    return code_index()


@pytest.fixture
def planted() -> Iterator[Callable[[str], None]]:
    """Register a patch that closes over a text; it is gone after the test."""
    before = REGISTRY.select()

    def plant(text: str) -> None:
        def _patch_planted(original: Callable[..., Any]) -> Callable[..., Any]:
            return lambda *args, **kwargs: (text, original(*args, **kwargs))

        register_patch("dynamo", "torch.where")(_patch_planted)

    yield plant
    for registration in REGISTRY.select():
        if registration not in before:
            REGISTRY.remove(registration)


def names(index: CodeIndex) -> set[str]:
    return {each.name for each in index.workarounds}


def test_a_process_that_registers_nothing_has_the_index_as_it_is(index: CodeIndex) -> None:
    assert with_registered(index) is index


def test_a_callers_own_workaround_is_there_while_it_is_registered(index: CodeIndex, planted: Callable[[str], None]) -> None:
    planted("a")
    (found,) = (each for each in with_registered(index).workarounds if each.name == "dynamo:_patch_planted")
    assert (found.kind, found.scope, found.targets, found.file) == ("patch", "dynamo", ("torch.where",), __file__)


def test_what_it_closes_over_is_part_of_it(index: CodeIndex, planted: Callable[[str], None]) -> None:
    planted("a")
    first = with_registered(index).workarounds[-1]
    REGISTRY.remove(REGISTRY.select()[-1])
    planted("a")
    again = with_registered(index).workarounds[-1]
    REGISTRY.remove(REGISTRY.select()[-1])
    planted("b")
    other = with_registered(index).workarounds[-1]
    assert first.fingerprint == again.fingerprint != other.fingerprint


def test_what_is_left_out_is_not_there(index: CodeIndex) -> None:
    name = "dynamo:_patch_cast_classifier"
    with leaving_out([name]):
        assert names(with_registered(index)) == names(index) - {name}
    assert with_registered(index) is index


def test_what_was_taken_out_of_the_registry_is_not_there(index: CodeIndex, monkeypatch: pytest.MonkeyPatch) -> None:
    gone = next(each for each in REGISTRY.select() if each.name == "dynamo:_patch_cast_classifier")
    monkeypatch.setattr(utils.REGISTRY, "_registrations", [each for each in REGISTRY.select() if each is not gone])
    assert names(with_registered(index)) == names(index) - {gone.name}


def test_it_imports_no_torch() -> None:
    program = "import sys; from exporters.code_index import code_index; from exporters.registered import with_registered\n"
    program += "index = code_index(); assert with_registered(index) is index; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", program], check=True)
