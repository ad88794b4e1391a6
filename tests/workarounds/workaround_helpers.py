"""What the tests of workarounds share: leave one out, export a small module, compare with eager."""

import contextlib
import copy
from collections.abc import Iterable, Mapping
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils import _pytree as pytree

from exporters import exporter_onnx
from exporters.configs import OnnxConfig
from exporters.exported_onnx import ExportedOnnx
from exporters.exporter_onnx import OnnxExporter
from exporters.shapes import varying
from exporters.utils import REGISTRY, Registration, apply_patches, resolve

Inputs = Mapping[str, Any]


def registration(name: str) -> Registration:
    """The registration called `name` (`onnx:_fix_symbolic_split`)."""
    return next(known for known in REGISTRY.select() if known.name == name)


def leave_out(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Do without one workaround for the rest of the test."""
    dropped = registration(name)
    monkeypatch.setattr(REGISTRY, "_registrations", [known for known in REGISTRY.select() if known is not dropped])
    if dropped.kind == "translation":
        for target in dropped.targets:
            monkeypatch.delitem(exporter_onnx._ONNX_TRANSLATION_TABLE, target)


def originals(name: str) -> dict[str, Any]:
    """What the paths of a patch hold now."""
    return {path: resolve(path)[2] for path in registration(name).targets}


def assert_restores(name: str, backend: str = "dynamo") -> None:
    """Every path of a patch is replaced inside, and holds what it held again after an exception."""
    before = originals(name)
    with contextlib.suppress(KeyError), apply_patches(backend):
        assert all(originals(name)[path] is not before[path] for path in before)
        raise KeyError
    assert originals(name) == before


def export_onnx(module: nn.Module, inputs: Inputs, *others: Inputs) -> ExportedOnnx:
    """Export with the axes dynamic that differ between the input sets; static where only one is given."""
    if not others:
        return OnnxExporter().export(module.eval(), inputs)
    shapes = varying(inputs, {str(index): other for index, other in enumerate(others)})
    return OnnxExporter().export(module.eval(), inputs, config=OnnxConfig(dynamic=True, dynamic_shapes=shapes.dynamic_shapes))


def fired(exported: ExportedOnnx) -> set[str]:
    """Names of the workarounds that did something in any stage."""
    return {name for stage in exported.stages for name in stage.seen.fired}


def assert_matches(exported: ExportedOnnx, module: nn.Module, input_sets: Iterable[Inputs]) -> None:
    """ONNX Runtime gives what eager gives: structure, dtype, shape, values."""
    for inputs in input_sets:
        with torch.no_grad():
            expected = pytree.tree_leaves(module(**copy.deepcopy(dict(inputs))))
        actual = pytree.tree_leaves(exported(**copy.deepcopy(dict(inputs))))
        assert len(actual) == len(expected)
        for got, wanted in zip(actual, expected, strict=True):
            torch.testing.assert_close(got, wanted, atol=1e-4, rtol=1e-3, equal_nan=True)
