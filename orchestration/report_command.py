"""`zooport report`: what broke, where, and since when; what holds back how much; what it costs. As text, as JSON or as a page."""

import dataclasses
import json
import math
import sys
import time
from collections import defaultdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.filesize import decimal
from rich.markup import escape
from rich.table import Table

from exporters.errors import UsageError
from exporters.home import home, store_of
from exporters.store import Store
from orchestration.console import console_on
from orchestration.report.changes import KINDS
from orchestration.report.fleet import Comparison, FleetReport, make, standing
from orchestration.report.history import parse_since
from orchestration.report.page import render, write_page
from orchestration.report.summary import grave, some

_CLUSTERS_SHOWN = 8
_MODELS_SHOWN = 6


def report(*, html: Path | None, since: str | None, as_json: bool) -> int:
    """Make the report and show it; 0 if there is anything to report on, 1 if nothing was exported yet.

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
        _show(made, html)
    return 0 if made.snapshot.partitions else 1


# ── As JSON ───────────────────────────────────────────────────────────────────


def as_data(made: FleetReport) -> dict[str, Any]:
    """All of the report in plain data. What is infinite is the text `inf`."""
    matrix: dict[str, dict[str, dict[str, int]]] = defaultdict(lambda: defaultdict(lambda: defaultdict(int)))
    for each in made.snapshot.partitions:
        matrix[made.model_types[each.model][0]][each.backend][standing(each)] += 1
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


def _show(made: FleetReport, html: Path | None) -> None:
    console = console_on(sys.stdout)
    if not made.snapshot.partitions:
        console.print("nothing has been exported into this store yet")
        console.print("[bold]next:[/] zooport export MODEL --backend dynamo,onnx")
        return
    if made.comparison is None:
        console.print("[bold]the first report[/]; changes show from the next one on")
    else:
        _show_changes(console, made, made.comparison)
    console.print()
    _show_backends(console, made)
    _show_clusters(console, made)
    for row in made.known:
        if row.passes:
            console.print(f"[green]passes now[/] though listed as a known issue: {escape(row.model)} to {row.backend}")
    console.print()
    if html is not None:
        console.print(f"page {escape(str(html.absolute()))}")
    else:
        console.print("[dim]all of it, to sort and search: zooport report --html report.html[/]")


def _show_changes(console: Console, made: FleetReport, comparison: Comparison) -> None:
    counts = comparison.counts
    moment = datetime.fromtimestamp(comparison.at, UTC).strftime("%Y-%m-%d %H:%M UTC")
    broke = f"[bold red]{counts['broken']} broke[/]" if counts["broken"] else "[bold green]nothing broke[/]"
    rest = [f"{counts[kind]} {kind}" for kind in KINDS if kind != "broken" and counts[kind]]
    console.print(f"{broke}{''.join(f', {each}' for each in rest)} since {moment} [dim]({escape(comparison.label)})[/]")
    for group in grave(made):
        console.print(f"  {group.kind} [bold]{group.where}[/], {len(group.models)}: {escape(some(group.models, _MODELS_SHOWN))}")
        if group.cause:
            console.print(f"    [dim]{escape(group.cause[:170])}[/]")


def _show_backends(console: Console, made: FleetReport) -> None:
    table = Table(box=None, header_style="dim", pad_edge=False)
    for column in ("backend", "verified", "failing", "unverified", "skipped", "CPU", "bytes"):
        table.add_column(column, justify="left" if column == "backend" else "right")
    for backend in made.backends:
        tally = made.tally(backend)
        rows = [cost for cost in made.costs if cost.backend == backend]
        cpu, size = sum(cost.cpu_seconds.total for cost in rows), sum(int(cost.bytes.total) for cost in rows)
        numbers = [str(tally.get(name, 0)) for name in ("verified", "failing", "unverified", "skipped")]
        table.add_row(backend, *numbers, f"{cpu:.0f} s", decimal(size))
    console.print(table)


def _show_clusters(console: Console, made: FleetReport) -> None:
    if not made.clusters:
        return
    console.print()
    console.print("[dim]repairing one cause unlocks[/]")
    for each in made.clusters[:_CLUSTERS_SHOWN]:
        models = f"{len(each.models)} model{'' if len(each.models) == 1 else 's'}"
        console.print(f"  [bold]{models:>11}[/]  {', '.join(each.backends)}, {each.stage}: {escape(f'{each.kind}: {each.cause}'[:170])}")
    if len(made.clusters) > _CLUSTERS_SHOWN:
        console.print(f"  [dim]{len(made.clusters) - _CLUSTERS_SHOWN} more causes on the page and in --json[/]")
