"""The command line where no model is exported: what it lists, and how it meets wrong use."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from exporters.backends import all_backends
from exporters.report import Report, StageReport
from exporters.reports import remember
from exporters.store import Store
from exporters.zoo import catalogue
from orchestration.cli import app


def zooport(*arguments: str) -> Result:
    return CliRunner().invoke(app, list(arguments))


def store(home: Path, report: Report) -> None:
    remember(Store(home / "store"), report)


# ── Start-up ──────────────────────────────────────────────────────────────────


def test_help_imports_nothing_heavy() -> None:
    code = """
import sys
from orchestration.cli import app
try:
    app(["--help"])
except SystemExit as end:
    print(sorted({"torch", "transformers", "dagster", "pydantic", "onnx"} & set(sys.modules)), end.code, file=sys.stderr)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stderr.strip() == "[] 0"


def test_without_arguments_it_shows_its_commands() -> None:
    result = zooport()
    for command in ("export", "zoo", "demo"):
        assert command in result.output


# ── Wrong use ─────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["export", "BertForSequenceClassification", "--backend", "onx"], "did you mean onnx"),
        (["export", "BertForSequenceClassification", "--backend", "onnx,"], "no backend called ''"),
        (["export", "BertForSequenceClassification", "--max", "sequence"], "--max sequence=512"),
        (["export", "BertForSequenceClassification", "--max", "sequence=0"], "--max sequence=512"),
        (["zoo", "--family", "txt"], "the families are"),
    ],
)
def test_wrong_use_is_two_lines_and_status_2(arguments: list[str], said: str) -> None:
    result = zooport(*arguments)
    assert result.exit_code == 2
    assert said in result.stderr
    assert len(result.stderr.splitlines()) == 2
    assert result.stdout == ""


def test_a_missing_argument_is_status_2() -> None:
    assert zooport("export").exit_code == 2


def test_a_home_that_cannot_be_made_is_told_in_two_lines(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("ZOOPORT_HOME", str(tmp_path / "file" / "home"))
    result = zooport("demo")
    assert result.exit_code == 1
    assert "set ZOOPORT_HOME" in result.stderr


# ── Listing ───────────────────────────────────────────────────────────────────


def test_zoo_lists_every_name() -> None:
    result = zooport("zoo")
    assert result.exit_code == 0
    for name in catalogue.names():
        assert name in result.stdout


def test_zoo_tells_the_last_outcomes(zooport_home: Path) -> None:
    done = StageReport(stage="traced_program")
    store(zooport_home, Report(model="ViTForImageClassification", backend="onnx", outcome="verified", stages=[done]))
    store(zooport_home, Report(model="ViTForImageClassification", backend="executorch.xnnpack", outcome="failed"))
    (zooport_home / "store" / "refs" / "reports" / "onnx" / "CLIPModel.json").write_text('{"half a rep')
    rows = {row["name"]: row for row in json.loads(zooport("zoo", "--family", "vision", "--json").stdout)}
    assert set(rows) == {name for name in catalogue.names() if catalogue.entry(name).family == "vision"}
    assert rows["ViTForImageClassification"]["outcomes"] == {"onnx": "verified", "executorch.xnnpack": "failed"}
    assert rows["ViTForImageClassification"]["builds"] is True
    assert rows["SwinForImageClassification"]["builds"] is None
    table = zooport("zoo").stdout
    assert "verified" in table
    assert all(backend in table for backend in all_backends())


# ── Named checkpoints ─────────────────────────────────────────────────────────


def test_a_named_checkpoint_is_listed(zooport_home: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    added = zooport("zoo", "add", "tickets", "support/tickets", "--task", "text-classification", "--revision", "v2")
    assert added.exit_code == 0
    assert str(zooport_home / "zoo.toml") in added.stdout.replace("\n", "")
    store(zooport_home, Report(model="tickets", backend="onnx", outcome="verified"))
    (row,) = json.loads(zooport("zoo", "--family", "checkpoint", "--json").stdout)
    assert row["name"] == "tickets"
    assert row["checkpoint"] == "support/tickets@v2"
    assert row["task"] == "text-classification"
    assert row["outcomes"] == {"onnx": "verified"}
    classes = json.loads(zooport("zoo", "--family", "text", "--json").stdout)
    assert {row["checkpoint"] for row in classes} == {None}
    assert zooport("zoo").stdout.count("tickets") == 1


def test_what_was_added_is_told_as_json(zooport_home: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    added = json.loads(zooport("zoo", "add", "tickets", "support/tickets", "--json").stdout)
    assert (added["name"], added["hub"], added["file"]) == ("tickets", "support/tickets", str(zooport_home / "zoo.toml"))


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["BertModel", "a/b"], "class of the zoo"),
        (["x", "a/b", "--task", "text-clasification"], "the tasks are"),
        (["x", "./nowhere"], "is not a folder"),
        (["taken", "a/b"], "--replace"),
    ],
)
def test_what_can_t_be_added_is_two_lines_and_status_2(
    zooport_home: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, arguments: list[str], said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    zooport("zoo", "add", "taken", "a/b")
    result = zooport("zoo", "add", *arguments)
    assert result.exit_code == 2
    assert said in result.stderr
    assert len(result.stderr.splitlines()) == 2


def test_an_unknown_model_is_told_a_named_checkpoint_near_it(zooport_home: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    zooport("zoo", "add", "support-tickets", "a/b")
    result = zooport("export", "support-ticket")
    assert result.exit_code == 2
    assert "did you mean support-tickets" in result.stderr
