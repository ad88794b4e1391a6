"""A run whose worker died: what is left of its chunk of partitions, and the sensor that requests exactly that.

A partition that had its say in the lost run, good or bad, is not asked again; those that were being made, and those after them, are.
Works with every launcher that knows whether a run's worker lives, once run monitoring is on (`dagster.yaml`, deploy/).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import dagster as dg
from dagster._core.definitions.unresolved_asset_job_definition import UnresolvedAssetJobDefinition  # what define_asset_job returns
from dagster._core.storage.tags import (
    ASSET_PARTITION_RANGE_END_TAG,
    ASSET_PARTITION_RANGE_START_TAG,
    PARTITION_NAME_TAG,
)

from assets.partitions import pair_of, run_tags, tagged_partitions
from orchestration.run_processes import FLEET_TAG

ATTEMPT_TAG = "zooport/attempt"
REMAINDER_TAG = "zooport/remainder_of"

# How often a chunk is begun. One that takes its worker down each time is left for a person to look at.
ATTEMPTS = 3

_PLANNED, _MADE = dg.DagsterEventType.ASSET_MATERIALIZATION_PLANNED, dg.DagsterEventType.ASSET_MATERIALIZATION
_CHECK_PLANNED, _CHECKED = dg.DagsterEventType.ASSET_CHECK_EVALUATION_PLANNED, dg.DagsterEventType.ASSET_CHECK_EVALUATION

_FAILED = dg.DagsterEventType.STEP_FAILURE


@dataclass(frozen=True)
class Chunk:
    """What a run over one chain was asked for, and how far it came.

    Attributes:
        complete: the chain itself has said that all had their turn and that some failed. Only it knows of those that are skipped.
    """

    assets: Sequence[dg.AssetKey]
    checked: bool
    keys: Sequence[str]
    ended: frozenset[str]
    complete: bool

    @property
    def remaining(self) -> list[str]:
        return [] if self.complete else [key for key in self.keys if key not in self.ended]


def chunk_of(instance: dg.DagsterInstance, run: dg.DagsterRun, chain: dg.AssetsDefinition) -> Chunk | None:
    """What `run` was asked for of `chain`, or None if nothing.

    A partition has ended once its check was evaluated, which comes last and whatever its outcome; in a run that selects no check,
    once its last selected asset was materialized.
    """
    entries = instance.all_logs(run.run_id, of_type={_PLANNED, _MADE, _CHECK_PLANNED, _CHECKED, _FAILED})
    events = [entry.dagster_event for entry in entries if entry.dagster_event is not None]
    planned = {event.asset_key for event in events if event.event_type == _PLANNED}
    assets = [spec.key for spec in chain.specs if spec.key in planned]
    if not assets:
        return None
    checked = any(event.event_type == _CHECK_PLANNED for event in events)
    if checked:
        ended = {event.asset_check_evaluation_data.partition for event in events if event.event_type == _CHECKED}
    else:
        ended = {event.partition for event in events if event.event_type == _MADE and event.asset_key == assets[-1]}
    complete = any(event.event_type == _FAILED and event.step_failure_data.user_failure_data for event in events)
    keys = keys_of(run, _partitions(chain))
    ended |= made_since(instance, run, assets[-1], [key for key in keys if key not in ended])
    return Chunk(assets, checked, keys, frozenset(key for key in ended if key), complete)


def made_since(instance: dg.DagsterInstance, run: dg.DagsterRun, asset: dg.AssetKey, keys: Sequence[str]) -> set[str | None]:
    """Those of `keys` that another run has made since this one began: somebody was quicker than the sensor."""
    record = instance.get_run_record_by_id(run.run_id)
    begin = record.create_timestamp.timestamp() if record else 0.0
    found: set[str | None] = set()
    for key in keys:
        filter_ = dg.AssetRecordsFilter(asset_key=asset, asset_partitions=[key], after_timestamp=begin)
        if instance.fetch_materializations(filter_, limit=1).records:
            found.add(key)
    return found


def keys_of(run: dg.DagsterRun, partitions: dg.PartitionsDefinition) -> list[str]:
    """The partitions that a run was asked for, in their order."""
    tagged = tagged_partitions(run.tags)
    if tagged is not None:
        return tagged
    if key := run.tags.get(PARTITION_NAME_TAG):
        return [key]
    ends = run.tags[ASSET_PARTITION_RANGE_START_TAG], run.tags[ASSET_PARTITION_RANGE_END_TAG]
    return list(partitions.get_partition_keys_in_range(dg.PartitionKeyRange(*ends)))


def lost_chunks(chains: Sequence[dg.AssetsDefinition], jobs: Sequence[UnresolvedAssetJobDefinition]) -> dg.SensorDefinition:
    """The sensor; `jobs` has the job of each chain, in their order."""

    @dg.run_failure_sensor(
        name="lost_chunks",
        description="Requests what is left of a run whose worker died. Partitions that failed are not lost: they have their outcome.",
        minimum_interval_seconds=15,
        default_status=dg.DefaultSensorStatus.RUNNING,
        request_jobs=list(jobs),
    )
    def sensor(context: dg.RunFailureSensorContext) -> Iterator[dg.RunRequest | dg.SkipReason]:
        run = context.dagster_run
        if FLEET_TAG in run.tags:  # whoever started it here and now goes on with `zooport fleet --failed`
            yield dg.SkipReason(f"{run.run_id} is of `zooport fleet`")
            return
        for chain, job in zip(chains, jobs, strict=True):
            chunk = chunk_of(context.instance, run, chain)
            if chunk is not None:
                yield request(run, chunk, chain, job.name)

    return sensor


def request(run: dg.DagsterRun, chunk: Chunk, chain: dg.AssetsDefinition, job: str) -> dg.RunRequest | dg.SkipReason:
    """A run over what is left of a lost one, requested once.

    It doesn't belong to the lost one's backfill, which understands no tag of ours and may be over by now.
    """
    attempt = int(run.tags.get(ATTEMPT_TAG, "1")) + 1
    if not chunk.remaining:
        return dg.SkipReason(f"nothing is left of {run.run_id}")
    if attempt > ATTEMPTS:
        return dg.SkipReason(f"{run.run_id} was lost {ATTEMPTS} times; left: {', '.join(chunk.remaining)}")
    kept = {name: value for name, value in run.tags.items() if name.startswith("zooport/")}
    return dg.RunRequest(
        run_key=run.run_id,
        job_name=job,
        asset_selection=None if len(chunk.assets) == len(list(chain.specs)) else list(chunk.assets),
        tags={**kept, **run_tags([pair_of(key) for key in chunk.remaining]), ATTEMPT_TAG: str(attempt), REMAINDER_TAG: run.run_id},
    )


def _partitions(chain: dg.AssetsDefinition) -> dg.PartitionsDefinition:
    assert chain.partitions_def is not None
    return chain.partitions_def
