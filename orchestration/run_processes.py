"""Which process a run lives in, and what becomes of runs whose process is gone.

Dagster's launcher for one machine doesn't know whether the process of a run is alive: a run that was killed stays `STARTED` for ever, and
its partitions in progress with it. So a run says where it lives, and whoever looks next on this machine closes it.
"""

import hashlib
import os
import socket
from pathlib import Path

import dagster as dg
import psutil

FLEET_TAG = "zooport/fleet"
_MACHINE_TAG, _PROCESS_TAG = "zooport/machine", "zooport/process"
_OPEN = (dg.DagsterRunStatus.NOT_STARTED, dg.DagsterRunStatus.STARTING, dg.DagsterRunStatus.STARTED, dg.DagsterRunStatus.CANCELING)
_SECONDS = 30
_IDENTITY = Path("/etc/machine-id")  # machine-id(5)


def mark(instance: dg.DagsterInstance, run_id: str) -> None:
    """Note with a run that it lives in this process."""
    instance.add_run_tags(run_id, process_tags(run_id))


def process_tags(run_id: str) -> dict[str, str]:
    """Where a run lives. Its id is part of it: a run that was begun with another's tags, as Dagster does, doesn't live where that did."""
    return {_MACHINE_TAG: _machine(), _PROCESS_TAG: f"{run_id} {_this_process()}"}


def close_abandoned_runs(instance: dg.DagsterInstance) -> list[str]:
    """Mark as failed the runs whose process on this machine is gone; their ids. What they had begun and not made becomes failed by that."""
    closed = []
    for run in instance.get_runs(dg.RunsFilter(statuses=list(_OPEN), tags={_MACHINE_TAG: _machine()})):
        marked, _, process = run.tags.get(_PROCESS_TAG, "").partition(" ")
        if marked == run.run_id and not _alive(process):
            mine = FLEET_TAG in run.tags
            then = (
                "`zooport fleet --failed` finishes what is left"
                if mine
                else "what is left of it is requested again by the sensor `lost_chunks`"
            )
            instance.report_run_failed(run, f"the process of this run is gone; {then}")
            closed.append(run.run_id)
    return closed


def lost_runs() -> dg.SensorDefinition:
    """Closes runs whose process is gone, so that `lost_chunks` sees them."""

    @dg.sensor(
        name="lost_runs",
        minimum_interval_seconds=_SECONDS,
        description="Fails the runs on this machine whose process was killed; Dagster's own launcher wouldn't notice.",
        default_status=dg.DefaultSensorStatus.RUNNING,
    )
    def sensor(context: dg.SensorEvaluationContext) -> dg.SkipReason:
        closed = close_abandoned_runs(context.instance)
        return dg.SkipReason(f"closed {', '.join(closed)}" if closed else "every run's process is alive")

    return sensor


def _machine() -> str:
    """Names this machine, also after a reboot: its host name, which two may share, and a digest of what its system calls itself."""
    identity = _IDENTITY.read_bytes() if _IDENTITY.exists() else b""
    return f"{socket.gethostname()}-{hashlib.sha256(identity).hexdigest()[:8]}"


def _this_process() -> str:
    """Names this process, and no other that has its number later."""
    return f"{os.getpid()}@{psutil.Process().create_time():.0f}"


def _alive(process: str) -> bool:
    number, _, created = process.partition("@")
    try:
        found = psutil.Process(int(number))
        return found.status() != psutil.STATUS_ZOMBIE and f"{found.create_time():.0f}" == created
    except (psutil.NoSuchProcess, ValueError):
        return False
