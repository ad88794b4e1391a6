"""The report follows a fleet, once."""

import uuid
from collections.abc import Iterator
from typing import Any

import dagster as dg
import pytest

from orchestration.report_sensor import report_after_fleet

EXPORTS = [dg.define_asset_job("export_onnx", selection="*")]
SENSOR = report_after_fleet(EXPORTS, dg.define_asset_job("report_fleet", selection="*"))


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    with dg.DagsterInstance.ephemeral() as made:
        yield made


def ran(instance: dg.DagsterInstance, status: dg.DagsterRunStatus, job: str = "export_onnx") -> str:
    run = dg.DagsterRun(job_name=job, run_id=str(uuid.uuid4()), status=status)
    return instance.add_run(run).run_id


def tick(instance: dg.DagsterInstance, cursor: str = "") -> Any:
    return SENSOR.evaluate_tick(dg.build_sensor_context(instance, cursor=cursor))


def test_it_is_off_until_somebody_switches_it_on() -> None:
    assert SENSOR.default_status == dg.DefaultSensorStatus.STOPPED


def test_a_fleet_that_has_ended_is_reported_on_once(instance: dg.DagsterInstance) -> None:
    assert tick(instance).skip_message == "no export has ended since the last report"
    ran(instance, dg.DagsterRunStatus.SUCCESS)
    latest = ran(instance, dg.DagsterRunStatus.FAILURE)
    first = tick(instance)
    assert [request.run_key for request in first.run_requests or []] == [latest]
    assert not tick(instance, first.cursor or "").run_requests


def test_not_while_it_is_going_on(instance: dg.DagsterInstance) -> None:
    ran(instance, dg.DagsterRunStatus.SUCCESS)
    ran(instance, dg.DagsterRunStatus.STARTING)
    assert tick(instance).skip_message == "a fleet is going on"


def test_other_runs_are_none_of_its_business(instance: dg.DagsterInstance) -> None:
    ran(instance, dg.DagsterRunStatus.SUCCESS, "report_fleet")
    ran(instance, dg.DagsterRunStatus.STARTED, "report_fleet")
    assert not tick(instance).run_requests
