"""`zooport report`: what broke, where, and since when; what holds back how much; what it costs. As text, as JSON or as a page."""

import dataclasses
import json
import math
import shlex
import sys
import time
from collections import defaultdict
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rich.filesize import decimal
from rich.markup import escape
from rich.table import Table

from exporters.errors import UsageError
from exporters.home import home, store_of
from exporters.store import Store
from orchestration.console import console_on
from orchestration.report.changes import KINDS
from orchestration.report.fleet import Comparison, FleetReport, make
from orchestration.report.history import parse_since
from orchestration.report.page import render, write_page
from orchestration.report.snapshot import STANDINGS
from orchestration.report.summary import Group, all_of, some

_CLUSTERS_SHOWN = 8
_MODELS_SHOWN = 6
_CHARACTERS = 170


def report(*, html: Path | None, since: str | None, everything: bool, check: bool, as_json: bool) -> int:
    """Make the report and show it; 0 if there is anything to report on, 1 if nothing was exported yet.

    Args:
        everything: show every name and every cause as text; JSON and the page always have them.
        check: 1 also if anything broke since what it is compared with.

    Raises:
        UsageError: `since` is no date and no number of days, or `html` is a folder.
        StoreError: the store can't be read or written, or the page not be written.
    """
    now = time.time()
    if html is not None and html.is_dir():
        raise UsageError(f"{html} is a folder", next="name the file, such as report.html")
    moment = parse_since(since, now) if since is not None else None
    made = make(Store(store_of(home())), home(), since=moment, since_label=since or "", now=now)
    if html is not None:
        write_page(html, render(made))
    if as_json:
        json.dump(as_data(made), sys.stdout, indent=1, allow_nan=False)
        print()
    else:
        _Text(made, everything=everything).show(html)
    broke = made.comparison is not None and made.comparison.counts["broken"] > 0
    return 1 if not made.snapshot.partitions or (check and broke) else 0


# ── As JSON ───────────────────────────────────────────────────────────────────


def as_data(made: FleetReport) -> dict[str, Any]:
    """All of the report in plain data. What is infinite is the text `inf`."""
    matrix: dict[str, dict[str, dict[str, int]]] = defaultdict(lambda: defaultdict(lambda: defaultdict(int)))
    for each in made.snapshot.partitions:
        matrix[made.model_types[each.model][0]][each.backend][each.standing] += 1
    data = {
        "at": made.snapshot.at,
        "snapshot": made.name,
        "headline": made.headline,
        "backends": {backend: made.tally(backend) for backend in made.backends},
        "comparisons": [{**dataclasses.asdict(each), "counts": each.counts} for each in made.comparisons],
        "rules": KINDS,
        "clusters": [{**dataclasses.asdict(each), "backends": each.backends} for each in made.clusters],
        "matrix": matrix,
        "costs": [dataclasses.asdict(each) for each in made.costs],
        "workarounds": [dataclasses.asdict(each) for each in made.reach],
        "known_issues": [dataclasses.asdict(each) for each in made.known],
        "trend": [dataclasses.asdict(each) for each in made.trend],
        "failing_since": [{"backend": backend, "model": model, "since": at} for (backend, model), at in made.failing_since.items()],
    }
    return {name: _finite(value) for name, value in data.items()}


def _finite(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return "inf"
    if isinstance(value, dict):
        return {key: _finite(each) for key, each in value.items()}
    return [_finite(each) for each in value] if isinstance(value, list | tuple) else value


# ── In a terminal ─────────────────────────────────────────────────────────────


class _Text:
    """The report on standard output. Names and causes that are left out are counted, and the last line says how to see them."""

    def __init__(self, made: FleetReport, *, everything: bool) -> None:
        self._made = made
        self._everything = everything
        self._cut = False
        self._console = console_on(sys.stdout)

    def show(self, html: Path | None) -> None:
        if not self._made.snapshot.partitions:
            self._print("nothing has been exported into this store yet")
            self._print("[bold]next:[/] zooport export MODEL --backend dynamo,onnx")
            return
        if self._made.comparison is None:
            self._print("[bold]the first report[/]; changes show from the next one on")
        else:
            self._changes(self._made.comparison)
        self._print()
        self._backends()
        self._clusters()
        for row in self._made.known:
            if row.passes:
                self._print(f"[green]passes now[/] though listed as a known issue: {escape(row.model)} to {row.backend}")
        self._print()
        if self._cut:
            self._print("[dim]every name and cause in full: zooport report --all[/]")
        if html is not None:
            self._print(f"page {escape(str(html.absolute()))}")
        else:
            self._print("[dim]to sort and search: zooport report --html report.html[/]")

    def _print(self, text: str = "") -> None:
        self._console.print(text)

    def _changes(self, comparison: Comparison) -> None:
        counts = comparison.counts
        moment = datetime.fromtimestamp(comparison.at, UTC).strftime("%Y-%m-%d %H:%M UTC")
        broke = f"[bold red]{counts['broken']} broke[/]" if counts["broken"] else "[bold green]nothing broke[/]"
        rest = [f"{counts[kind]} {kind}" for kind in KINDS if kind != "broken" and counts[kind]]
        self._print(f"{broke}{''.join(f', {each}' for each in rest)} since {moment} [dim]({escape(comparison.label)})[/]")
        self._print(f"upgraded since: {escape(self._short('; '.join(comparison.upgrades.words)))}")
        shown = all_of(self._made)
        for group in shown:
            self._group(group)
        if any(group.fails for group in shown):
            self._print("  [dim]all that isn't verified once more:[/] zooport fleet --failed")

    def _group(self, group: Group) -> None:
        figures = group.figures or ("",) * len(group.models)
        names = [f"{model} {then_and_now}".strip() for model, then_and_now in zip(group.models, figures, strict=True)]
        cause = _of_cause(group)
        self._print(f"  {group.kind} [bold]{group.where}[/], {len(names)}{cause}: {escape(self._some(names))}")
        if group.cause:
            self._print(f"    [dim]{escape(self._short(group.cause))}[/]")
        if group.example:
            self._print(f"    [dim]{escape(self._short(f'in {group.models[0]}: {group.example}'))}[/]")
        if group.fails:
            self._print(f"    [dim]again:[/] zooport export {escape(shlex.quote(group.models[0]))} --backend {group.backend}")

    def _some(self, names: Sequence[str]) -> str:
        most = len(names) if self._everything else _MODELS_SHOWN
        self._cut |= len(names) > most
        return some(names, most)

    def _short(self, text: str) -> str:
        if self._everything or len(text) <= _CHARACTERS:
            return text
        self._cut = True
        return f"{text[: _CHARACTERS - 1]}…"

    def _backends(self) -> None:
        table = Table(box=None, header_style="dim", pad_edge=False)
        for column in ("backend", *STANDINGS, "CPU", "bytes"):
            table.add_column(column, justify="left" if column == "backend" else "right")
        for backend in self._made.backends:
            tally = self._made.tally(backend)
            rows = [cost for cost in self._made.costs if cost.backend == backend]
            cpu, size = sum(cost.cpu_seconds.total for cost in rows), sum(int(cost.bytes.total) for cost in rows)
            table.add_row(backend, *(str(tally[name]) for name in STANDINGS), f"{cpu:.0f} s", decimal(size))
        self._console.print(table)

    def _clusters(self) -> None:
        clusters = self._made.clusters
        if not clusters:
            return
        self._print()
        self._print("[dim]repairing one cause unlocks[/]")
        most = len(clusters) if self._everything else _CLUSTERS_SHOWN
        for each in clusters[:most]:
            models = f"{len(each.models)} model{'' if len(each.models) == 1 else 's'}"
            alone = f" [dim](for {each.alone} the only failure)[/]" if each.alone else ""
            kind = f"{each.kind}: " if each.kind else ""
            text = escape(self._short(f"{kind}{each.cause}"))
            self._print(f"  [bold]{models:>11}[/]{alone}  {', '.join(each.backends)}, {each.stage}: {text}")
        if len(clusters) > most:
            self._cut = True
            self._print(f"  [dim]{len(clusters) - most} more causes[/]")


def _of_cause(group: Group) -> str:
    """How much of the cause is new, since one that was there before calls for something else than one that has come."""
    if not group.fresh and not group.older:
        return ""
    return f" (the cause: {group.fresh} new, {group.older} older)" if group.older else " (a new cause)"
