"""Packages that a model needs and that aren't installed: what is skipped for them, and never fails. Imports no torch."""

import re
from importlib.util import find_spec

from exporters.zoo import catalogue

# what pip calls a module that has another name
_DISTRIBUTIONS = {"PIL": "Pillow"}
# transformers says for each package: "X requires the Y library but it was not found in your environment"
_REQUIRED = re.compile(r"requires the ([\w.-]+) library but it was not found")


def skip_reason(model: str) -> str:
    """Why a class of the zoo can't even be imported here, or an empty string; also for what is no class of the zoo."""
    required = catalogue.entry(model).requires if catalogue.has(model) else ""
    return reason(_pip_names([required])) if required and not _installed(required) else ""


def absent(error: BaseException | None) -> list[str]:
    """The packages, in pip's names, for whose absence `error`, or what it was raised from, was raised; none for any other error.

    An `ImportError` alone says little: a name that has moved, a module of an installed package that is gone. Those are failures.
    """
    while error is not None:
        if isinstance(error, ModuleNotFoundError) and error.name and not _installed(error.name):
            return _pip_names([error.name.partition(".")[0]])
        if isinstance(error, ImportError) and (found := _REQUIRED.findall(str(error))):
            return _pip_names(found)
        error = error.__cause__
    return []


def reason(packages: list[str]) -> str:
    """How a report says it."""
    return f"not installed: {' and '.join(packages)}"


def _pip_names(modules: list[str]) -> list[str]:
    return list(dict.fromkeys(_DISTRIBUTIONS.get(module, module) for module in modules))


def _installed(module: str) -> bool:
    return find_spec(module.partition(".")[0]) is not None
