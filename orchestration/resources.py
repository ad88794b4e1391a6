"""What the assets run on: a pool of forked children on this machine."""

import contextlib
from collections.abc import Generator, Mapping, Sequence
from typing import Any

import dagster as dg
from pydantic import Field, PrivateAttr

from assets.runner import ChainRunner, RecipeReader
from exporters.code_index import code_index
from exporters.home import home, store_of
from exporters.staleness import survey
from exporters.store import Store
from orchestration.interrupts import interrupts
from orchestration.outcomes import Event
from orchestration.pool import CHAIN, Limits, Pool, default_limits
from orchestration.run_processes import mark
from orchestration.sqlite import settle


class PoolRunner(ChainRunner):
    """Chains in children of a process that has imported what they need: a crash, a leak or a hang of one model is that model's alone."""

    workers: int = Field(default=0, ge=0, description="Chains at once; 0 for what the machine's cores and memory allow.")
    timeout_seconds: float = Field(default=1800.0, gt=0, description="How long one chain may take before its process is killed.")
    memory_mb: int = Field(default=0, ge=0, description="Limit of one chain's data in MiB; 0 for a share of the machine's memory.")
    retries: int = Field(default=1, ge=0, description="How often a chain is tried again whose process crashed.")
    chain: str = Field(default=CHAIN, description="`module:name` of the function that runs a chain in a child.")

    _pool: Pool | None = PrivateAttr(default=None)

    @property
    def limits(self) -> Limits:
        found = default_limits(self.workers or None)
        memory = self.memory_mb << 20 if self.memory_mb else found.memory
        return Limits(found.workers, self.timeout_seconds, memory, self.retries)

    def run(
        self, partitions: Sequence[tuple[str, str]], *, until: str | None = None, run_id: str = ""
    ) -> Generator[tuple[tuple[str, str], Event], None, None]:
        common: dict[str, Any] = {"home": str(home()), "verify": until is None, "until": until, "run": run_id}
        requests = [{"backend": backend, "model": model, **common} for backend, model in partitions]
        with interrupts() as interrupted, contextlib.closing(self._started().run(requests)) as events:
            for key, event in events:
                yield partitions[key], event
                if interrupted.seen:
                    raise dg.DagsterExecutionInterruptedError

    def setup_for_execution(self, context: dg.InitResourceContext) -> None:
        settle()
        if context.instance is not None and context.run is not None:
            mark(context.instance, context.run.run_id)

    def teardown_after_execution(self, context: dg.InitResourceContext) -> None:
        self.close()

    def _started(self) -> Pool:
        if self._pool is None:
            self._pool = Pool(self.limits, chain=self.chain, forward_stderr=True)
        return self._pool

    def close(self) -> None:
        """End the pool's processes. It starts them again when it is asked to run something."""
        if self._pool is not None:
            self._pool.close()
        self._pool = None


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
