"""The code index, corrected by what this process has registered on its own: workarounds of a caller, of a test, and those left out."""

import inspect
import sys
import uuid
from dataclasses import replace
from typing import get_args

from exporters.code_index import CodeIndex, Workaround
from exporters.code_reading import PACKAGE
from exporters.store import json_digest
from exporters.utils import REGISTRY, Kind, Registration, selected


def with_registered(index: CodeIndex) -> CodeIndex:
    """The index as this process would export: with registrations from outside the package, without what was taken out of the registry.

    What a module that isn't imported would register counts as registered.
    """
    present = {(each.kind, each.name) for kind in get_args(Kind) for each in selected(kind)}
    kept = [each for each in index.workarounds if _module(each) not in sys.modules or (each.kind, each.name) in present]
    own = [_workaround(each) for each in REGISTRY.select() if not _is_ours(each) and (each.kind, each.name) in present]
    return index if len(kept) == len(index.workarounds) and not own else replace(index, workarounds=(*kept, *own))


def _is_ours(registration: Registration) -> bool:
    return registration.function.__module__.partition(".")[0] == PACKAGE


def _module(workaround: Workaround) -> str:
    return workaround.file.removesuffix(".py").replace("/", ".")


def _workaround(registration: Registration) -> Workaround:
    function = inspect.unwrap(registration.function)
    code = function.__code__
    targets = tuple(registration.targets)
    return Workaround(
        registration.name, registration.kind, registration.scope, targets, _fingerprint(function), code.co_filename, code.co_firstlineno
    )


def _fingerprint(function: object) -> str:
    """Of a function's text and of what it closes over; of one without text, one that nothing equals."""
    try:
        text = inspect.getsource(function)  # type: ignore[arg-type]
    except (OSError, TypeError):
        return uuid.uuid4().hex
    # an object shows its address: what can't be compared is not taken for the same
    cells = getattr(function, "__closure__", None) or ()
    return json_digest([text, [repr(cell.cell_contents) for cell in cells]])
