"""Recipes: for each stage an observable source asset, partitioned as the stage is, whose data version is what the stage is made with.

Dagster compares the data versions of a stage's inputs with the latest ones. With the recipe as an input it shows exactly those partitions
as stale that a changed package, config or workaround can touch, and names the recipe as the cause.
"""

import contextlib
import warnings
from collections.abc import Iterator, Mapping, Sequence

import dagster as dg
from dagster._core.definitions.data_version import DATA_VERSION_TAG  # documented, not public

from assets.partitions import key_of
from assets.runner import RecipeReader
from exporters.backends import STAGES

_DESCRIPTION = "What `{stage}` is made with: the workarounds that matter to each partition, package versions, configuration, code."


def recipe_key(family: str, stage: str) -> dg.AssetKey:
    return dg.AssetKey([family, f"{stage}_recipe"])


def build_recipes(family: str, partitions: dg.PartitionsDefinition) -> list[dg.SourceAsset]:
    """The recipes of a family's stages. Observing one reports the partitions whose recipe has changed, and no others."""
    return [_build(family, stage, partitions) for stage in STAGES[family]]


def _build(family: str, stage: str, partitions: dg.PartitionsDefinition) -> dg.SourceAsset:
    key = recipe_key(family, stage)

    def observe(context: dg.OpExecutionContext) -> dg.DataVersionsByPartition:
        reader: RecipeReader = context.resources.recipes
        known = observed(context.instance, key)
        found = {key_of(partition): version for partition, version in reader.versions(family, stage).items()}
        possible = set(partitions.get_partition_keys())
        changed = {name: version for name, version in found.items() if name in possible and known.get(name) != version}
        context.log.info(f"{len(found)} recipes, {len(changed)} of them new or changed")
        with _beta():
            return dg.DataVersionsByPartition(changed)

    with _beta():
        return dg.observable_source_asset(
            key=key,
            partitions_def=partitions,
            group_name=f"{family}_recipes",
            description=_DESCRIPTION.format(stage=stage),
            required_resource_keys={"recipes"},
        )(observe)


@contextlib.contextmanager
def _beta() -> Iterator[None]:
    """Observable source assets with partitions are in beta in Dagster 1.13; the pin and tests/assets hold them to what is used here."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", dg.BetaWarning)
        yield


def observed(instance: dg.DagsterInstance, key: dg.AssetKey, partitions: Sequence[str] | None = None) -> Mapping[str, str]:
    """The data version last observed, by partition."""
    tags = instance.event_log_storage.get_latest_tags_by_partition(
        key, dg.DagsterEventType.ASSET_OBSERVATION, [DATA_VERSION_TAG], asset_partitions=partitions
    )
    return {partition: found[DATA_VERSION_TAG] for partition, found in tags.items() if DATA_VERSION_TAG in found}
