"""The report follows a fleet: once its last run has ended, and not after each of them."""

from collections.abc import Sequence

import dagster as dg
from dagster._core.definitions.unresolved_asset_job_definition import UnresolvedAssetJobDefinition  # what define_asset_job returns

_SECONDS = 120
_GOING_ON = [
    dg.DagsterRunStatus.QUEUED,
    dg.DagsterRunStatus.NOT_STARTED,
    dg.DagsterRunStatus.STARTING,
    dg.DagsterRunStatus.STARTED,
    dg.DagsterRunStatus.CANCELING,
]


def report_after_fleet(exports: Sequence[UnresolvedAssetJobDefinition], report: UnresolvedAssetJobDefinition) -> dg.SensorDefinition:
    """Makes `fleet_report` when exports have ended since it last did, and none is going on. Off until it is switched on.

    Its cursor is the id of the latest run that a report knows of.
    """
    names = {job.name for job in exports}

    @dg.sensor(
        name="report_after_fleet",
        job=report,
        minimum_interval_seconds=_SECONDS,
        description="Reports on the fleet, and posts what broke, once all its runs have ended.",
        default_status=dg.DefaultSensorStatus.STOPPED,
    )
    def sensor(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        # a run of a backfill carries the name of a job that Dagster makes up, so it is told by its assets
        if any(_exports(run, names) for run in context.instance.get_runs(dg.RunsFilter(statuses=_GOING_ON))):
            return dg.SensorResult(skip_reason="a fleet is going on")
        ended = context.instance.get_runs(dg.RunsFilter(statuses=[dg.DagsterRunStatus.SUCCESS, dg.DagsterRunStatus.FAILURE]), limit=100)
        latest = next((run.run_id for run in ended if _exports(run, names)), None)
        if latest is None or latest == context.cursor:
            return dg.SensorResult(skip_reason="no export has ended since the last report")
        return dg.SensorResult(run_requests=[dg.RunRequest(run_key=latest)], cursor=latest)

    return sensor


def _exports(run: dg.DagsterRun, names: set[str]) -> bool:
    return run.job_name in names or any(len(key.path) == 2 for key in run.asset_selection or ())
