"""`zooport zoo --check forward`: try every class of the zoo, each in a child of its own, and say what came of it."""

import json
import sys
import time
from pathlib import Path

from rich.console import Console
from rich.markup import escape

from exporters.errors import StoreError, UsageError
from exporters.home import home
from exporters.zoo import catalogue
from exporters.zoo.check import Result, open_names, read_results, results_file, run, summary
from orchestration.console import console_on

CHECKS = ("forward",)
BARS = {"model_types": 0.97, "classes": 0.95, "decode": 0.95, "generating": 0.95}
INTERRUPTED = 130


def check_zoo(check: str, family: str | None, *, failed: bool, internal: bool, docs: Path | None, as_json: bool) -> int:
    """Try what has no result of today's code yet; 0 where the bars are reached over the whole zoo, or over the family asked for.

    Internal classes have no bar: many take what only their model can give them.

    Args:
        check: one of `CHECKS`.
        family: only this one.
        failed: instead try again what failed, whatever code it failed with.
        internal: the classes that transformers keeps to itself, instead of the zoo's.
        docs: file to write the results to as a document.
        as_json: results and counts as JSON on standard output; progress is on standard error in either case.

    Raises:
        UsageError: no such check or family.
        StoreError: results or document can't be written.
    """
    if check not in CHECKS:
        raise UsageError(f"no check called {check!r}", next=f"the checks are {', '.join(CHECKS)}")
    names = _chosen(family, internal=internal)
    file = results_file(home())
    todo = open_names(names, read_results(file), failed_only=failed)
    progress = _Progress(len(todo), len(names))
    try:
        for result in run(todo, file):
            progress.show(result)
    except KeyboardInterrupt:
        progress.end()
        Console(stderr=True).print(f"interrupted; {file} has what was tried, and the same command goes on from there")
        return INTERRUPTED
    except OSError as error:
        raise StoreError(
            f"{file} can't be written: {error.strerror}", next="set ZOOPORT_HOME to a folder that can be written to"
        ) from error
    progress.end()
    known = read_results(file)
    if docs is not None:
        _write(docs, known)
    results = {name: known[name] for name in names if name in known}
    counts = summary(results, names)
    bars = {} if internal else BARS
    if as_json:
        json.dump({"summary": counts, "results": list(results.values())}, sys.stdout, indent=1)
        print()
    else:
        _print(results, counts, list(bars) or ["classes"])
    return 0 if all(counts[what]["share"] >= bar for what, bar in bars.items() if counts[what]["all"]) else 1


def _chosen(family: str | None, *, internal: bool) -> list[str]:
    names = catalogue.names(internal=internal)
    families = sorted({catalogue.entry(name).family for name in names})
    if family is not None and family not in families:
        raise UsageError(f"no family called {family!r} in the zoo", next=f"the families are {', '.join(families)}")
    return [name for name in names if family in (None, catalogue.entry(name).family)]


def _write(docs: Path, results: dict[str, Result]) -> None:
    from exporters.zoo.zoo_report import document

    try:
        docs.write_text(document(results), encoding="utf-8")
    except OSError as error:
        raise StoreError(f"{docs} can't be written: {error.strerror}", next="give a file in a folder that can be written to") from error


class _Progress:
    """One line that is written over on a terminal, a line every hundred classes elsewhere."""

    def __init__(self, total: int, all_names: int) -> None:
        self._console = Console(stderr=True, highlight=False)
        self._total, self._done, self._failed, self._began = total, 0, 0, time.monotonic()
        self._console.print(f"{total} of {all_names} to try")

    def show(self, result: Result) -> None:
        self._done += 1
        self._failed += result["outcome"] == "failed"
        left = (time.monotonic() - self._began) / self._done * (self._total - self._done)
        line = f"{self._done}/{self._total}, {self._failed} failed, about {left / 60:.0f} min left: {result['name']}"
        if self._console.is_terminal:
            self._console.print(f"\r\x1b[2K{escape(line)}", end="")
        elif self._done % 100 == 0 or self._done == self._total:
            self._console.print(escape(line))

    def end(self) -> None:
        if self._console.is_terminal and self._done:
            self._console.print()


def _print(results: dict[str, Result], counts: dict[str, dict[str, float]], shown: list[str]) -> None:
    console = console_on(sys.stdout)
    for name, result in results.items():
        if result["outcome"] == "failed":
            console.print(f"[red]failed[/]  {escape(name)}: {escape(result['stage'])}: {escape(result['reason'])}")
    for what in shown:
        row = counts[what]
        console.print(f"{what.replace('_', ' '):<12} {row['ok']} of {row['all'] - row['skipped']} ok ({100 * row['share']:.1f} %)")
