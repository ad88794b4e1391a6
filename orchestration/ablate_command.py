"""`zooport ablate`: which workarounds are still needed, by what becomes of each export without them."""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.markup import escape

from exporters.ablation import Ablation, Partition, PartitionResult, conclude, find_workaround, partitions, touched
from exporters.code_index import CodeIndex, Workaround, code_index
from exporters.errors import StoreError, UsageError
from exporters.home import home, store_of
from exporters.store import Store
from orchestration.console import console_on
from orchestration.streams import reserved_stdout

if TYPE_CHECKING:
    from exporters.ablation_run import Runner

INTERRUPTED = 130
_STYLES = {"needed": "bold", "harmful": "bold red", "obsolete": "bold yellow", "harmless": "yellow", "unclear": "red", "untouched": "dim"}


def ablate(
    names: Sequence[str], *, everything: bool, models: Sequence[str], runs: bool, one_is_enough: bool, docs: Path | None, as_json: bool
) -> int:
    """Give a verdict on workarounds; 0 if there is one on each that any export has, 1 if not.

    Args:
        names: of workarounds; none with `everything`, which means all that are registered.
        models: only these of the exports in the store; none means all.
        runs: False tells of what was measured before, and runs nothing.
        one_is_enough: begin with what the docstring names and what is cheapest, and run no more once an export needs the workaround.
        docs: file to write the results to as a document.
        as_json: verdicts as one line of JSON each on standard output; progress is on standard error in either case.

    Raises:
        UsageError: neither or both of names and `everything`, or no workaround or export of a name.
        StoreError: the store can't be read, or the document not be written.
    """
    if bool(names) == everything:
        raise UsageError("name a workaround, or say --all", next="`zooport workarounds` lists them")
    index = code_index(home() / "cache")
    chosen = list(index.workarounds) if everything else [find_workaround(name, index) for name in names]
    store = Store(store_of(home()))
    exports, passed_over = partitions(store)
    _check_models(models, exports)
    for line in passed_over:
        Console(stderr=True, highlight=False).print(f"[dim]passed over:[/] {escape(line)}")
    with reserved_stdout() as stdout:
        command = _Command(index, store, exports, models, None if as_json else console_on(stdout), runs=runs, one_is_enough=one_is_enough)
        interrupted = command.run(chosen)
        if as_json:
            for ablation in command.ablations:
                print(ablation.model_dump_json(), file=stdout, flush=True)
    if interrupted:
        Console(stderr=True).print("interrupted; what was measured is kept, and the same command goes on from there")
        return INTERRUPTED
    if docs is not None:
        _write(docs, command.ablations, index)
    open_verdicts = {"unclear"} if everything else {"unclear", "untouched"}
    return 1 if any(ablation.verdict in open_verdicts for ablation in command.ablations) else 0


def _check_models(models: Sequence[str], exports: Sequence[Partition]) -> None:
    known = {name for each in exports for name in (each.name, each.model)}
    for name in models:
        if name not in known:
            raise UsageError(
                f"the store has no export of {name}", next=f"make one: zooport export {name} --backend onnx,executorch.xnnpack"
            )


def _write(docs: Path, ablations: Sequence[Ablation], index: CodeIndex) -> None:
    from exporters.ablation_report import document

    try:
        docs.write_text(document(ablations, index), encoding="utf-8")
    except OSError as error:
        raise StoreError(f"{docs} can't be written: {error.strerror}", next="give a file in a folder that can be written to") from error


class _Command:
    """Runs the chosen workarounds one after another and shows what comes of each.

    Attributes:
        ablations: the verdicts so far; of a workaround that was interrupted, over the partitions that were done.
    """

    def __init__(
        self,
        index: CodeIndex,
        store: Store,
        exports: Sequence[Partition],
        models: Sequence[str],
        console: Console | None,
        *,
        runs: bool,
        one_is_enough: bool,
    ) -> None:
        self.ablations: list[Ablation] = []
        self._index, self._store, self._exports, self._models, self._console = index, store, exports, models, console
        self._progress = Console(stderr=True, highlight=False, soft_wrap=True)
        self._began = time.monotonic()
        self._runs, self._one_is_enough = runs, one_is_enough

    def run(self, chosen: Sequence[Workaround]) -> bool:
        """Whether it was interrupted."""
        runner, known = self._runner(runs=self._runs), self._runner(runs=False)
        for number, workaround in enumerate(chosen, 1):
            affected = touched(workaround, self._exports, self._models)
            if self._one_is_enough:
                affected.sort(key=lambda partition: partition.promise(workaround))
            self._progress.print(f"[dim]{number}/{len(chosen)} {workaround.name}: {len(affected)} exports[/]")
            self._show_head(workaround)
            results: list[PartitionResult] = []
            try:
                for partition in affected:
                    enough = self._one_is_enough and any(result.verdict == "needed" for result in results)
                    results.append((known if enough else runner).compare(workaround, partition))
                    self._show(results[-1])
            except KeyboardInterrupt:
                self._conclude(workaround, results, all_tried=False)
                return True
            self._conclude(workaround, results, all_tried=not self._models)
        return False

    def _runner(self, *, runs: bool) -> "Runner":
        from exporters.ablation_run import Runner

        return Runner(home(), self._store, self._index, on_run=self._tell, runs=runs)

    def _tell(self, what: str) -> None:
        self._progress.print(f"[dim]  {time.monotonic() - self._began:5.0f} s  {escape(what)}[/]")

    def _conclude(self, workaround: Workaround, results: Sequence[PartitionResult], *, all_tried: bool) -> None:
        ablation = conclude(workaround, results, all_tried=all_tried)
        self.ablations.append(ablation)
        if self._console is None:
            return
        self._console.print(f"  verdict  [{_STYLES[ablation.verdict]}]{ablation.verdict}[/]")
        if ablation.untried:
            self._console.print(f"  untried  {', '.join(ablation.untried)}")
        if ablation.next:
            self._console.print(f"  next     {escape(ablation.next)}")

    def _show_head(self, workaround: Workaround) -> None:
        if self._console is not None:
            self._console.print(f"[bold]{escape(workaround.name)}[/] {escape(workaround.fields.get('summary', ''))}")

    def _show(self, result: PartitionResult) -> None:
        if self._console is None:
            return
        style = _STYLES[result.verdict]
        self._console.print(f"  {result.model}, {result.backend}, from {result.stage}: [{style}]{result.verdict}[/]: {escape(result.why)}")
        costs = [str(each) for each in result.differences if each.what != "outcome"]
        if all(result.outcomes) and "failed" not in result.outcomes:  # what stopped on the way cost less
            costs.append(f"CPU {result.cpu_seconds[0]:.1f} s -> {result.cpu_seconds[1]:.1f} s")
        if costs:
            self._console.print(f"[dim]    {escape('; '.join(costs))}[/]")
