"""`zooport zoo`: what there is to export, and how far each has come on this machine."""

import json
import sys
from collections.abc import Mapping

from rich.table import Table

from exporters.backends import all_backends
from exporters.errors import UsageError
from exporters.home import home
from exporters.report import Report
from exporters.zoo import catalogue
from orchestration.console import console_on, outcome_text
from orchestration.reports import last_reports


def show_zoo(family: str | None, *, as_json: bool) -> None:
    """Print a row a model, or the same as a JSON array.

    Raises:
        UsageError: if no model is of this family.
    """
    entries = [catalogue.entry(name) for name in catalogue.names()]
    families = sorted({entry.family for entry in entries})
    if family is not None and family not in families:
        raise UsageError(f"no family called {family!r} in the zoo", next=f"the families are {', '.join(families)}")
    chosen = [entry for entry in entries if family in (None, entry.family)]
    reports = last_reports(home())
    if as_json:
        rows = [
            {
                "name": entry.name,
                "model_type": entry.model_type,
                "family": entry.family,
                "task": entry.task,
                "builds": _builds(entry.name, reports),
                "outcomes": {backend: report.outcome for (backend, name), report in reports.items() if name == entry.name},
            }
            for entry in chosen
        ]
        json.dump(rows, sys.stdout, indent=1)
        print()
        return
    _print_table(chosen, reports)


def _builds(model: str, reports: Mapping[tuple[str, str], Report]) -> bool | None:
    """Whether the tiny model can be built: shown by any export that got a stage made, unknown before one was tried."""
    of_model = [report for (_, name), report in reports.items() if name == model]
    if any(report.stages for report in of_model):
        return True
    return False if any(report.error for report in of_model) else None


def _print_table(entries: list[catalogue.Entry], reports: Mapping[tuple[str, str], Report]) -> None:
    table = Table(box=None, header_style="dim", pad_edge=False)
    for column in ("model", "family", "task", "builds", *all_backends()):
        table.add_column(column, overflow="fold")
    for entry in entries:
        builds = {True: "yes", False: "[red]no[/]", None: "-"}[_builds(entry.name, reports)]
        outcomes = [outcome_text(reports[b, entry.name].outcome) if (b, entry.name) in reports else "-" for b in all_backends()]
        table.add_row(entry.name, entry.family, entry.task, builds, *outcomes)
    console = console_on(sys.stdout)
    console.print(table)
    verified = sum(report.outcome == "verified" for report in reports.values())
    console.print(f"[dim]{len(entries)} models; {verified} of {len(reports)} exports made so far are verified[/]")
