"""A snapshot: what the last reports of all partitions say at one moment, small enough to keep forever."""

import math
from collections.abc import Mapping
from typing import Any, Literal

from pydantic import BaseModel, Field

from exporters.report import OUTCOMES, Outcome, Report, StageReport
from orchestration.report.software import Software

Key = tuple[str, str]
Standing = Literal["verified", "unverified", "failed", "skipped"]

# from the best to what says least; the page, the command line, JSON and the alert all count these
STANDINGS: tuple[Standing, ...] = ("verified", "unverified", "failed", "skipped")

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
    def standing(self) -> Standing:
        return standing(self.outcome, self.shapes)

    @property
    def good(self) -> bool:
        return self.standing == "verified"

    @property
    def failing(self) -> bool:
        """Whether it has a cause: something stopped it, as a failure or before it was verified. One exported without a look has none."""
        return bool(self.stage)

    @property
    def cpu_seconds(self) -> float:
        return sum(stage.cpu_seconds for stage in self.stages)


class Snapshot(BaseModel):
    """All partitions at one moment, by backend and model, and what they were made with; None in a snapshot that doesn't say."""

    at: float
    software: Software | None = None
    partitions: list[Partition] = Field(default_factory=list)

    def by_key(self) -> dict[Key, Partition]:
        return {partition.key: partition for partition in self.partitions}

    def says_the_same(self, other: "Snapshot") -> bool:
        """Whether nothing happened in between but exports whose every stage was found in the store, and upgrades."""
        return [_lasting(each) for each in self.partitions] == [_lasting(each) for each in other.partitions]


def standing(outcome: str, shapes: str) -> Standing:
    """`verified` for all that an export can be worth (at one shape there are no others to verify at), `failed` for one that left nothing
    to run, `unverified` for what lies between, `skipped` for one that wasn't tried."""
    if outcome == "verified" or (shapes == "static" and outcome == "matched"):
        return "verified"
    return "skipped" if outcome == "skipped" else "failed" if outcome == "failed" else "unverified"


def take(reports: Mapping[Key, Report], at: float, software: Software | None = None) -> Snapshot:
    """The snapshot of these reports; `at` is in seconds since the epoch."""
    return Snapshot(at=at, software=software, partitions=[_partition(report) for _, report in sorted(reports.items())])


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
