"""Everything Dagster loads, through `workspace.yaml`. Imports no torch, and stays cheap: it is loaded for every run."""

import dagster as dg
from dagster._core.definitions.unresolved_asset_job_definition import UnresolvedAssetJobDefinition  # what define_asset_job returns

from assets.chains import build_chain
from assets.fleet_report import NAME as FLEET_REPORT
from assets.fleet_report import build_fleet_report
from assets.partitions import partitions_of
from assets.recipes import build_recipes
from exporters.backends import STAGES
from exporters.zoo import catalogue, zoo_file
from orchestration import export_fleet, stale_fleet
from orchestration.lost_chunks import lost_chunks
from orchestration.report_sensor import report_after_fleet
from orchestration.reporter import StoreReporter
from orchestration.resources import PoolRunner, StoreRecipes
from orchestration.run_processes import lost_runs

# an op has the asset's own name, and a job may not
REPORT_JOB = "report_fleet"


def job_name(family: str) -> str:
    """The job that runs a family's whole chain."""
    return f"export_{family}"


def _job(family: str) -> UnresolvedAssetJobDefinition:
    return dg.define_asset_job(
        job_name(family),
        selection=dg.AssetSelection.groups(family),
        description=f"One model, or many, through the {family} chain, checks included.",
    )


def build(runner: object, recipes: object = None, reporter: object = None) -> dg.Definitions:
    """All assets and their jobs over the whole zoo and the checkpoints that a `zoo.toml` names.

    Args:
        runner: an `assets.runner.ChainRunner`, or what is used like one.
        recipes: an `assets.runner.RecipeReader`, or what is used like one; by default the one over this machine's store.
        reporter: an `assets.runner.ReportMaker`, or what is used like one; the same.
    """
    models = [*catalogue.names(), *zoo_file.read()]
    chains = {family: build_chain(family, models) for family in STAGES}
    jobs = {family: _job(family) for family in STAGES}
    report_job = dg.define_asset_job(
        REPORT_JOB, selection=[FLEET_REPORT], description="What broke, what was repaired, what it costs; and an alert."
    )
    return dg.Definitions(
        assets=[
            *(asset for family, chain in chains.items() for asset in (chain, *build_recipes(family, partitions_of(family, models)))),
            build_fleet_report(),
        ],
        jobs=[*jobs.values(), report_job, export_fleet.export_fleet],
        schedules=[export_fleet.weekly(), *stale_fleet.nightly(jobs)],
        sensors=[
            stale_fleet.changed_environment(jobs),
            report_after_fleet(list(jobs.values()), report_job),
            lost_runs(),
            lost_chunks(list(chains.values()), list(jobs.values())),
        ],
        resources={"runner": runner, "recipes": recipes or StoreRecipes(), "reporter": reporter or StoreReporter()},
        executor=dg.in_process_executor,
    )


@dg.definitions
def defs() -> dg.Definitions:
    return build(PoolRunner())
