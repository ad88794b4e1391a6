"""What a chain's process says, line by line, and the report of one that ended without having written its own. Imports no Dagster."""

import json
import signal
from collections.abc import Sequence
from dataclasses import dataclass, field

from exporters.backends import STAGES, family_of
from exporters.report import ErrorReport, Parity, Report, StageReport, Started

# what a chain is in once its last stage has ended
VERIFICATION = "verification"

_TAIL_SHOWN = 6

_HINTS = {
    "SIGKILL": "the kernel kills what takes all memory: look into `dmesg`, then free memory or give the machine more",
    "SIGSEGV": "native code crashed: `zooport export` with the same model and backend shows it alone, `PYTHONFAULTHANDLER=1` shows where",
    "Timeout": "raise `timeout_seconds` of the `runner` resource if this model really needs longer",
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
        error = ErrorReport(
            stage=self.stage,
            type=kind,
            message=f"the export's process {how}" + _last_words(tail),
            next=_HINTS.get(kind, f"`zooport export {self.model} --backend {self.backend}` runs it alone"),
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
    return "NoReport", f"exited with status {how.removeprefix('exit status ') or 0} and without a report"


def _last_words(tail: Sequence[str]) -> str:
    """The end of what a child wrote, its most telling line first: an error that it named, or simply the last."""
    lines = [line for line in tail if line.strip()]
    if not lines:
        return ""
    telling = next((line for line in reversed(lines) if line.startswith("error: ")), lines[-1])
    return "\n".join([f": {telling.strip()}", *lines[-_TAIL_SHOWN:]])


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
