"""Fleets that the daemon runs, with the daemon's own process and that of a run killed in the middle."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import dagster as dg
import psutil
import pytest
import yaml
from dagster._core.execution.backfill import BulkActionStatus

from exporters.zoo import catalogue
from orchestration.fleet_command import Choice, run_fleet
from orchestration.instance import dagster_home, open_instance
from orchestration.resources import PoolRunner
from orchestration.selection import Scope

# neighbours, so that Dagster makes two runs over ranges of them: sixteen and eight
MODELS = catalogue.names()[100:124]

DEFINITIONS = """
import dagster as dg
from orchestration.definitions import build
from orchestration.resources import PoolRunner

@dg.definitions
def defs():
    return build(PoolRunner(chain="fake_chain:serve_slowly", workers=1, timeout_seconds=60))
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home whose definitions run the fake chain."""
    (tmp_path / "definitions_of_test.py").write_text(DEFINITIONS)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), str(Path(__file__).parents[2]), os.environ["PYTHONPATH"]]))
    monkeypatch.setenv("DAGSTER_HOME", str(dagster_home()))
    monkeypatch.setenv("FAKE_LOG", str(tmp_path / "log"))
    settings = Path(dagster_home()) / "dagster.yaml"
    content = yaml.safe_load(settings.read_text())
    content["concurrency"]["runs"]["max_concurrent_runs"] = 1
    settings.write_text(yaml.safe_dump(content))
    return tmp_path


@pytest.fixture
def daemon(place: Path) -> Iterator[Callable[[], subprocess.Popen[bytes]]]:
    started: list[subprocess.Popen[bytes]] = []

    def start() -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "dagster._daemon", "run", "-m", "definitions_of_test"]
        log = (place / "daemon.log").open("ab")
        started.append(subprocess.Popen(command, cwd=place, stdout=log, stderr=log, start_new_session=True))
        return started[-1]

    yield start
    for each in started:
        family = [psutil.Process(each.pid), *psutil.Process(each.pid).children(recursive=True)] if psutil.pid_exists(each.pid) else []
        each.terminate()
        each.wait()
        for process in family:
            if process.is_running():
                process.kill()


def executions(place: Path) -> list[str]:
    log = place / "log"
    return sorted(log.read_text().splitlines()) if log.exists() else []


def wait_for(what: Callable[[], bool], seconds: float = 150) -> None:
    deadline = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < deadline
        time.sleep(0.2)


def request_backfill(place: Path) -> None:
    config = {"ops": {"request_backfill": {"config": {"models": list(MODELS), "backends": ["onnx"]}}}}
    (place / "config.yaml").write_text(yaml.safe_dump(config))
    command = [sys.executable, "-m", "dagster", "job", "execute", "-m", "definitions_of_test", "-j", "export_fleet", "-c", "config.yaml"]
    subprocess.run(command, cwd=place, check=True, capture_output=True)


def processes_of_runs() -> list[psutil.Process]:
    with open_instance() as instance:
        runs = instance.get_runs(dg.RunsFilter(statuses=[dg.DagsterRunStatus.STARTED]))
        tags = [run.tags["zooport/process"] for run in runs if "zooport/process" in run.tags]
    return [psutil.Process(int(tag.partition(" ")[2].partition("@")[0])) for tag in tags]


def made() -> set[str]:
    with open_instance() as instance:
        return {key.partition("|")[2] for key in instance.get_materialized_partitions(dg.AssetKey(["onnx", "ir_fixed_model"]))}


@pytest.mark.slow
def test_a_killed_daemon_and_a_killed_run_lose_nothing(
    place: Path, daemon: Callable[[], "subprocess.Popen[bytes]"], capsys: pytest.CaptureFixture[str]
) -> None:
    request_backfill(place)
    first = daemon()
    wait_for(lambda: len(executions(place)) >= 4)
    # the daemon dies; the run that it has launched goes on without it
    first.kill()
    first.wait()
    wait_for(lambda: len(executions(place)) >= 6)
    # and then the run's process, with its zygote and what that has forked
    (run,) = processes_of_runs()
    family = run.children(recursive=True)
    run.send_signal(signal.SIGKILL)
    assert psutil.wait_procs(family, timeout=10)[1] == []
    # nobody is there: what is left of the run can be finished by hand, at once
    assert run_fleet(Choice(Scope(), failed=True), PoolRunner(chain="fake_chain:serve", workers=2), as_json=True) == 0
    capsys.readouterr()
    # with a daemon again, the rest of the backfill goes on by itself
    daemon()
    wait_for(lambda: made() == set(MODELS))

    def ended() -> bool:
        with open_instance() as instance:
            (backfill,) = instance.get_backfills()
            return backfill.status not in (BulkActionStatus.REQUESTED, BulkActionStatus.CANCELING)

    wait_for(ended)
    counts = {key: executions(place).count(key) for key in set(executions(place))}
    assert set(counts) == {f"onnx|{name}" for name in MODELS}
    assert sum(counts.values()) <= len(MODELS) + 2, counts
