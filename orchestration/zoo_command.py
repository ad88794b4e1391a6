"""`zooport zoo`: what there is to export, and how far each has come on this machine; and checkpoints under names of their own."""

import json
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass

from rich.markup import escape
from rich.table import Table

from exporters.backends import all_backends
from exporters.errors import UsageError
from exporters.home import home, store_of
from exporters.report import Report
from exporters.reports import last_reports
from exporters.store import Store
from exporters.zoo import catalogue, zoo_file
from orchestration.console import console_on, outcome_text

CHECKPOINT = "checkpoint"


@dataclass(frozen=True)
class Row:
    """One model of the list. `checkpoint` says where a named checkpoint lies; None for a class."""

    name: str
    model_type: str
    family: str
    task: str
    checkpoint: str | None = None


def show_zoo(family: str | None, *, as_json: bool) -> None:
    """Print a row a model, or the same as a JSON array; named checkpoints come last, as a family of their own.

    Raises:
        UsageError: if no model is of this family, or a `zoo.toml` says what can't be.
    """
    rows = [Row(entry.name, entry.model_type, entry.family, entry.task) for entry in map(catalogue.entry, catalogue.names())]
    rows += [Row(entry.name, "", CHECKPOINT, entry.task, entry.where) for entry in zoo_file.read().values()]
    families = sorted({CHECKPOINT, *(row.family for row in rows)})
    if family is not None and family not in families:
        raise UsageError(f"no family called {family!r} in the zoo", next=f"the families are {', '.join(families)}")
    chosen = [row for row in rows if family in (None, row.family)]
    reports = last_reports(Store(store_of(home())))
    if as_json:
        for_json = [
            {
                **asdict(row),
                "builds": _builds(row.name, reports),
                "outcomes": {backend: report.outcome for (backend, name), report in reports.items() if name == row.name},
            }
            for row in chosen
        ]
        json.dump(for_json, sys.stdout, indent=1)
        print()
        return
    _print_table(chosen, reports)


def add_checkpoint(name: str, where: str, *, task: str, revision: str, replace: bool, as_json: bool) -> None:
    """Name a checkpoint in a `zoo.toml`, and say which.

    Raises:
        UsageError: the name is taken or can't be, or `where` is no checkpoint.
        StoreError: the file can't be written.
    """
    entry = zoo_file.add(name, where, task=task, revision=revision, replace=replace)
    if as_json:
        print(json.dumps({**asdict(entry), "file": str(entry.file)}))
        return
    console = console_on(sys.stdout)
    console.print(f"{escape(entry.name)} is {escape(entry.where)}, in {escape(str(entry.file))}")
    console.print(f"[dim]next: zooport export {escape(entry.name)}[/]")


def _builds(model: str, reports: Mapping[tuple[str, str], Report]) -> bool | None:
    """Whether the tiny model can be built: shown by any export that got a stage made, unknown before one was tried."""
    of_model = [report for (_, name), report in reports.items() if name == model]
    if any(report.stages for report in of_model):
        return True
    return False if any(report.error for report in of_model) else None


def _print_table(rows: list[Row], reports: Mapping[tuple[str, str], Report]) -> None:
    table = Table(box=None, header_style="dim", pad_edge=False)
    for column in ("model", "family", "task", "builds", *all_backends()):
        table.add_column(column, overflow="fold")
    for row in rows:
        builds = {True: "yes", False: "[red]no[/]", None: "-"}[_builds(row.name, reports)]
        outcomes = [outcome_text(reports[b, row.name].outcome) if (b, row.name) in reports else "-" for b in all_backends()]
        table.add_row(row.name, row.family, row.task or "-", builds, *outcomes)
    console = console_on(sys.stdout)
    console.print(table)
    verified = sum(report.outcome == "verified" for report in reports.values())
    console.print(f"[dim]{len(rows)} models; {verified} of {len(reports)} exports made so far are verified[/]")
