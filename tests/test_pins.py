"""Workarounds belong to versions: what is installed is what pyproject.toml pins."""

import tomllib
from importlib.metadata import version
from pathlib import Path

import pytest

PROJECT = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())["project"]
PINS = dict(line.split("==") for line in PROJECT["dependencies"] if "==" in line)


def test_the_runtimes_and_exporters_are_pinned() -> None:
    assert {"torch", "transformers", "executorch", "onnx", "onnxscript", "onnx-ir", "onnxruntime", "dagster"} <= set(PINS)


@pytest.mark.parametrize("package", sorted(PINS))
def test_the_installed_version_is_the_pinned_one(package: str) -> None:
    assert version(package).partition("+")[0] == PINS[package]
