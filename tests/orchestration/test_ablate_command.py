"""`zooport ablate` around the runs: what it takes, what it prints, how it ends. The runs themselves are replaced."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest
from typer.testing import CliRunner

from exporters import ablation_run
from exporters.ablation import Difference, Partition, PartitionResult, Verdict
from exporters.code_index import Workaround, code_index
from exporters.home import home
from exporters.ledger import Record, Reference
from exporters.report import Deeds, StageReport
from exporters.store import Store
from orchestration.cli import app

NAME = "onnx:_aten_sort_stable"


class FakeRunner:
    """Gives each partition the verdict under its model's name; keeps what it was asked to compare."""

    verdicts: dict[str, Verdict | type[BaseException]] = {}
    compared: list[tuple[str, str]] = []

    def __init__(self, home: Path, store: Store, index: Any, *, on_run: Callable[[str], None], runs: bool) -> None:
        self._on_run, self.runs = on_run, runs

    def compare(self, workaround: Workaround, partition: Partition) -> PartitionResult:
        self.compared.append((workaround.name, partition.model))
        self._on_run(f"{partition.model}, without {workaround.name}")
        print("a library prints this")
        verdict = self.verdicts.get(partition.model, "harmless")
        if not self.runs:
            verdict = "unclear"
        if not isinstance(verdict, str):
            raise verdict
        nodes = Difference(what="ir_fixed_model: nodes", with_it=100, without_it=90)
        return PartitionResult(
            model=partition.model,
            backend=partition.backend,
            stage="lowered_onnx",
            verdict=verdict,
            why="as it was",
            outcomes=("verified", "verified"),
            differences=[nodes],
            cpu_seconds=(1.0, 2.0),
        )


@pytest.fixture(autouse=True)
def fake(monkeypatch: pytest.MonkeyPatch) -> type[FakeRunner]:
    monkeypatch.setattr(ablation_run, "Runner", FakeRunner)
    monkeypatch.setattr(FakeRunner, "verdicts", {})
    monkeypatch.setattr(FakeRunner, "compared", [])
    return FakeRunner


@pytest.fixture(autouse=True)
def exports(zooport_home: Path) -> None:
    """Two exports that one workaround had a part in, and one that none had."""
    store = Store(home() / "store")
    for model, used in (("BertModel", {NAME: 1}), ("ViTModel", {NAME: 2}), ("GPT2Model", {})):
        reference = Reference(
            model=model,
            digest="sha256:0",
            parts={"input": "", "config": {}, "weights": ""},
            recipe=[],
            record=Record(deeds=Deeds(used=used)),
            report=StageReport(stage="lowered_onnx"),
            made_at=0.0,
        )
        store.write_ref("onnx", "lowered_onnx", "onnx", model, content=reference.model_dump())


def ablate(*arguments: str) -> Any:
    return CliRunner().invoke(app, ["ablate", *arguments])


def test_a_line_a_partition_then_the_verdict(fake: type[FakeRunner]) -> None:
    fake.verdicts = {"ViTModel": "needed"}
    result = ablate("_aten_sort_stable")
    assert result.exit_code == 0
    assert fake.compared == [(NAME, "BertModel"), (NAME, "ViTModel")]
    lines = result.stdout.splitlines()
    assert lines[0].startswith(NAME)
    assert lines[1].strip() == "BertModel, onnx, from lowered_onnx: harmless: as it was"
    assert lines[2].strip() == "ir_fixed_model: nodes 100 -> 90; CPU 1.0 s -> 2.0 s"
    assert lines[3].strip() == "ViTModel, onnx, from lowered_onnx: needed: as it was"
    assert lines[5].split() == ["verdict", "needed"]


def test_json_is_a_line_a_workaround_and_nothing_else() -> None:
    result = ablate(NAME, "onnx:_aten_cummax", "--json")
    rows = [json.loads(line) for line in result.stdout.splitlines()]
    assert [(row["workaround"], row["verdict"], len(row["partitions"])) for row in rows] == [
        (NAME, "obsolete", 2),
        ("onnx:_aten_cummax", "untouched", 0),
    ]
    assert "a library prints this" in result.stderr
    assert "without onnx:_aten_sort_stable" in result.stderr


def test_of_some_models_only_nothing_is_called_obsolete(fake: type[FakeRunner]) -> None:
    result = ablate(NAME, "--models", "ViTModel", "--json")
    assert json.loads(result.stdout)["verdict"] == "harmless"
    assert fake.compared == [(NAME, "ViTModel")]


def test_nothing_is_run_that_was_not_asked_for() -> None:
    assert json.loads(ablate(NAME, "--no-run", "--json").stdout)["verdict"] == "unclear"


def test_one_export_that_needs_it_can_be_enough(fake: type[FakeRunner]) -> None:
    fake.verdicts = {"BertModel": "needed"}
    (row,) = map(json.loads, ablate(NAME, "--one-is-enough", "--json").stdout.splitlines())
    assert row["verdict"] == "needed"
    assert [(each["model"], each["verdict"]) for each in row["partitions"]] == [("BertModel", "needed"), ("ViTModel", "unclear")]
    fake.verdicts = {"ViTModel": "needed"}
    (row,) = map(json.loads, ablate(NAME, "--one-is-enough", "--json").stdout.splitlines())
    assert [each["verdict"] for each in row["partitions"]] == ["harmless", "needed"]


def test_all_is_every_registered_one_and_a_document(tmp_path: Path) -> None:
    target = tmp_path / "workarounds.md"
    result = ablate("--all", "--json", "--docs", str(target))
    assert result.exit_code == 0
    names = [each.name for each in code_index().workarounds]
    assert [json.loads(line)["workaround"] for line in result.stdout.splitlines()] == names
    rows = [line for line in target.read_text().splitlines() if line.startswith("| `")]
    assert len(rows) == len(names)


@pytest.mark.parametrize(
    ("verdict", "arguments", "status"),
    [
        ("needed", [NAME], 0),
        ("harmful", [NAME], 0),
        ("unclear", [NAME], 1),
        ("unclear", ["--all"], 1),
        ("needed", ["onnx:_aten_cummax"], 1),
        (KeyboardInterrupt, [NAME], 130),
    ],
)
def test_exit_status(fake: type[FakeRunner], verdict: Verdict, arguments: list[str], status: int) -> None:
    fake.verdicts = {"BertModel": verdict, "ViTModel": verdict}
    assert ablate(*arguments).exit_code == status


def test_an_interrupt_prints_what_there_is(fake: type[FakeRunner], tmp_path: Path) -> None:
    fake.verdicts = {"ViTModel": KeyboardInterrupt}
    result = ablate(NAME, "--json", "--docs", str(tmp_path / "workarounds.md"))
    (row,) = [json.loads(line) for line in result.stdout.splitlines()]
    assert [each["model"] for each in row["partitions"]] == ["BertModel"]
    assert row["verdict"] == "harmless"  # and not obsolete: not all were tried
    assert "goes on from there" in result.stderr
    assert not (tmp_path / "workarounds.md").exists()


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ([], "name a workaround, or say --all"),
        ([NAME, "--all"], "name a workaround, or say --all"),
        (["onnx:_aten_sort_stabel"], f"did you mean {NAME}"),
        ([NAME, "--models", "LlamaModel"], "the store has no export of LlamaModel"),
    ],
)
def test_wrong_use_is_two_lines(arguments: list[str], says: str) -> None:
    result = ablate(*arguments)
    assert result.exit_code == 2
    assert says in result.stderr
    assert "Traceback" not in result.stderr


HANGING = """
import signal, subprocess, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
from exporters import ablation_run

def work(plan, weights, folder, cpu_seconds, say):
    # as a verification does: in a session of its own
    subprocess.run([sys.executable, "-c", "import time; time.sleep(600)", str(folder)], start_new_session=True)

ablation_run._work = work
ablation_run.warm_up = lambda family: None
sys.argv = ["zooport", "ablate", "_aten_sort_stable", "--models", "BertModel"]
from orchestration.cli import main
main()
"""


def hanging(pid: int) -> list[psutil.Process]:
    return [
        child for child in psutil.Process(pid).children(recursive=True) if child.cmdline()[1:3] == ["-c", "import time; time.sleep(600)"]
    ]


def test_ctrl_c_ends_the_child_and_what_it_started() -> None:
    store = Store(home() / "store")
    store.write_ref("samples", "BertModel", content={"digest": "d", "weights": "w"})
    found = store.read_ref("onnx", "lowered_onnx", "onnx", "BertModel")
    assert found is not None
    store.write_ref("onnx", "traced_program", "onnx", "BertModel", content=found)  # a trace is made from no artifact
    program = subprocess.Popen([sys.executable, "-c", HANGING], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        deadline = time.monotonic() + 60
        while not (children := hanging(program.pid)):
            assert program.poll() is None, program.communicate()
            assert time.monotonic() < deadline
            time.sleep(0.1)
        os.kill(program.pid, signal.SIGINT)
        _, said = program.communicate(timeout=30)
    finally:
        program.kill()
    assert program.returncode == 130
    assert "goes on from there" in said
    assert "Traceback" not in said
    assert not any(child.is_running() and child.status() != psutil.STATUS_ZOMBIE for child in children)


def test_references_of_another_version_are_told() -> None:
    Store(home() / "store").write_ref("onnx", "lowered_onnx", "onnx", "OldModel", content={"key": "k"})
    assert "onnx, OldModel, lowered_onnx: another version of zooport made it" in ablate(NAME).stderr


def test_a_document_that_cannot_be_written_is_one_error(tmp_path: Path) -> None:
    result = ablate(NAME, "--docs", str(tmp_path / "nowhere" / "workarounds.md"))
    assert result.exit_code == 1
    assert "can't be written" in result.stderr
