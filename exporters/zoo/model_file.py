"""A Python file that builds a model and its inputs: how a module of one's own comes to be exported by name.

The file has a function `build()` that returns the module, the keyword inputs to trace it with, and further ones of the same structure; the
axes that differ between them are those that vary. Random numbers are seeded before it is run. What it imports has to be installed.
"""

import importlib.util
import sys
from pathlib import Path
from typing import Any

import torch
from torch import nn

from exporters.errors import UsageError
from exporters.zoo.sample import Sample

_NEXT = "end it with `def build(): return module, {name: tensor}, {name: tensor of another size}`"


def load(path: Path) -> Sample:
    """The sample that a file builds.

    Raises:
        UsageError: `build` isn't there, or doesn't return a module and one or more sets of keyword inputs.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        build = getattr(_run(path), "build", None)
        if not callable(build):
            raise UsageError(f"{path} has no function `build`", next=_NEXT)
        built: Any = build()
    match built:
        case (nn.Module() as model, dict() as inputs, *others) if all(isinstance(each, dict) for each in others):
            names = ["other", *(f"other_{number}" for number in range(2, len(others) + 1))]
            return Sample(model.eval(), inputs, dict(zip(names, others, strict=False)), axes=(), source=f"build() of {path.name}")
    raise UsageError(f"build() of {path} returns no module with keyword inputs", next=_NEXT)


def _run(path: Path) -> Any:
    """The file as a module under its own name, where what looks for a class' source finds it."""
    name = f"model_file_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None, f"{path} is no Python file"
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module
