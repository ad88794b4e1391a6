"""A run whose process is gone is closed by whoever looks next on this machine."""

import os
import subprocess
import sys
import uuid
from collections.abc import Iterator

import dagster as dg
import psutil
import pytest

from orchestration.run_processes import FLEET_TAG, close_abandoned_runs, lost_runs, process_tags


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    with dg.DagsterInstance.ephemeral() as made:
        yield made


def started(instance: dg.DagsterInstance, process: str = "", **tags: str) -> str:
    """A run that lives in this process, or in `process`."""
    run_id = str(uuid.uuid4())
    lives = process_tags(run_id) | ({"zooport/process": f"{run_id} {process}"} if process else {})
    run = dg.DagsterRun(job_name="export_onnx", run_id=run_id, status=dg.DagsterRunStatus.STARTED, tags={**lives, **tags})
    return instance.add_run(run).run_id


def status(instance: dg.DagsterInstance, run_id: str) -> dg.DagsterRunStatus:
    run = instance.get_run_by_id(run_id)
    assert run is not None
    return run.status


def ended_process() -> str:
    child = subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE)
    name = f"{child.pid}@{psutil.Process(child.pid).create_time():.0f}"
    child.communicate()
    return name


def test_a_run_that_lives_is_left_alone(instance: dg.DagsterInstance) -> None:
    run = started(instance)
    assert close_abandoned_runs(instance) == []
    assert status(instance, run) == dg.DagsterRunStatus.STARTED


def test_a_run_whose_process_is_gone_fails_and_says_what_goes_on(instance: dg.DagsterInstance) -> None:
    gone = ended_process()
    of_daemon, of_fleet = started(instance, gone), started(instance, gone, **{FLEET_TAG: "one"})
    assert set(close_abandoned_runs(instance)) == {of_daemon, of_fleet}
    assert status(instance, of_daemon) == status(instance, of_fleet) == dg.DagsterRunStatus.FAILURE
    said = {run: " ".join(entry.message for entry in instance.all_logs(run)) for run in (of_daemon, of_fleet)}
    assert "lost_chunks" in said[of_daemon]
    assert "zooport fleet --failed" in said[of_fleet]
    assert close_abandoned_runs(instance) == []


def test_a_process_that_has_its_number_now_is_another(instance: dg.DagsterInstance) -> None:
    run = started(instance, f"{os.getpid()}@1")
    assert close_abandoned_runs(instance) == [run]


def test_runs_of_other_machines_are_theirs(instance: dg.DagsterInstance) -> None:
    started(instance, ended_process(), **{"zooport/machine": "another"})
    assert close_abandoned_runs(instance) == []


def test_the_sensor_closes_them_and_is_on(instance: dg.DagsterInstance) -> None:
    sensor = lost_runs()
    assert sensor.default_status == dg.DefaultSensorStatus.RUNNING
    run = started(instance, ended_process())
    tick = sensor.evaluate_tick(dg.build_sensor_context(instance))
    assert tick.skip_message == f"closed {run}"
    assert status(instance, run) == dg.DagsterRunStatus.FAILURE


def test_a_run_that_has_the_tags_of_one_that_is_gone_is_left_alone(instance: dg.DagsterInstance) -> None:
    gone = instance.get_run_by_id(started(instance, ended_process()))
    assert gone is not None
    again = started(instance, **gone.tags)
    assert close_abandoned_runs(instance) == [gone.run_id]
    assert status(instance, again) == dg.DagsterRunStatus.STARTED
