"""What the partitions of a run were made from: the latest data version and event of everything that they read.

Asked one at a time, Dagster's storage takes a hundredth of a second for each; so what was there before the run is asked for all partitions
at once, and of what the run itself makes only where an event is stored.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import dagster as dg
from dagster._core.definitions.data_version import DATA_VERSION_TAG  # documented, not public


@dataclass(frozen=True)
class Latest:
    """The latest event of an asset's partition: its data version and where it is stored."""

    version: str
    storage_id: int


class Lineage:
    """The latest events of `assets` at `partitions`.

    Args:
        sources: those of `assets` that are observed, not materialized.
    """

    def __init__(
        self, instance: dg.DagsterInstance, assets: Iterable[dg.AssetKey], sources: Iterable[dg.AssetKey], partitions: Sequence[str]
    ):
        self._storage = instance.event_log_storage
        self._sources = frozenset(sources)
        self._known: dict[tuple[dg.AssetKey, str], Latest] = {}
        for asset in {*assets, *self._sources}:
            versions, ids = self._versions(asset, partitions), self._ids(asset, partitions)
            for partition, storage_id in ids.items():
                self._known[asset, partition] = Latest(versions.get(partition, ""), storage_id)

    def latest(self, asset: dg.AssetKey, partition: str) -> Latest | None:
        return self._known.get((asset, partition))

    def recorded(self, asset: dg.AssetKey, partition: str, version: str) -> None:
        """An event with this data version was just stored."""
        found = self._ids(asset, [partition]).get(partition)
        if found is not None:
            self._known[asset, partition] = Latest(version, found)

    def _kind(self, asset: dg.AssetKey) -> dg.DagsterEventType:
        return dg.DagsterEventType.ASSET_OBSERVATION if asset in self._sources else dg.DagsterEventType.ASSET_MATERIALIZATION

    def _ids(self, asset: dg.AssetKey, partitions: Sequence[str]) -> Mapping[str, int]:
        return self._storage.get_latest_storage_id_by_partition(asset, self._kind(asset), set(partitions))

    def _versions(self, asset: dg.AssetKey, partitions: Sequence[str]) -> dict[str, str]:
        tags = self._storage.get_latest_tags_by_partition(asset, self._kind(asset), [DATA_VERSION_TAG], asset_partitions=list(partitions))
        return {partition: found[DATA_VERSION_TAG] for partition, found in tags.items() if DATA_VERSION_TAG in found}
