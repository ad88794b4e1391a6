"""A snapshot: what the last reports of all partitions say at one moment, small enough to keep forever."""

import math
from collections.abc import Mapping
from typing import Any, Literal

from pydantic import BaseModel, Field

from exporters.report import OUTCOMES, Outcome, Report, StageReport

Key = tuple[str, str]

# how much of a message is kept; the rest is in the last report itself
_MESSAGE_CHARACTERS = 400


class StageFacts(BaseModel):
    """One stage that was made, and what making it took whichever run did: CPU seconds, MiB at the peak, bytes of the artifact."""

    stage: str
    cached: bool = False
    cpu_seconds: float = 0.0
    peak_rss_mb: float = 0.0
    bytes: int = 0


class Partition(BaseModel):
    """One model for one backend.

    Attributes:
        stage: at which it stopped; empty if it didn't.
        kind: the error's type.
        message: the error's first line, or why it was skipped.
        max_abs_diff: the largest of its comparisons with eager; infinite where a comparison found a difference in kind.
        at: when the export ended, in seconds since the epoch.
    """

    model: str
    backend: str
    outcome: Outcome
    shapes: Literal["dynamic", "static"] = "dynamic"
    stage: str = ""
    kind: str = ""
    message: str = ""
    max_abs_diff: float | None = None
    at: float = 0.0
    run: str = ""
    stages: list[StageFacts] = Field(default_factory=list)

    @property
    def key(self) -> Key:
        return self.backend, self.model

    @property
    def rank(self) -> int:
        return OUTCOMES.index(self.outcome)

    @property
    def good(self) -> bool:
        """Whether it is worth all that it can be: at one shape there are no others to verify at."""
        return self.outcome == "verified" or (self.shapes == "static" and self.outcome == "matched")

    @property
    def failing(self) -> bool:
        """Whether something went wrong; one that is skipped wasn't tried, and one exported unverified wasn't looked at."""
        return bool(self.stage)

    @property
    def cpu_seconds(self) -> float:
        return sum(stage.cpu_seconds for stage in self.stages)


class Snapshot(BaseModel):
    """All partitions at one moment, by backend and model."""

    at: float
    partitions: list[Partition] = Field(default_factory=list)

    def by_key(self) -> dict[Key, Partition]:
        return {partition.key: partition for partition in self.partitions}

    def says_the_same(self, other: "Snapshot") -> bool:
        """Whether nothing happened in between but exports whose every stage was found in the store."""
        return [_lasting(each) for each in self.partitions] == [_lasting(each) for each in other.partitions]


def take(reports: Mapping[Key, Report], at: float) -> Snapshot:
    """The snapshot of these reports; `at` is in seconds since the epoch."""
    return Snapshot(at=at, partitions=[_partition(report) for _, report in sorted(reports.items())])


def _partition(report: Report) -> Partition:
    differences = [row.max_abs_diff for row in report.parity if row.max_abs_diff is not None]
    error = report.error
    message = error.message if error else report.reason
    return Partition(
        model=report.model,
        backend=report.backend,
        outcome=report.outcome,
        shapes=report.shapes,
        stage=(error.stage if error else "") or ("unknown" if error or report.outcome == "failed" else ""),
        kind=error.type if error else "",
        message=(message.strip().splitlines() or [""])[0][:_MESSAGE_CHARACTERS],
        max_abs_diff=max((math.inf if math.isnan(each) else each for each in differences), default=None),
        at=round(report.at, 1),
        run=report.run,
        stages=[_facts(stage) for stage in report.stages],
    )


def _facts(stage: StageReport) -> StageFacts:
    made = stage.details.get("made") if stage.cached else None
    costs = made if isinstance(made, dict) else {}
    return StageFacts(
        stage=stage.stage,
        cached=stage.cached,
        cpu_seconds=round(_number(costs.get("cpu_seconds"), stage.cpu_seconds), 2),
        peak_rss_mb=round(_number(costs.get("peak_rss_mb"), stage.peak_rss_mb)),
        bytes=stage.bytes,
    )


def _number(value: Any, otherwise: float) -> float:
    return float(value) if isinstance(value, int | float) else otherwise


def _lasting(partition: Partition) -> dict[str, Any]:
    return partition.model_dump(exclude={"at": True, "run": True, "stages": {"__all__": {"cached"}}})
