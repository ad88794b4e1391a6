"""A fleet on this machine: any set of partitions through their chains, as Dagster runs of the local instance, in this process.

Partitions of a family go into one run, up to a number that keeps a run's page readable, and share the pool's zygotes with all other runs.
Whatever ends the process, the next fleet closes the runs that it left open.
"""

import contextlib
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, field

import dagster as dg
from dagster._core.storage.partition_status_cache import AssetPartitionStatus  # of DagsterInstance.get_status_by_partition

from assets.partitions import partitions_of, run_tags
from exporters.backends import STAGES, family_of
from exporters.report import Report
from orchestration.definitions import build, job_name
from orchestration.fleet_plan import Plan
from orchestration.instance import open_instance
from orchestration.interrupts import interrupts
from orchestration.outcomes import Event
from orchestration.resources import PoolRunner
from orchestration.run_processes import FLEET_TAG, close_abandoned_runs, process_tags
from orchestration.selection import Partition

# Tags of more than some 2,700 bytes can't be indexed by PostgreSQL, where that is the storage.
PARTITIONS_PER_RUN = 32

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
            definitions = build(_Watched(self))
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
        return {**run_tags(chunk), **process_tags(), FLEET_TAG: self.plan.name}


@dataclass(frozen=True)
class _Watched:
    """A fleet's runner, whose events are seen as they pass. Used in place of the `runner` resource; it lives through all runs."""

    fleet: Fleet

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


def failed_in_dagster(partitions: Sequence[Partition]) -> set[Partition]:
    """Those that a run on the local instance was to make and didn't; of runs whose process was killed too."""
    found: set[Partition] = set()
    with open_instance() as instance:
        close_abandoned_runs(instance)
        for family, stages in STAGES.items():
            mine = {f"{backend}|{model}": (backend, model) for backend, model in partitions if family_of(backend) == family}
            if not mine:
                continue
            definition = partitions_of(family, list(dict.fromkeys(model for _, model in mine.values())))
            statuses = instance.get_status_by_partition(dg.AssetKey([family, stages[-1]]), list(mine), definition) or {}
            found |= {mine[key] for key, status in statuses.items() if status == AssetPartitionStatus.FAILED}
    return found
