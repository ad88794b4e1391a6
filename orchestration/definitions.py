"""Everything Dagster loads, through `workspace.yaml`. Imports no torch, and stays cheap: it is loaded for every run."""

import dagster as dg

from assets.chains import build_chain
from exporters.backends import STAGES
from exporters.zoo import catalogue, zoo_file
from orchestration.resources import ChildRunner


def job_name(family: str) -> str:
    """The job that runs a family's whole chain."""
    return f"export_{family}"


def build(runner: object) -> dg.Definitions:
    """All assets and their jobs over the whole zoo and the checkpoints that a `zoo.toml` names.

    Args:
        runner: an `assets.runner.ChainRunner`, or what is used like one.
    """
    models = [*catalogue.names(), *zoo_file.read()]
    return dg.Definitions(
        assets=[build_chain(family, models) for family in STAGES],
        jobs=[
            dg.define_asset_job(
                job_name(family),
                selection=dg.AssetSelection.groups(family),
                description=f"One model through the {family} chain, checks included.",
            )
            for family in STAGES
        ],
        resources={"runner": runner},
        executor=dg.in_process_executor,
    )


@dg.definitions
def defs() -> dg.Definitions:
    return build(ChildRunner())
