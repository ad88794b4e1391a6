"""What the assets need from outside: something that runs chains and tells what happens.

Interfaces only. `orchestration` provides them, so that assets know nothing of processes and pools.
"""

from abc import abstractmethod
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass

import dagster as dg

from assets.partitions import Partition
from exporters.report import Parity, Report, StageReport, Started


class ChainRunner(dg.ConfigurableResource):
    """Runs (backend, model) pairs through their chains, several at once if it likes."""

    @abstractmethod
    def run(
        self, partitions: Sequence[Partition], *, until: str | None = None, run_id: str = ""
    ) -> Generator[tuple[Partition, Started | StageReport | Parity | Report], None, None]:
        """Yield what happens to each partition as it happens: stages, then comparisons, then the report, always its last event.

        Args:
            partitions: dotted backend name, and name of a model class of the zoo or of a checkpoint that a `zoo.toml` names.
            until: name of the last stage that is wanted; None wants the whole chain and its verification.
            run_id: kept with what is made, so that a later run that finds it can say whose it is.
        """


class RecipeReader(dg.ConfigurableResource):
    """Says what stages would be made with now."""

    @abstractmethod
    def versions(self, family: str, stage: str) -> Mapping[tuple[str, str], str]:
        """The recipe's version by (backend, model), for every partition of which this stage was ever made."""


@dataclass(frozen=True)
class ReportMade:
    """A report on the fleet, as far as an asset tells of it.

    Attributes:
        snapshot: name of the kept snapshot, which changes when anything has.
        page: where the HTML page lies.
        headline: numbers by name: `exports`, `verified`, `failed`, `broken`, `fixed`, …
        since: when the snapshot that it is compared with was taken, in seconds since the epoch; None for the first.
        changes: rows of kind, place, how many, which, why; the gravest first.
        alert: what became of the alert, in words; begins with `failed` if it couldn't be posted.
    """

    snapshot: str
    page: str
    headline: Mapping[str, int]
    since: float | None
    changes: Sequence[tuple[str, str, int, str, str]]
    alert: str


class ReportMaker(dg.ConfigurableResource):
    """Reports on everything that was exported so far."""

    @abstractmethod
    def make(self) -> ReportMade:
        """Keep a snapshot, write the page, and tell whoever wants to be told."""
