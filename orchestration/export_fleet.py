"""`export_fleet`: the job that asks for everything, or for chosen families and backends, as one Dagster backfill; and its weekly schedule.

The daemon splits a backfill into runs over ranges of partitions, one after another or spread over machines, and the backfill's page shows
how far it has come.
"""

import os
import time

import dagster as dg
from dagster._core.definitions.assets.graph.asset_graph_subset import AssetGraphSubset  # a job has no public way to ask for a backfill
from dagster._core.definitions.partitions.subset import PartitionsSubset
from dagster._core.execution.backfill import PartitionBackfill
from dagster._core.utils import make_new_backfill_id
from pydantic import Field

from assets.partitions import by_family, key_of, partitions_of
from exporters.backends import STAGES
from exporters.zoo import catalogue, zoo_file
from orchestration.selection import Scope

JOB = "export_fleet"
WEEKLY_VARIABLE = "ZOOPORT_WEEKLY_CRON"
WEEKLY = "0 2 * * 6"


class FleetConfig(dg.Config):
    """What to export."""

    backends: list[str] = Field(default=["dynamo", "onnx", "executorch.xnnpack"], description="Dotted backend names.")
    families: list[str] = Field(default=[], description="Families of models (text, vision, ..., checkpoint); none for all.")
    models: list[str] = Field(default=[], description="Single models instead.")


@dg.op(description="Asks for the backfill. It is done when the daemon says so, not when this op ends.")
def request_backfill(context: dg.OpExecutionContext, config: FleetConfig) -> str:
    """Add one backfill over all stages of the chosen partitions; its id.

    Raises:
        UsageError: no such backend, family or model.
    """
    partitions = Scope(config.models, config.backends, config.families).partitions()
    known = [*catalogue.names(), *zoo_file.read()]
    subsets: dict[dg.AssetKey, PartitionsSubset] = {}
    for family, mine in by_family(partitions).items():
        subset = partitions_of(family, known).subset_with_partition_keys(map(key_of, mine))
        subsets |= dict.fromkeys([dg.AssetKey([family, stage]) for stage in STAGES[family]], subset)
    backfill = PartitionBackfill.from_asset_graph_subset(
        backfill_id=make_new_backfill_id(),
        backfill_timestamp=time.time(),
        tags={"zooport/requested_by": context.run_id},
        dynamic_partitions_store=context.instance,
        asset_graph_subset=AssetGraphSubset(subsets),
        title=f"export_fleet: {len(partitions)} partitions",
        description=None,
        run_config=None,
    )
    context.instance.add_backfill(backfill)
    context.log.info(f"backfill {backfill.backfill_id}: {len(partitions)} partitions")
    context.add_output_metadata({"backfill": backfill.backfill_id, "partitions": len(partitions)})
    return backfill.backfill_id


@dg.job(name=JOB, description="Everything, or chosen families and backends, as one backfill.", executor_def=dg.in_process_executor)
def export_fleet() -> None:
    request_backfill()


def weekly() -> dg.ScheduleDefinition:
    """Off until it is switched on in the UI; `$ZOOPORT_WEEKLY_CRON` says when, in UTC, by default in the night to Saturday."""
    return dg.ScheduleDefinition(
        name="weekly_fleet",
        job=export_fleet,
        cron_schedule=os.environ.get(WEEKLY_VARIABLE) or WEEKLY,
        description=f"The whole zoo, as one backfill. ${WEEKLY_VARIABLE} sets when (UTC).",
        default_status=dg.DefaultScheduleStatus.STOPPED,
    )
