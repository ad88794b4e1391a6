"""What the assets run on: chains in child processes of this machine."""

from collections.abc import Iterator

from pydantic import Field

from assets.runner import ChainRunner
from exporters.home import home
from exporters.report import Parity, Report, StageReport, Started
from orchestration.child import COMMAND, Event, run_chain


class ChildRunner(ChainRunner):
    """One child process a chain, so that a crash, a leak or a hang of one model is that model's alone."""

    command: list[str] = Field(
        default=list(COMMAND), description="Argument vector of the child; it speaks the protocol of exporters.chain."
    )
    timeout_seconds: float = Field(default=1800.0, gt=0, description="How long one chain may take before its process is killed.")

    def run(self, model: str, backend: str, *, until: str | None = None, run_id: str = "") -> Iterator[StageReport | Parity | Report]:
        for event in self.events(model, backend, until=until, run_id=run_id):
            if not isinstance(event, Started):
                yield event

    def events(self, model: str, backend: str, *, until: str | None = None, run_id: str = "") -> Iterator[Event]:
        """Everything that `run` yields, and when each stage begins."""
        request = {"model": model, "backend": backend, "home": str(home()), "verify": until is None, "until": until, "run": run_id}
        yield from run_chain(request, command=self.command, timeout_seconds=self.timeout_seconds, forward_stderr=True)
