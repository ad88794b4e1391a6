"""Imports go one way, and what has to start fast imports nothing heavy."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FORBIDDEN = {
    "exporters": {"assets", "orchestration", "dagster"},
    "assets": {"orchestration", "torch", "transformers"},
}
# the exporters take any module: they know neither the zoo nor the store
EXPORTERS_FORBIDDEN = {"exporters.zoo", "exporters.store", "exporters.chain", "exporters.source"}


def imported(path: Path) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module)
            names.update(f"{node.module}.{alias.name}" for alias in node.names)
    return names


def within(names: set[str], packages: set[str]) -> set[str]:
    return {name for name in names if any(name == package or name.startswith(f"{package}.") for package in packages)}


@pytest.mark.parametrize("package", sorted(FORBIDDEN))
def test_packages_import_in_one_direction(package: str) -> None:
    found = {str(path): within(imported(path), FORBIDDEN[package]) for path in (ROOT / package).rglob("*.py")}
    assert {path: names for path, names in found.items() if names} == {}


@pytest.mark.parametrize("exporter", ["utils", "exporter_dynamo", "exporter_onnx", "exporter_executorch", "stages", "signature", "shapes"])
def test_the_exporters_know_neither_zoo_nor_store(exporter: str) -> None:
    assert within(imported(ROOT / "exporters" / f"{exporter}.py"), EXPORTERS_FORBIDDEN) == set()


@pytest.mark.parametrize(
    "module", ["exporters", "exporters.report", "exporters.backends", "exporters.chain", "exporters.zoo.catalogue", "orchestration.cli"]
)
def test_light_modules_import_no_torch(module: str) -> None:
    code = f"import sys, {module}; sys.exit(bool({{'torch', 'transformers', 'onnxruntime', 'executorch'}} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_every_module_says_what_it_is_for() -> None:
    silent = [
        str(path.relative_to(ROOT))
        for package in ("exporters", "assets", "orchestration")
        for path in (ROOT / package).rglob("*.py")
        if path.read_text().strip() and not ast.get_docstring(ast.parse(path.read_text()))
    ]
    assert silent == []


def test_files_stay_small() -> None:
    large = {
        str(path.relative_to(ROOT)): len(path.read_text().splitlines()) for path in ROOT.glob("*/**/*.py") if ".venv" not in path.parts
    }
    assert {name: lines for name, lines in large.items() if lines > 600} == {}
