"""How a fleet looks while it runs: counts and what is in progress on a terminal, a line a partition elsewhere."""

import time
from collections import Counter
from collections.abc import Sequence

from rich.console import Console, Group
from rich.live import Live
from rich.markup import escape
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from assets.partitions import Partition
from exporters.report import Report, StageReport, Started
from orchestration.console import outcome_text
from orchestration.outcomes import Event
from orchestration.selection import WELL

_RECENT = 20  # ended partitions that the estimate is made from


class FleetView:
    """Shows a fleet as its events come.

    Args:
        console: where to; a live view needs a terminal.
        partitions: the whole fleet.
        workers: chains at once.
    """

    def __init__(self, console: Console, partitions: Sequence[Partition], workers: int) -> None:
        self._console, self._total, self._workers = console, len(partitions), workers
        self._began = time.monotonic()
        self._active: dict[Partition, tuple[str, float]] = {}
        self._outcomes: Counter[str] = Counter()
        self._cached = 0
        self._ends: list[float] = []
        self._live: Live | None = None
        if console.is_terminal:
            # standard error has a file of its own, and stays there
            self._live = Live(
                get_renderable=self._render,
                console=console,
                refresh_per_second=2,
                transient=True,
                redirect_stdout=False,
                redirect_stderr=False,
            )

    def __enter__(self) -> "FleetView":
        if self._live:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live:
            self._live.stop()

    def show(self, partition: Partition, event: Event) -> None:
        """One event of a chain."""
        _, began = self._active.get(partition, ("", time.monotonic()))
        match event:
            case Started():
                self._active[partition] = (event.stage, began)
            case StageReport():
                self._active[partition] = (f"after {event.stage}", began)
            case Report():
                known = self._active.pop(partition, None) is not None
                self._ended(partition, event, time.monotonic() - began if known else None)

    # ── One partition's end ───────────────────────────────────────────────────

    def _ended(self, partition: Partition, report: Report, seconds: float | None) -> None:
        self._outcomes[report.outcome] += 1
        self._ends.append(time.monotonic())
        cached = bool(report.stages) and all(stage.cached for stage in report.stages)
        self._cached += cached
        backend, model = partition
        line = f"{outcome_text(report.outcome)} {escape(model)} [dim]{backend}[/]"
        if report.outcome not in WELL:
            line += f" {escape(why(report))}"
        elif report.reason:
            line += f" [dim]{escape(report.reason)}[/]"
        if self._live is None:
            done = sum(self._outcomes.values())
            took = "cached" if cached else "" if seconds is None else f"{seconds:.1f} s"
            self._console.print(f"[dim]{done}/{self._total}[/] {line}" + (f" [dim]{took}[/]" if took else ""))
        elif report.outcome not in WELL:
            self._console.print(line)

    # ── The live view ─────────────────────────────────────────────────────────

    def _render(self) -> Group:
        done = sum(self._outcomes.values())
        active = Table.grid(padding=(0, 2))
        now = time.monotonic()
        for (backend, model), (stage, began) in list(self._active.items())[: 2 * self._workers]:
            active.add_row(
                Text("  "), Text(model), Text(backend, style="dim"), Text(stage or "starting"), Text(f"{now - began:.0f} s", style="dim")
            )
        rows = Table.grid()
        rows.add_row(ProgressBar(total=max(1, self._total), completed=done, width=60))
        rows.add_row(Text.from_markup(self.summary()))
        rows.add_row(Text(f"in progress {len(self._active)}, {self._left(done)}", style="dim"))
        return Group(rows, active)

    def summary(self) -> str:
        """Counts so far, in rich markup."""
        done = sum(self._outcomes.values())
        failed = sum(count for outcome, count in self._outcomes.items() if outcome not in WELL)
        red = f"[bold red]not verified {failed}[/]" if failed else "not verified 0"
        skipped = f", skipped {self._outcomes['skipped']}" if self._outcomes["skipped"] else ""
        return f"{done} of {self._total}: [green]verified {self._outcomes['verified']}[/], {red}{skipped}, cached {self._cached}"

    def _left(self, done: int) -> str:
        """How long the rest takes at the pace of the last ones."""
        recent = self._ends[-_RECENT:]
        if done < 2 or len(recent) < 2:
            return f"{_clock(time.monotonic() - self._began)} so far"
        pace = (time.monotonic() - recent[0]) / len(recent)
        return f"about {_clock(pace * (self._total - done))} left"


def why(report: Report) -> str:
    """One line: where and why a partition stopped."""
    if report.error:
        return f"{report.error.stage}: {report.error.type}: {report.error.message.splitlines()[0] if report.error.message else ''}"
    unequal = [f"{parity.inputs}: {parity.message or 'differs'}" for parity in report.parity if not parity.ok]
    return "; ".join(unequal) or report.reason


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s" if minutes else f"{rest} s"
