"""A fleet on this machine: any set of partitions through their chains, as Dagster runs of the local instance, in this process.

Partitions of a family go into one run, up to a number that keeps a run's page readable, and share the pool's zygotes with all other runs.
Whatever ends the process, the next fleet closes the runs that it left open.
"""

import contextlib
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field

import dagster as dg
from dagster._core.storage.partition_status_cache import AssetPartitionStatus  # of DagsterInstance.get_status_by_partition

from assets.partitions import Partition, by_family, chunks, key_of, pair_of, partitions_of, run_tags
from exporters.backends import STAGES
from exporters.report import Report
from orchestration.definitions import build, job_name
from orchestration.fleet_plan import Plan
from orchestration.instance import open_instance
from orchestration.interrupts import interrupts
from orchestration.outcomes import Event
from orchestration.resources import PoolRunner
from orchestration.run_processes import FLEET_TAG, close_abandoned_runs, mark

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
            definitions = build(_Watched(self, instance))
            for family, chunk in chunks(self.plan.partitions, PARTITIONS_PER_RUN):
                tags = {**run_tags(chunk), FLEET_TAG: self.plan.name}
                job = definitions.resolve_job_def(job_name(family))
                result = job.execute_in_process(instance=instance, tags=tags, raise_on_error=False)
                self.runs.append(result.run_id)
                if interrupted.seen:
                    raise KeyboardInterrupt  # Dagster closes an interrupted run, and returns as from any other


@dataclass(frozen=True)
class _Watched:
    """A fleet's runner, whose events are seen as they pass. Used in place of the `runner` resource; it lives through all runs."""

    fleet: Fleet
    instance: dg.DagsterInstance

    def run(
        self, partitions: Sequence[Partition], *, until: str | None = None, run_id: str = ""
    ) -> Generator[tuple[Partition, Event], None, None]:
        mark(self.instance, run_id)
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
        for family, mine in by_family(partitions).items():
            definition = partitions_of(family, list(dict.fromkeys(model for _, model in mine)))
            last = dg.AssetKey([family, STAGES[family][-1]])
            statuses = instance.get_status_by_partition(last, list(map(key_of, mine)), definition) or {}
            found |= {pair_of(key) for key, status in statuses.items() if status == AssetPartitionStatus.FAILED}
    return found
