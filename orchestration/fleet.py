"""A fleet on this machine: any set of partitions through their chains, as Dagster runs of the local instance, in this process.

Partitions of a family go into one run, up to a number that keeps a run's page readable, and share the pool's zygotes with all other runs.
Whatever ends the process, the next fleet closes the runs that it left open.
"""

import contextlib
import os
import socket
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, field

import dagster as dg
import psutil

from assets.partitions import run_tags
from exporters.backends import STAGES, family_of
from exporters.report import Report
from orchestration.definitions import build, job_name
from orchestration.fleet_plan import Plan
from orchestration.interrupts import Interrupts, interrupts
from orchestration.outcomes import Event
from orchestration.resources import PoolRunner
from orchestration.selection import Partition

# Tags of more than some 2,700 bytes can't be indexed by PostgreSQL, where that is the storage.
PARTITIONS_PER_RUN = 32

FLEET_TAG = "zooport/fleet"
# of the process that a run lives in
_HOST_TAG, _PROCESS_TAG = "zooport/host", "zooport/process"

OnEvent = Callable[[Partition, Event], None]


@dataclass
class Fleet:
    """Runs a fleet and keeps what became of it.

    Args:
        runner: its processes end with the fleet.
        on_event: told everything as it happens.

    Attributes:
        reports: by partition, of those that have ended.
        runs: ids of the Dagster runs, in order.
    """

    plan: Plan
    runner: PoolRunner
    on_event: OnEvent = lambda partition, event: None
    reports: dict[Partition, Report] = field(default_factory=dict)
    runs: list[str] = field(default_factory=list)

    def run(self, instance: dg.DagsterInstance) -> None:
        """Run all partitions, family by family.

        Raises:
            KeyboardInterrupt: the fleet was interrupted; its children are ended, its run is closed, `reports` has what was done.
        """
        with interrupts() as interrupted, contextlib.closing(self.runner):
            definitions = build(_Watched(self, interrupted))
            for job, chunk in self._chunks():
                result = definitions.resolve_job_def(job).execute_in_process(
                    instance=instance, tags=self._tags(chunk), raise_on_error=False
                )
                self.runs.append(result.run_id)
                if interrupted.seen:
                    raise KeyboardInterrupt  # Dagster closes an interrupted run, and returns as from any other

    def _chunks(self) -> Iterator[tuple[str, list[Partition]]]:
        for family in STAGES:
            mine = [partition for partition in self.plan.partitions if family_of(partition[0]) == family]
            for begin in range(0, len(mine), PARTITIONS_PER_RUN):
                yield job_name(family), mine[begin : begin + PARTITIONS_PER_RUN]

    def _tags(self, chunk: Sequence[Partition]) -> dict[str, str]:
        return {**run_tags(chunk), FLEET_TAG: self.plan.name, _HOST_TAG: socket.gethostname(), _PROCESS_TAG: _this_process()}


@dataclass(frozen=True)
class _Watched:
    """A fleet's runner, whose events are seen as they pass. Used in place of the `runner` resource; it lives through all runs."""

    fleet: Fleet
    interrupted: Interrupts

    def run(
        self, partitions: Sequence[Partition], *, until: str | None = None, run_id: str = ""
    ) -> Generator[tuple[Partition, Event], None, None]:
        for partition, event in self.fleet.runner.run(partitions, until=until, run_id=run_id):
            if isinstance(event, Report):
                self.fleet.reports[partition] = event
            self.fleet.on_event(partition, event)
            yield partition, event
            if isinstance(event, Report):
                self.fleet.plan.done(partition)  # whoever asks for the next has stored what came of this one
            if self.interrupted.seen:
                raise dg.DagsterExecutionInterruptedError


# ── What a killed process leaves ──────────────────────────────────────────────

_OPEN = (dg.DagsterRunStatus.NOT_STARTED, dg.DagsterRunStatus.STARTING, dg.DagsterRunStatus.STARTED, dg.DagsterRunStatus.CANCELING)


def close_abandoned_runs(instance: dg.DagsterInstance) -> list[str]:
    """Mark as failed the runs of fleets whose process on this machine is gone; their ids. What they had not made becomes failed by that."""
    closed = []
    for run in instance.get_runs(dg.RunsFilter(statuses=list(_OPEN), tags={_HOST_TAG: socket.gethostname()})):
        if not _alive(run.tags.get(_PROCESS_TAG, "")):
            instance.report_run_failed(run, "the process of this fleet was killed; `zooport fleet --failed` finishes what is left")
            closed.append(run.run_id)
    return closed


def _this_process() -> str:
    """Names this process, and no other that has its number later."""
    return f"{os.getpid()}@{psutil.Process().create_time():.0f}"


def _alive(process: str) -> bool:
    number, _, created = process.partition("@")
    try:
        return f"{psutil.Process(int(number)).create_time():.0f}" == created
    except (psutil.NoSuchProcess, ValueError):
        return False
