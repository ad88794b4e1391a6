"""`export_fleet`: one backfill over what was chosen, and the weekly schedule that asks for it."""

from collections.abc import Iterator
from datetime import UTC, datetime

import dagster as dg
import pytest

from exporters.zoo import catalogue
from orchestration.definitions import build
from orchestration.export_fleet import JOB, WEEKLY_VARIABLE, weekly
from orchestration.resources import PoolRunner


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    with dg.DagsterInstance.ephemeral() as made:
        yield made


def requested(instance: dg.DagsterInstance, **config: object) -> dict[str, set[str]]:
    """The partitions of the one backfill that a run of the job asks for, by asset."""
    repository = build(PoolRunner(chain="fake_chain:serve")).get_repository_def()
    done = repository.get_job(JOB).execute_in_process(
        instance=instance, run_config={"ops": {"request_backfill": {"config": config}}}, raise_on_error=True
    )
    (backfill,) = instance.get_backfills()
    assert backfill.backfill_id == done.output_for_node("request_backfill")
    data = backfill.asset_backfill_data
    assert data is not None
    subsets = data.target_subset.partitions_subsets_by_asset_key
    return {key.to_user_string(): set(subset.get_partition_keys()) for key, subset in subsets.items()}


def test_by_default_it_is_the_whole_zoo_for_three_backends(instance: dg.DagsterInstance) -> None:
    found = requested(instance)
    assert len(found) == 9
    assert found["onnx/ir_fixed_model"] == {f"onnx|{name}" for name in catalogue.names()}
    assert found["executorch/pte"] == {f"executorch.xnnpack|{name}" for name in catalogue.names()}


def test_backends_and_families_can_be_chosen(instance: dg.DagsterInstance) -> None:
    found = requested(instance, backends=["executorch.portable", "dynamo"], families=["video", "time-series"])
    assert {key.partition("/")[0] for key in found} == {"dynamo", "executorch"}
    models = {name for name in catalogue.names() if catalogue.entry(name).family in ("video", "time-series")}
    assert found["executorch/pte"] == {f"executorch.portable|{name}" for name in models}


def test_single_models_can_be_named(instance: dg.DagsterInstance) -> None:
    assert requested(instance, models=["BertModel"], backends=["onnx"])["onnx/lowered_onnx"] == {"onnx|BertModel"}


def test_what_there_is_not_asks_for_nothing(instance: dg.DagsterInstance) -> None:
    job = build(PoolRunner()).get_repository_def().get_job(JOB)
    config = {"ops": {"request_backfill": {"config": {"families": ["texts"]}}}}
    assert not job.execute_in_process(instance=instance, run_config=config, raise_on_error=False).success
    assert not instance.get_backfills()


def test_the_weekly_schedule_asks_for_one_and_is_off(instance: dg.DagsterInstance) -> None:
    schedule = build(PoolRunner()).get_repository_def().get_schedule_def("weekly_fleet")
    assert schedule.default_status == dg.DefaultScheduleStatus.STOPPED
    context = dg.build_schedule_context(instance, scheduled_execution_time=datetime(2026, 11, 28, 2, tzinfo=UTC))
    (request,) = schedule.evaluate_tick(context).run_requests or []
    assert not request.run_config.get("ops")
    assert schedule.job_name == JOB


def test_its_hour_can_be_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(WEEKLY_VARIABLE, "30 4 * * 0")
    assert weekly().cron_schedule == "30 4 * * 0"
