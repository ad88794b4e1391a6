"""Events as Dagster's own machinery would write them, but one (asset, partition) at a time.

In a run over a range of partitions Dagster stamps all of them with one result; events written by hand go to exactly
their partition. By hand then also come the tags that lineage and staleness are computed from.
"""

import dagster as dg
from dagster._core.definitions.data_version import (  # the names of the tags are not public, their meaning is documented
    CODE_VERSION_TAG,
    DATA_VERSION_IS_USER_PROVIDED_TAG,
    DATA_VERSION_TAG,
    NULL_DATA_VERSION,
    NULL_EVENT_POINTER,
    get_input_data_version_tag,
    get_input_event_pointer_tag,
)
from dagster._core.events import AssetMaterializationPlannedData, DagsterEvent  # no public way to plan a partition

from assets.lineage import Lineage
from assets.metadata import Metadata
from assets.partitions import parse_key


def materialization(
    spec: dg.AssetSpec, key: dg.MultiPartitionKey, *, digest: str, metadata: Metadata, lineage: Lineage
) -> dg.AssetMaterialization:
    """The event for one asset and partition: its data version is the artifact's digest, its inputs are the latest above it."""
    tags = _dimensions(key)
    if digest:
        tags |= _version(digest)
        if spec.code_version:
            tags[CODE_VERSION_TAG] = spec.code_version
        for dep in spec.deps:
            found = lineage.latest(dep.asset_key, key)
            tags[get_input_data_version_tag(dep.asset_key)] = found.version if found and found.version else NULL_DATA_VERSION.value
            tags[get_input_event_pointer_tag(dep.asset_key)] = str(found.storage_id) if found else NULL_EVENT_POINTER
    return dg.AssetMaterialization(asset_key=spec.key, partition=key, tags=tags, metadata=metadata)


def observation(asset: dg.AssetKey, partition: str, version: str) -> dg.AssetObservation:
    """The event that one partition of a source asset has this data version."""
    return dg.AssetObservation(asset_key=asset, partition=partition, tags=_dimensions(parse_key(partition)) | _version(version))


def plan(context: dg.AssetExecutionContext, asset: dg.AssetKey, partition: str) -> None:
    """Tell Dagster that this run is about to make a partition: in progress now, failed if the run ends without it.

    For a run with partition tags of its own Dagster does so when it creates the run.
    """
    planned = AssetMaterializationPlannedData(asset, partition=partition, partitions_subset=None)
    step = context.op_execution_context.get_step_execution_context().step.key
    context.instance.report_dagster_event(
        DagsterEvent.build_asset_materialization_planned_event(context.job_name, step, planned), context.run_id
    )


def latest(instance: dg.DagsterInstance, asset: dg.AssetKey, partition: str) -> dg.EventLogRecord | None:
    """The latest materialization of one partition, the one that this run has just yielded included."""
    records = instance.fetch_materializations(dg.AssetRecordsFilter(asset_key=asset, asset_partitions=[partition]), limit=1).records
    return records[0] if records else None


def _dimensions(key: dg.MultiPartitionKey) -> dict[str, str]:
    return {f"dagster/partition/{name}": value for name, value in key.keys_by_dimension.items()}


def _version(version: str) -> dict[str, str]:
    return {DATA_VERSION_TAG: version, DATA_VERSION_IS_USER_PROVIDED_TAG: "true"}
