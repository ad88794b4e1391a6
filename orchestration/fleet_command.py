"""`zooport fleet`: chooses partitions, runs them as one fleet, and says what became of each."""

import json
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TextIO

from filelock import FileLock, Timeout
from rich.console import Console
from rich.markup import escape

from assets.partitions import Partition
from exporters.errors import StoreError, UsageError
from exporters.home import home, store_of
from exporters.report import Report
from exporters.reports import last_reports
from exporters.store import Store
from orchestration import fleet_plan, selection, stale_fleet
from orchestration.console import console_on
from orchestration.fleet import Fleet, failed_in_dagster
from orchestration.fleet_view import FleetView, why
from orchestration.instance import dagster_home, open_instance
from orchestration.resources import PoolRunner
from orchestration.run_processes import close_abandoned_runs
from orchestration.selection import WELL, Scope
from orchestration.sqlite import settle
from orchestration.streams import reserved_stdout, stderr_into

INTERRUPTED = 130


@dataclass(frozen=True)
class Choice:
    """What was asked for on the command line."""

    scope: Scope
    everything: bool = False
    stale: bool = False
    failed: bool = False
    sample: int | None = None


def choose(choice: Choice) -> list[Partition]:
    """The partitions that are meant.

    Raises:
        UsageError: nothing is named, or something that doesn't exist.
    """
    scope = choice.scope
    if not (scope.models or scope.families or choice.everything or choice.stale or choice.failed or choice.sample):
        raise UsageError("which models?", next="name some, or say --all, --family, --sample N, --stale or --failed")
    if (choice.stale or choice.failed) and not scope.backends:
        scope = Scope(scope.models, selection.scope_of_everything().backends, scope.families)
    partitions = scope.partitions()
    if choice.stale or choice.failed:
        partitions = _narrowed(partitions, choice)
    return selection.sampled(partitions, choice.sample) if choice.sample else partitions


def _narrowed(partitions: list[Partition], choice: Choice) -> list[Partition]:
    place = home()
    found: set[Partition] = set()
    if choice.failed:
        found |= failed_in_dagster(partitions)
        plan = fleet_plan.last(place)
        found |= set(selection.failed(partitions, last_reports(Store(store_of(place))), set(plan.left()) if plan else set()))
    if choice.stale:
        found |= set(stale_fleet.find().partitions)
    return [partition for partition in partitions if partition in found]


def run_fleet(choice: Choice, runner: PoolRunner, *, as_json: bool) -> int:
    """Run a fleet on the local instance; 0 if every partition is verified, or skipped for a reason that is known.

    Raises:
        UsageError: nothing is named, something that doesn't exist, or a fleet is running.
        StoreError: the home can't be written.
    """
    partitions = choose(choice)
    if not partitions and not as_json:
        print("nothing to do: nothing of what was named is " + " or ".join(["failed"] * choice.failed + ["stale"] * choice.stale))
        return 0
    folder = dagster_home()
    lock = FileLock(folder / "fleet.lock")
    try:
        lock.acquire(timeout=0)
    except Timeout:
        raise UsageError("a fleet is running in this home", next="wait for it, or set ZOOPORT_HOME to another folder") from None
    except OSError as error:
        raise StoreError(f"can't write into {folder}: {error.strerror}", next="set ZOOPORT_HOME to a folder that can be written") from error
    settle()
    log = folder / "fleet.log"
    with lock, open_instance() as instance, reserved_stdout() as stdout, stderr_into(log) as stderr:
        # with JSON on standard output, progress has the other one
        screen = Console(file=stderr, highlight=False, soft_wrap=True) if as_json else console_on(stdout)
        close_abandoned_runs(instance)
        plan = fleet_plan.begin(home(), partitions)
        view = FleetView(screen, partitions, runner.limits.workers)
        fleet = Fleet(plan, runner, view.show)
        began = time.monotonic()
        interrupted = False
        with view:
            try:
                fleet.run(instance)
            except KeyboardInterrupt:
                interrupted = True
        seconds = time.monotonic() - began
        if as_json:
            _print_json(stdout, fleet, seconds)
        else:
            _print_end(screen, view, fleet, seconds, str(log), interrupted=interrupted)
    if interrupted:
        return INTERRUPTED
    return 0 if all(partition in fleet.reports and fleet.reports[partition].outcome in WELL for partition in partitions) else 1


def queue_fleet(choice: Choice, *, as_json: bool) -> None:
    """Queue a fleet's runs on the instance of this home and print their ids; the daemon starts them.

    Raises:
        UsageError: nothing is named, or something that doesn't exist.
    """
    from orchestration.submission import queue  # loads the definitions

    with reserved_stdout() as stdout:
        runs = queue(choose(choice))
        if as_json:
            json.dump({"runs": runs}, stdout)
        else:
            stdout.write("".join(f"{run}\n" for run in runs))
            console_on(stdout).print("[dim]queued; the daemon (`make ui`, or `dagster-daemon run -w workspace.yaml`) starts them[/]")


# ── What is printed ───────────────────────────────────────────────────────────


def _print_json(stdout: TextIO, fleet: Fleet, seconds: float) -> None:
    rows = [_row(partition, fleet.reports.get(partition)) for partition in fleet.plan.partitions]
    counts = Counter(row["outcome"] or "not begun" for row in rows)
    json.dump(
        {"fleet": fleet.plan.name, "runs": fleet.runs, "seconds": round(seconds, 1), "counts": counts, "partitions": rows}, stdout, indent=1
    )
    stdout.write("\n")


def _row(partition: Partition, report: Report | None) -> dict[str, object]:
    backend, model = partition
    row: dict[str, object] = {"backend": backend, "model": model, "outcome": report.outcome if report else None}
    if report is not None:
        row["cached"] = bool(report.stages) and all(stage.cached for stage in report.stages)
        row["stages"] = [stage.model_dump(include={"stage", "cached", "seconds", "cpu_seconds", "bytes"}) for stage in report.stages]
        row["verify_cpu_seconds"] = 0.0 if row["cached"] else report.verify_cpu_seconds
        row["reason"] = report.reason
        row["error"] = report.error.model_dump(include={"stage", "type", "message", "next"}) if report.error else None
    return row


def _print_end(console: Console, view: FleetView, fleet: Fleet, seconds: float, log: str, *, interrupted: bool) -> None:
    failures: Sequence[tuple[Partition, Report]] = [each for each in fleet.reports.items() if each[1].outcome not in WELL]
    for (stage, kind), group in _grouped(failures).items():
        console.print(f"[bold red]{len(group)}[/] at {escape(stage)}, {escape(kind)}: {escape(', '.join(model for _, model in group[:8]))}")
        console.print(f"  [dim]{escape(why(fleet.reports[group[0]]))}[/]")
    console.print(f"{view.summary()}, in {seconds:.0f} s")
    left = len(fleet.plan.partitions) - len(fleet.reports)
    if interrupted or left:
        console.print(f"[yellow]interrupted, {left} left[/]: `zooport fleet --failed` goes on, and repeats nothing that was done")
    elif failures:
        console.print("[bold]next[/] `zooport report` compares with before; `zooport fleet --failed` runs these again")
    console.print(f"[dim]`make ui` shows the runs; their log is in {escape(log)}[/]")


def _grouped(failures: Sequence[tuple[Partition, Report]]) -> dict[tuple[str, str], list[Partition]]:
    groups: dict[tuple[str, str], list[Partition]] = {}
    for partition, report in failures:
        key = (report.error.stage, report.error.type) if report.error else ("verification", "Mismatch")
        groups.setdefault(key, []).append(partition)
    return dict(sorted(groups.items(), key=lambda each: -len(each[1])))
