"""Materializations as Dagster's own machinery would write them, but one (asset, partition) at a time.

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
    extract_data_version_from_entry,
    get_input_data_version_tag,
    get_input_event_pointer_tag,
)

from assets.metadata import Metadata


def materialization(
    spec: dg.AssetSpec, key: dg.MultiPartitionKey, *, digest: str, metadata: Metadata, instance: dg.DagsterInstance
) -> dg.AssetMaterialization:
    """The event for one asset and partition: its data version is the artifact's digest, its inputs are the latest above it."""
    tags = {f"dagster/partition/{name}": value for name, value in key.keys_by_dimension.items()}
    if digest:
        tags[DATA_VERSION_TAG] = digest
        tags[DATA_VERSION_IS_USER_PROVIDED_TAG] = "true"
        if spec.code_version:
            tags[CODE_VERSION_TAG] = spec.code_version
        for dep in spec.deps:
            record = latest(instance, dep.asset_key, key) or latest_observation(instance, dep.asset_key, key)
            version = extract_data_version_from_entry(record.event_log_entry) if record else None
            tags[get_input_data_version_tag(dep.asset_key)] = (version or NULL_DATA_VERSION).value
            tags[get_input_event_pointer_tag(dep.asset_key)] = str(record.storage_id) if record else NULL_EVENT_POINTER
    return dg.AssetMaterialization(asset_key=spec.key, partition=key, tags=tags, metadata=metadata)


def latest(instance: dg.DagsterInstance, asset: dg.AssetKey, partition: str) -> dg.EventLogRecord | None:
    """The latest materialization of one partition, the one that this run has just yielded included."""
    records = instance.fetch_materializations(dg.AssetRecordsFilter(asset_key=asset, asset_partitions=[partition]), limit=1).records
    return records[0] if records else None


def latest_observation(instance: dg.DagsterInstance, asset: dg.AssetKey, partition: str) -> dg.EventLogRecord | None:
    """The latest observation of one partition of a source asset."""
    records = instance.fetch_observations(dg.AssetRecordsFilter(asset_key=asset, asset_partitions=[partition]), limit=1).records
    return records[0] if records else None
