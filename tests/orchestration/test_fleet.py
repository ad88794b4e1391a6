"""A fleet through the local Dagster instance: every partition its true outcome and status, whoever is killed, and nothing done twice."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import dagster as dg
import psutil
import pytest
from dagster._core.storage.partition_status_cache import AssetPartitionStatus

from assets.partitions import parse_key, partitions_of, tagged_partitions
from exporters.errors import UsageError
from orchestration import fleet_command
from orchestration.fleet_command import Choice, queue_fleet, run_fleet
from orchestration.instance import open_instance
from orchestration.resources import PoolRunner
from orchestration.selection import Scope

MODELS = ["A", "B", "C", "D", "Segfaults", "Spins", "Eats", "Raises", "Silent", "Skipped", "Differs", "Crashes1", "Hangs"]
SLOW = [f"M{number}" for number in range(24)]


@pytest.fixture(autouse=True)
def small_zoo(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The fakes are the zoo: a `zoo.toml` names them."""
    names = [*MODELS, *SLOW]
    (tmp_path / "zoo.toml").write_text("".join(f'[checkpoints.{name}]\nhub = "fakes/{name}"\n' for name in names))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FAKE_LOG", str(tmp_path / "log"))


def runner(**options: Any) -> PoolRunner:
    return PoolRunner(chain="fake_chain:serve", **{"workers": 2, "timeout_seconds": 20, "memory_mb": 2048, **options})


def fleet(capsys: pytest.CaptureFixture[str], choice: Choice, **options: Any) -> tuple[int, dict[str, Any]]:
    status = run_fleet(choice, runner(**options), as_json=True)
    return status, json.loads(capsys.readouterr().out)


def outcomes(told: dict[str, Any]) -> dict[str, str]:
    return {row["model"]: row["outcome"] + (f" {row['error']['type']}" if row["error"] else "") for row in told["partitions"]}


def statuses(models: list[str], stage: str = "ir_fixed_model") -> dict[str, str | None]:
    """What Dagster says of each partition of an asset."""
    with open_instance() as instance:
        keys = [f"onnx|{model}" for model in models]
        found = instance.get_status_by_partition(dg.AssetKey(["onnx", stage]), keys, partitions_of("onnx", models)) or {}
        return {parse_key(key).keys_by_dimension["model"]: status.value if status else None for key, status in found.items()}


def executions(tmp_path: Path) -> list[str]:
    return sorted(line.partition("|")[2] for line in (tmp_path / "log").read_text().splitlines())


# ── Outcomes ──────────────────────────────────────────────────────────────────


def test_every_partition_has_its_own_outcome_and_dagster_says_the_same(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    models = [name for name in MODELS if name != "Hangs"]
    status, told = fleet(capsys, Choice(Scope(models)), timeout_seconds=10)
    assert status == 1
    assert outcomes(told) == {
        **dict.fromkeys("ABCD", "verified"),
        "Crashes1": "verified",
        "Segfaults": "failed SIGSEGV",
        "Spins": "failed Timeout",
        "Eats": "failed MemoryError",
        "Raises": "failed ValueError",
        "Silent": "failed NoReport",
        "Skipped": "skipped",
        "Differs": "ran",
    }
    made, failed = AssetPartitionStatus.MATERIALIZED.value, AssetPartitionStatus.FAILED.value
    assert statuses(models) == {
        **dict.fromkeys("ABCD", made),
        "Crashes1": made,
        **dict.fromkeys(["Segfaults", "Spins", "Eats", "Raises", "Silent"], failed),
        "Skipped": None,
        "Differs": made,  # the artifact is there; that it differs is the check's to say
    }
    assert statuses(models, "traced_program")["Segfaults"] == made


def test_a_fleet_over_backends_is_one_run_a_family(capsys: pytest.CaptureFixture[str]) -> None:
    status, told = fleet(capsys, Choice(Scope(["A", "B"], ["onnx", "dynamo", "executorch.xnnpack"])))
    assert status == 0
    assert len(told["partitions"]) == 6
    assert len(told["runs"]) == 3


def test_a_second_fleet_leaves_every_partition_materialized_and_fresh(capsys: pytest.CaptureFixture[str]) -> None:
    for _ in range(2):
        assert fleet(capsys, Choice(Scope(["A", "B"])))[0] == 0
    assert set(statuses(["A", "B"]).values()) == {"MATERIALIZED"}


def test_failed_runs_again_what_failed_and_nothing_else(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    fleet(capsys, Choice(Scope(["A", "Raises", "Skipped", "Differs", "B"])))
    (tmp_path / "log").unlink()
    status, told = fleet(capsys, Choice(Scope(), failed=True))
    assert status == 1
    assert executions(tmp_path) == ["Differs", "Raises"]
    assert [row["model"] for row in told["partitions"]] == ["Raises", "Differs"]


def test_nothing_to_do_is_said_and_well(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_fleet(Choice(Scope(), failed=True), runner(), as_json=False) == 0
    assert "nothing to do" in capsys.readouterr().out


def test_a_person_sees_a_line_a_partition_and_the_failures_by_stage_and_cause(capsys: pytest.CaptureFixture[str]) -> None:
    run_fleet(Choice(Scope(["A", "Raises", "Segfaults"])), runner(workers=1), as_json=False)
    said = capsys.readouterr().out
    assert "1/3 verified A onnx" in said
    assert "failed Raises onnx decomposed_graph: ValueError: no such operator" in said
    assert "1 at decomposed_graph, SIGSEGV: Segfaults" in said
    assert "3 of 3: verified 1, not verified 2, cached 0" in said
    assert "zooport fleet --failed" in said


def test_no_models_is_wrong_use() -> None:
    with pytest.raises(UsageError, match="which models"):
        run_fleet(Choice(Scope()), runner(), as_json=False)


# ── Whoever is killed ─────────────────────────────────────────────────────────

PROGRAM = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
from orchestration.fleet_command import Choice, queue_fleet, run_fleet
from orchestration.resources import PoolRunner
from orchestration.selection import Scope
runner = PoolRunner(chain="fake_chain:serve_slowly", workers=2, timeout_seconds=60, memory_mb=2048)
sys.exit(run_fleet(Choice(Scope([f"M{number}" for number in range(24)])), runner, as_json=False))
"""


def begun(tmp_path: Path, count: int) -> subprocess.Popen[str]:
    """A fleet of 24 in a process of its own, once `count` of its partitions were begun."""
    program = subprocess.Popen([sys.executable, "-c", PROGRAM], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 60
    while not (tmp_path / "log").exists() or len(executions(tmp_path)) < count:
        assert program.poll() is None, program.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return program


def zygotes(program: "subprocess.Popen[str]") -> list[psutil.Process]:
    return [each for each in psutil.Process(program.pid).children() if "exporters.zygote" in each.cmdline()]


def test_kill_9_of_the_run_s_process_loses_nothing_and_repeats_nothing_that_was_done(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    program = begun(tmp_path, 10)
    family = psutil.Process(program.pid).children(recursive=True)
    program.kill()
    program.communicate()
    assert psutil.wait_procs(family, timeout=5)[1] == []  # nothing goes on without it
    first = executions(tmp_path)
    (tmp_path / "log").unlink()
    with open_instance() as instance:
        done = {m for m, status in statuses(SLOW).items() if status == "MATERIALIZED"}
        assert [run.status for run in instance.get_runs()] == [dg.DagsterRunStatus.STARTED]
    assert len(done) >= 6
    assert fleet(capsys, Choice(Scope(), failed=True))[0] == 0
    again = executions(tmp_path)
    assert {*first, *again} == set(SLOW)
    assert len(done & set(again)) <= 1  # one whose last event was stored in the moment that the process was killed
    assert len(again) <= 25 - len(done)
    assert set(statuses(SLOW).values()) == {"MATERIALIZED"}
    with open_instance() as instance:
        ended = {run.status for run in instance.get_runs()}
        assert ended == {dg.DagsterRunStatus.FAILURE, dg.DagsterRunStatus.SUCCESS}


def test_kill_9_of_the_pool_s_process_ends_no_fleet(tmp_path: Path) -> None:
    program = begun(tmp_path, 10)
    (zygote,) = zygotes(program)
    zygote.kill()
    said, _ = program.communicate(timeout=60)
    assert program.returncode == 0, said
    assert "24 of 24: verified 24" in said
    counts = {model: executions(tmp_path).count(model) for model in set(executions(tmp_path))}
    assert len(counts) == 24
    assert sum(counts.values()) <= 26  # only what was running then was begun again


def test_ctrl_c_says_what_is_left_and_failed_goes_on(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    program = begun(tmp_path, 10)
    os.kill(program.pid, signal.SIGINT)
    said, complained = program.communicate(timeout=60)
    assert program.returncode == 130, said + complained
    assert "Traceback" not in complained
    assert "interrupted" in said
    assert "zooport fleet --failed" in said
    first = executions(tmp_path)
    (tmp_path / "log").unlink()
    assert fleet(capsys, Choice(Scope(), failed=True))[0] == 0
    assert {*first, *executions(tmp_path)} == set(SLOW)
    with open_instance() as instance:
        assert not [run for run in instance.get_runs() if not run.is_finished]


def test_a_second_fleet_in_the_same_home_is_refused_while_one_runs(tmp_path: Path) -> None:
    program = begun(tmp_path, 2)
    try:
        with pytest.raises(UsageError, match="a fleet is running"):
            run_fleet(Choice(Scope(["A"])), runner(), as_json=False)
    finally:
        os.kill(program.pid, signal.SIGINT)
        program.communicate(timeout=60)


def test_the_command_s_options_reach_the_fleet(monkeypatch: pytest.MonkeyPatch) -> None:
    from typer.testing import CliRunner

    from orchestration.cli import app

    seen: list[Any] = []
    monkeypatch.setattr(fleet_command, "run_fleet", lambda choice, runner, as_json: seen.append((choice, runner, as_json)) or 0)
    words = "fleet BertModel ViTModel --backend onnx,dynamo --workers 3 --timeout 60 --memory 4096 --sample 5 --stale --json"
    assert CliRunner().invoke(app, words.split()).exit_code == 0
    choice, made, as_json = seen[0]
    assert choice == Choice(Scope(("BertModel", "ViTModel"), ("onnx", "dynamo")), stale=True, sample=5)
    assert (made.workers, made.timeout_seconds, made.memory_mb, as_json) == (3, 60, 4096, True)


def test_a_queued_fleet_waits_for_the_daemon(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2]))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(Path(__file__).parents[2]), os.environ["PYTHONPATH"]]))
    queue_fleet(Choice(Scope(["A", "B"], ["onnx", "dynamo"])), as_json=True)
    ids = json.loads(capsys.readouterr().out)["runs"]
    with open_instance() as instance:
        runs = {run.run_id: run for run in instance.get_runs()}
    assert set(runs) == set(ids)
    assert {run.status for run in runs.values()} == {dg.DagsterRunStatus.QUEUED}
    asked = sorted(key for run in runs.values() for key in tagged_partitions(run.tags) or [])
    assert asked == ["dynamo|A", "dynamo|B", "onnx|A", "onnx|B"]
