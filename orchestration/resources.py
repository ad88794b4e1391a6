"""What the assets run on: chains in child processes of this machine."""

from collections.abc import Iterator, Mapping

from pydantic import Field

from assets.runner import ChainRunner, RecipeReader
from exporters.code_index import code_index
from exporters.home import home, store_of
from exporters.report import Parity, Report, StageReport, Started
from exporters.staleness import survey
from exporters.store import Store
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


class StoreRecipes(RecipeReader):
    """Recipes of everything that this machine's store has."""

    def versions(self, family: str, stage: str) -> Mapping[tuple[str, str], str]:
        place = home()
        found = {}
        for partition in survey(Store(store_of(place)), code_index(place / "cache"), family=family):
            state = next(each for each in partition.stages if each.stage == stage)
            if state.recipe:
                found[partition.backend, partition.name] = state.recipe
        return found
