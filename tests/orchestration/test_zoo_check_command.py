"""`zooport zoo --check forward`: what it prints, when it is satisfied, and that it goes on."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from exporters.zoo import catalogue, check
from orchestration.cli import app
from orchestration.zoo_check_command import INTERRUPTED

OTHER = [name for name in catalogue.names() if catalogue.entry(name).family == "other"]


def zooport(*arguments: str) -> Any:
    return CliRunner().invoke(app, list(arguments))


@pytest.fixture
def home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("ZOOPORT_HOME", str(tmp_path))
    return tmp_path


@pytest.fixture
def outcome(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """What each class comes to, instead of trying it."""
    outcomes: dict[str, str] = {}

    def try_in_child(name: str) -> dict[str, Any]:
        if outcomes.get(name) == "interrupt":
            raise KeyboardInterrupt
        return {"name": name, "outcome": outcomes.get(name, "ok"), "stage": "forward", "reason": "why", "cpu_seconds": 1.0}

    monkeypatch.setattr(check, "try_in_child", try_in_child)
    monkeypatch.setattr(check, "_import_once", lambda: None)
    return outcomes


def test_json_has_counts_and_a_result_a_name(home: Path, outcome: dict[str, str]) -> None:
    result = zooport("zoo", "--check", "forward", "--family", "other", "--json")
    assert result.exit_code == 0
    printed = json.loads(result.stdout)
    assert [row["name"] for row in printed["results"]] == OTHER
    assert printed["summary"]["classes"]["ok"] == len(OTHER)


def test_below_the_bar_is_status_1(home: Path, outcome: dict[str, str]) -> None:
    outcome[OTHER[0]] = "failed"
    result = zooport("zoo", "--check", "forward", "--family", "other")
    assert result.exit_code == 1
    assert f"failed  {OTHER[0]}: forward: why" in result.stdout


def test_only_what_failed_is_tried_again(home: Path, outcome: dict[str, str]) -> None:
    outcome[OTHER[0]] = "failed"
    zooport("zoo", "--check", "forward", "--family", "other")
    outcome[OTHER[0]] = "ok"
    assert zooport("zoo", "--check", "forward", "--family", "other", "--failed").exit_code == 0
    lines = check.results_file(home).read_text().splitlines()
    assert len(lines) == len(OTHER) + 1


def test_interrupted_goes_on_where_it_was(home: Path, outcome: dict[str, str]) -> None:
    outcome[OTHER[1]] = "interrupt"
    result = zooport("zoo", "--check", "forward", "--family", "other")
    assert result.exit_code == INTERRUPTED
    assert "goes on from there" in result.stderr
    assert list(check.read_results(check.results_file(home))) == OTHER[:1]
    outcome.clear()
    again = zooport("zoo", "--check", "forward", "--family", "other")
    assert again.exit_code == 0
    assert f"{len(OTHER) - 1} of {len(OTHER)} to try" in again.stderr


def test_internal_classes_are_tried_apart_and_have_no_bar(home: Path, outcome: dict[str, str]) -> None:
    names = [name for name in catalogue.names(internal=True) if catalogue.entry(name).family == "audio"]
    outcome.update(dict.fromkeys(names, "failed"))
    result = zooport("zoo", "--check", "forward", "--internal", "--family", "audio", "--json")
    assert result.exit_code == 0
    assert [row["name"] for row in json.loads(result.stdout)["results"]] == names


def test_the_document_counts_the_internal_classes_that_were_tried(home: Path, outcome: dict[str, str], tmp_path: Path) -> None:
    (name, *_) = [name for name in catalogue.names(internal=True) if catalogue.entry(name).family == "audio"]
    outcome[name] = "failed"
    zooport("zoo", "--check", "forward", "--internal", "--family", "audio")
    zooport("zoo", "--check", "forward", "--family", "other", "--docs", str(tmp_path / "zoo.md"))
    audio = sum(catalogue.entry(name).family == "audio" for name in catalogue.names(internal=True))
    text = (tmp_path / "zoo.md").read_text()
    assert f"{audio - 1} of {len(catalogue.names(internal=True))} internal classes" in text
    assert name not in text


def test_writes_the_document(home: Path, outcome: dict[str, str], tmp_path: Path) -> None:
    zooport("zoo", "--check", "forward", "--family", "other", "--docs", str(tmp_path / "zoo.md"))
    assert (tmp_path / "zoo.md").read_text().startswith("# The zoo")


@pytest.mark.parametrize("arguments", [("--check", "backward"), ("--check", "forward", "--family", "wood")])
def test_what_there_isn_t_is_status_2(home: Path, arguments: tuple[str, ...]) -> None:
    assert zooport("zoo", *arguments).exit_code == 2


def test_a_document_that_can_t_be_written_is_told(home: Path, outcome: dict[str, str], tmp_path: Path) -> None:
    result = zooport("zoo", "--check", "forward", "--family", "other", "--docs", str(tmp_path / "no" / "zoo.md"))
    assert result.exit_code == 1
    assert "can't be written" in result.stderr
