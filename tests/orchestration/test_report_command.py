"""`zooport report`: text for people, JSON for programs, a page for browsers; wrong use in two lines."""

import json
import re
from collections import Counter
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from exporters.report import ErrorReport, Outcome, Parity, Report, StageReport
from exporters.reports import remember
from exporters.store import Store
from orchestration.cli import app
from orchestration.report.history import History


def zooport(*arguments: str) -> Result:
    return CliRunner().invoke(app, list(arguments))


def leave(home: Path, model: str, *, ok: bool, backend: str = "onnx") -> None:
    error = None if ok else ErrorReport(stage="lowered_onnx", type="DispatchError", message=f"no function for [aten.median], {model}")
    stages = [StageReport(stage="traced_program", cpu_seconds=2.0, peak_rss_mb=600, bytes=1000)]
    parity = [Parity(inputs="sample", ok=ok, max_abs_diff=float("inf"))]
    report = Report(model=model, backend=backend, outcome="verified" if ok else "failed", stages=stages, parity=parity, error=error, at=1e9)
    remember(Store(home / "store"), report)


def test_nothing_exported_yet_is_status_1_and_says_what_to_do() -> None:
    result = zooport("report")
    assert result.exit_code == 1
    assert "next: zooport export" in result.stdout


def test_it_says_what_broke_and_where(zooport_home: Path) -> None:
    leave(zooport_home, "BertModel", ok=True)
    leave(zooport_home, "ViTModel", ok=False)
    first = zooport("report")
    assert first.exit_code == 0
    assert "the first report" in first.stdout
    leave(zooport_home, "BertModel", ok=False)
    leave(zooport_home, "ViTModel", ok=True)
    leave(zooport_home, "T5Model", ok=True, backend="dynamo")
    lines = zooport("report").stdout.splitlines()
    assert lines[0].startswith("1 broke, 1 fixed, 1 new since 20")
    assert lines[1] == "upgraded since: nothing: the same packages and the same code of zooport"
    assert lines[2] == "  broken onnx lowered_onnx, 1 (a new cause): BertModel"
    assert lines[3].strip() == "DispatchError: no function for [aten.median], BertModel"
    assert lines[4].strip() == "again: zooport export BertModel --backend onnx"
    assert lines[5] == "  fixed onnx, 1: ViTModel"
    assert "zooport fleet --failed" in "".join(lines)
    assert any(line.split() == ["onnx", "1", "0", "1", "0", "4", "s", "2.0", "kB"] for line in lines)
    assert any("1 model (for 1 the only failure)  onnx, lowered_onnx: DispatchError" in line for line in lines)


def test_json_is_all_of_it_and_nothing_else(zooport_home: Path) -> None:
    leave(zooport_home, "BertModel", ok=True)
    zooport("report")
    leave(zooport_home, "BertModel", ok=False)
    result = zooport("report", "--json")
    data = json.loads(result.stdout, parse_constant=pytest.fail)  # Infinity is no JSON
    assert data["headline"]["broken"] == 1
    assert data["comparisons"][0]["changes"][0]["model"] == "BertModel"
    assert data["matrix"] == {"bert": {"onnx": {"failed": 1}}}
    assert [cluster["models"] for cluster in data["clusters"]] == [["BertModel"]]
    assert data["costs"][0]["cpu_seconds"]["total"] == 2.0
    assert set(data["rules"]) == {"broken", "worse", "fixed", "better", "slower", "bigger", "drifted", "new", "gone"}


def test_the_page_is_written_where_it_is_asked_for(zooport_home: Path, tmp_path: Path) -> None:
    leave(zooport_home, "BertModel", ok=True)
    target = tmp_path / "new" / "report.html"
    result = zooport("report", "--html", str(target))
    assert result.exit_code == 0
    assert str(target) in result.stdout.replace("\n", "")
    assert target.read_text().startswith("<!doctype html>")


def test_since_compares_with_another_moment(zooport_home: Path) -> None:
    leave(zooport_home, "BertModel", ok=True)
    zooport("report")
    leave(zooport_home, "ViTModel", ok=True)
    zooport("report")
    leave(zooport_home, "T5Model", ok=True)
    data = json.loads(zooport("report", "--since", "7d", "--json").stdout)
    assert [(each["label"], each["counts"]["new"]) for each in data["comparisons"]] == [("7d", 2), ("last report", 1)]
    assert len(History(Store(zooport_home / "store")).names()) == 3


@pytest.mark.parametrize("arguments", [("--since", "yesterday"), ("--since", "2099-01-01"), ("--html", ".")])
def test_wrong_use_is_two_lines_and_status_2(zooport_home: Path, arguments: tuple[str, str]) -> None:
    result = zooport("report", *arguments)
    assert result.exit_code == 2
    assert len(result.stderr.splitlines()) == 2
    assert not (zooport_home / "store" / "history").exists()


def test_a_page_that_cannot_be_written_is_two_lines_and_status_1(zooport_home: Path, tmp_path: Path) -> None:
    leave(zooport_home, "BertModel", ok=True)
    (tmp_path / "file").write_text("in the way")
    result = zooport("report", "--html", str(tmp_path / "file" / "report.html"))
    assert result.exit_code == 1
    assert len(result.stderr.splitlines()) == 2
    assert "name a file that can be written" in result.stderr


def test_what_is_in_a_message_is_not_taken_for_markup(zooport_home: Path) -> None:
    leave(zooport_home, "BertModel", ok=False)
    assert "no function for [aten.median], BertModel" in zooport("report").stdout


# ── Names, and status for machines ────────────────────────────────────────────


def test_names_and_causes_that_are_left_out_are_shown_on_demand(zooport_home: Path) -> None:
    names = [f"M{number}" for number in range(30)]
    for name in names:
        leave(zooport_home, name, ok=True)
    zooport("report")
    for position, name in enumerate(names):
        error = ErrorReport(stage="lowered_onnx", type="DispatchError", message=f"cause {'abcdefghij'[position % 10]} {'x' * 300}")
        remember(Store(zooport_home / "store"), Report(model=name, backend="onnx", outcome="failed", error=error))
    for name in names[20:]:
        leave(zooport_home, name, ok=False)
    short = zooport("report").stdout
    assert "and 4 more" in short
    assert "3 more causes" in short
    assert "x" * 300 not in short
    assert "zooport report --all" in short
    whole = zooport("report", "--all").stdout
    assert all(name in whole for name in names)
    assert "x" * 300 in whole
    assert "more" not in whole.replace("once more", "")
    assert "--all" not in whole


def test_check_is_status_1_as_long_as_something_is_broken_since(zooport_home: Path) -> None:
    leave(zooport_home, "BertModel", ok=True)
    assert zooport("report", "--check").exit_code == 0
    leave(zooport_home, "ViTModel", ok=False)
    assert zooport("report", "--check").exit_code == 0  # never worked: nothing broke
    leave(zooport_home, "BertModel", ok=False)
    assert zooport("report").exit_code == 0
    assert zooport("report", "--check", "--json").exit_code == 1
    assert zooport("report", "--check").exit_code == 1  # looking twice hides nothing
    leave(zooport_home, "BertModel", ok=True)
    assert zooport("report", "--check").exit_code == 0


# ── One truth ─────────────────────────────────────────────────────────────────


def test_text_json_and_page_count_the_same(zooport_home: Path, tmp_path: Path) -> None:
    stopped = ErrorReport(stage="verification", type="RuntimeError", message="it can't be run")
    outcomes: list[Outcome] = ["verified", "verified", "failed", "exported", "loaded", "ran", "matched", "skipped"]
    for position, outcome in enumerate(outcomes):
        error = stopped if outcome in ("failed", "loaded", "ran") else None
        remember(Store(zooport_home / "store"), Report(model=f"M{position}", backend="onnx", outcome=outcome, error=error))
    expected = {"verified": 2, "unverified": 4, "failed": 1, "skipped": 1}
    text = zooport("report", "--html", str(tmp_path / "report.html")).stdout.splitlines()
    header = next(line.split() for line in text if line.startswith("backend"))
    row = next(line.split() for line in text if line.startswith("onnx"))
    assert {name: int(row[header.index(name)]) for name in expected} == expected
    data = json.loads(zooport("report", "--json").stdout)
    assert data["backends"]["onnx"] == expected
    assert {name: data["headline"][name] for name in expected} == expected
    assert sum((Counter(row["onnx"]) for row in data["matrix"].values()), Counter()) == expected
    found = re.search(r'id="data">(.*?)</script>', (tmp_path / "report.html").read_text(), re.DOTALL)
    assert found is not None
    page = json.loads(found[1])
    assert page["tallies"]["onnx"] == [*expected.values()]
    assert Counter(row[3] for row in page["partitions"]) == dict(enumerate(expected.values()))
