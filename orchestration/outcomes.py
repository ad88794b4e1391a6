"""What a chain's process says, line by line, and the report of one that ended without having written its own. Imports no Dagster."""

import json
import re
import signal
from collections.abc import Sequence
from dataclasses import dataclass, field

from exporters.backends import STAGES, family_of
from exporters.report import ErrorReport, Parity, Report, StageReport, Started

# what a chain is in once its last stage has ended
VERIFICATION = "verification"

# the kind of an end of which nothing is known but the exit status
NO_REPORT = "NoReport"

_TAIL_SHOWN = 6
_ERROR = re.compile(r"error: (\w+): ?(.*)")

_HINTS = {
    "SIGKILL": "the kernel kills what takes all memory: look into `dmesg`, then free memory or give the machine more",
    "SIGSEGV": "native code crashed: `zooport export` with the same model and backend shows it alone, `PYTHONFAULTHANDLER=1` shows where",
    "MemoryError": "raise `memory_mb` of the `runner` resource, or `--memory` of `zooport fleet`, if this model really needs more",
    "Timeout": "raise `timeout_seconds` of the `runner` resource, or `--timeout` of `zooport fleet`, if this model really needs longer",
}

Event = Started | StageReport | Parity | Report


class NeedsModel:
    """Said instead of a report: not everything is cached, so that the model and torch are needed."""


@dataclass
class Progress:
    """What a child has said so far, enough to write its report for it if it can't."""

    model: str
    backend: str
    stages: list[StageReport] = field(default_factory=list)
    parity: list[Parity] = field(default_factory=list)
    report: Report | None = None
    stage: str = ""

    def __post_init__(self) -> None:
        self._order = (*STAGES[family_of(self.backend)], VERIFICATION)
        self.stage = self._order[0]

    def add(self, event: Event) -> None:
        """Take an event into account."""
        if isinstance(event, Started):
            self.stage = event.stage
        elif isinstance(event, StageReport):
            self.stages.append(event)
            if event.stage in self._order[:-1]:
                self.stage = self._order[self._order.index(event.stage) + 1]
        elif isinstance(event, Parity):
            self.parity.append(event)
        else:
            self.report = event

    def obituary(self, kind: str, how: str, tail: Sequence[str]) -> Report:
        """The report of a child that wrote none: all its stages made is `exported`, anything less is `failed`."""
        made_all = self.stage == VERIFICATION
        message, advice = f"the export's process {how}" + _last_words(tail), ""
        if kind == NO_REPORT and (named := _named(tail)) is not None:
            kind, message, advice = named
        error = ErrorReport(
            stage=self.stage,
            type=kind,
            message=message,
            next=advice or _HINTS.get(kind, f"`zooport export {self.model} --backend {self.backend}` runs it alone"),
        )
        return Report(
            model=self.model,
            backend=self.backend,
            outcome="exported" if made_all else "failed",
            stages=self.stages,
            parity=self.parity,
            artifact=self.stages[-1].path if made_all else None,
            error=error,
        )


def ending(how: str) -> tuple[str, str]:
    """The kind of an end without a report, and how to say it: `how` is as in `exporters.zygote.Ended`."""
    if how in signal.Signals.__members__:
        return how, f"was ended by {how}"
    return NO_REPORT, f"exited with status {how.removeprefix('exit status ') or 0} and without a report"


def _named(tail: Sequence[str]) -> tuple[str, str, str] | None:
    """Type, message and advice of the error that a child named as its last, as `exporters.zygote` and `exporters.chain.serve` write it."""
    lines = list(tail)
    for position in reversed(range(len(lines))):
        if match := _ERROR.match(lines[position]):
            rest = [line.strip() for line in lines[position + 1 :]]
            advice = next((line.removeprefix("next: ") for line in rest if line.startswith("next: ")), "")
            return match[1], match[2] or "without a message", advice
    return None


def _last_words(tail: Sequence[str]) -> str:
    """The end of what a child wrote, its last line first."""
    lines = [line for line in tail if line.strip()]
    return "\n".join([f": {lines[-1].strip()}", *lines[-_TAIL_SHOWN:]]) if lines else ""


def parse(line: str) -> Event | NeedsModel | None:
    """The event in a line of the protocol, or None for what a library printed in between."""
    if not line.startswith("{"):
        return None
    try:
        message = json.loads(line)
        match message.get("event"):
            case "start":
                return Started(stage=message["stage"])
            case "stage":
                return StageReport.model_validate(message["stage"])
            case "parity":
                return Parity.model_validate(message["parity"])
            case "report":
                return Report.model_validate(message["report"])
            case "needs_model":
                return NeedsModel()
    except (ValueError, KeyError, AttributeError):
        return None
    return None
