"""A fleet over Dagster's queue: chunks of partitions, each a run for whichever machine takes it (deploy/).

`zooport fleet` runs partitions here and now; `zooport fleet --queue` puts them where the daemon launches them.
"""

import os
from collections.abc import Sequence

import dagster as dg
from dagster._core.remote_representation.code_location import CodeLocation
from dagster._core.workspace.context import WorkspaceProcessContext  # the CLI's own way to reach a code location; not public
from dagster._core.workspace.load_target import ModuleTarget

from assets.partitions import PARTITIONS_PER_RUN, Partition, chunks, run_tags
from orchestration.definitions import job_name
from orchestration.instance import open_instance


def queue(partitions: Sequence[Partition], *, per_run: int = PARTITIONS_PER_RUN) -> list[str]:
    """Queue runs over `partitions` on this home's instance; their ids. The daemon has to have loaded `workspace.yaml`."""
    target = ModuleTarget("orchestration.definitions", attribute=None, working_directory=os.getcwd(), location_name="zooport")
    with open_instance() as instance, WorkspaceProcessContext(instance, target) as workspace:
        return submit(workspace, partitions, per_run=per_run)


def submit(workspace: WorkspaceProcessContext, partitions: Sequence[Partition], *, per_run: int = PARTITIONS_PER_RUN) -> list[str]:
    """Queue runs over `partitions`, chunk by chunk; their ids.

    Args:
        workspace: one code location with zooport's definitions, as the daemon knows it.
        per_run: partitions of a run at most. Tags of PostgreSQL's are limited to about 2,700 bytes once compressed: some 32 keys.
    """
    request = workspace.create_request_context()
    (location,) = request.code_locations
    return [
        workspace.instance.submit_run(_created(workspace.instance, location, job_name(family), chunk).run_id, request).run_id
        for family, chunk in chunks(partitions, per_run)
    ]


def _created(instance: dg.DagsterInstance, location: CodeLocation, name: str, chunk: Sequence[Partition]) -> dg.DagsterRun:
    (repository,) = location.get_repositories().values()
    job = repository.get_full_job(name)
    plan = location.get_execution_plan(job, {}, step_keys_to_execute=None, known_state=None, instance=instance).execution_plan_snapshot
    return instance.create_run(
        job_name=job.name,
        run_id=None,
        run_config={},
        status=None,
        tags=run_tags(chunk),
        root_run_id=None,
        parent_run_id=None,
        step_keys_to_execute=plan.step_keys_to_execute,
        execution_plan_snapshot=plan,
        job_snapshot=job.job_snapshot,
        parent_job_snapshot=job.parent_job_snapshot,
        asset_selection=None,
        asset_check_selection=None,
        resolved_op_selection=None,
        op_selection=None,
        remote_job_origin=job.get_remote_origin(),
        job_code_origin=job.get_python_origin(),
        asset_graph=repository.asset_graph,
    )
