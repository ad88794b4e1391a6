"""What is out of date is asked for again: nightly, and once for each change of packages or code."""

from collections.abc import Iterator
from datetime import UTC, datetime

import dagster as dg
import pytest

from assets.partitions import tagged_partitions
from exporters.code_index import code_index
from exporters.home import home, store_of
from exporters.keys import environment
from exporters.report import Report
from exporters.reports import remember
from exporters.store import Store
from orchestration import stale_fleet
from orchestration.stale_fleet import Stale

PARTITIONS = (("onnx", "A"), ("dynamo", "A"), *(("onnx", f"M{number}") for number in range(20)))


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    with dg.DagsterInstance.ephemeral() as made:
        yield made


@pytest.fixture(scope="module")
def jobs() -> stale_fleet.Jobs:
    return {family: dg.define_asset_job(f"export_{family}", selection="*") for family in ("dynamo", "onnx", "executorch")}


def asked(requests: list[dg.RunRequest]) -> list[str]:
    return [key for request in requests for key in tagged_partitions(request.tags) or []]


# ── What is stale ─────────────────────────────────────────────────────────────


def leave(model: str, outcome: str, env: str) -> None:
    report = Report.model_validate({"model": model, "backend": "onnx", "outcome": outcome, "environment": env})
    remember(Store(store_of(home())), report)


def test_what_failed_with_other_code_is_stale_and_what_failed_with_this_is_not() -> None:
    now = environment("onnx", code_index(home() / "cache"))
    leave("BertModel", "failed", "before")
    leave("ViTModel", "failed", now)
    leave("T5Model", "verified", "before")
    found = stale_fleet.find()
    assert found.partitions == (("onnx", "BertModel"),)


def test_a_new_process_finds_the_same_and_nothing_while_the_environment_is_known() -> None:
    leave("BertModel", "failed", "before")
    found = stale_fleet.find_afresh()
    assert found == stale_fleet.find()
    assert stale_fleet.find_afresh(found.environment) == Stale(found.environment, ())


def test_a_process_that_fails_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", "/nowhere")
    monkeypatch.chdir("/")
    monkeypatch.setattr(stale_fleet.sys, "executable", "/bin/false")
    with pytest.raises(RuntimeError, match="looking for what is stale failed"):
        stale_fleet.find_afresh()


# ── Every night ───────────────────────────────────────────────────────────────


def test_each_family_s_schedule_asks_for_its_own_in_chunks(instance: dg.DagsterInstance, jobs: stale_fleet.Jobs) -> None:
    schedules = {schedule.name: schedule for schedule in stale_fleet.nightly(jobs, lambda: Stale("now", PARTITIONS))}
    assert {schedule.default_status for schedule in schedules.values()} == {dg.DefaultScheduleStatus.STOPPED}
    context = dg.build_schedule_context(instance, scheduled_execution_time=datetime(2026, 11, 28, 1, tzinfo=UTC))
    requests = schedules["nightly_stale_onnx"].evaluate_tick(context).run_requests or []
    assert [len(tagged_partitions(request.tags) or []) for request in requests] == [16, 5]
    assert asked(list(requests)) == [f"onnx|{model}" for backend, model in PARTITIONS if backend == "onnx"]
    assert len({request.run_key for request in requests}) == 2
    nothing = schedules["nightly_stale_executorch"].evaluate_tick(context)
    assert (nothing.run_requests, nothing.skip_message) == ([], "nothing is stale")


def test_its_hour_can_be_set(jobs: stale_fleet.Jobs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(stale_fleet.NIGHTLY_VARIABLE, "15 3 * * *")
    assert {schedule.cron_schedule for schedule in stale_fleet.nightly(jobs)} == {"15 3 * * *"}


# ── After a change ────────────────────────────────────────────────────────────


def test_a_change_asks_for_what_it_touches_once(instance: dg.DagsterInstance, jobs: stale_fleet.Jobs) -> None:
    now = Stale("one", PARTITIONS)
    sensor = stale_fleet.changed_environment(jobs, lambda known: now if known != now.environment else Stale(known, ()))
    assert sensor.default_status == dg.DefaultSensorStatus.STOPPED
    first = sensor.evaluate_tick(dg.build_sensor_context(instance, cursor=""))
    assert {request.job_name for request in first.run_requests or []} == {"export_onnx", "export_dynamo"}
    assert sorted(asked(list(first.run_requests or []))) == sorted(f"{backend}|{model}" for backend, model in PARTITIONS)
    assert first.cursor == "one"
    again = sensor.evaluate_tick(dg.build_sensor_context(instance, cursor=first.cursor))
    assert not again.run_requests
    assert again.skip_message == "nothing has changed"


def test_a_change_that_touches_nothing_is_said_and_remembered(instance: dg.DagsterInstance, jobs: stale_fleet.Jobs) -> None:
    sensor = stale_fleet.changed_environment(jobs, lambda known: Stale("two", ()))
    tick = sensor.evaluate_tick(dg.build_sensor_context(instance, cursor="one"))
    assert tick.skip_message == "packages or code have changed, and nothing that was exported is touched"
    assert tick.cursor == "two"
