"""How an export looks in a terminal: a row a stage as it ends, then the comparisons, then what it is worth and where it lies."""

from collections.abc import Sequence
from typing import TextIO

from rich.console import Console
from rich.filesize import decimal
from rich.markup import escape
from rich.status import Status

from exporters.errors import ZooportError
from exporters.report import ErrorReport, Outcome, Parity, Report, StageReport, Started

_ROW = "  {:<17} {:>9} {:>9} {:>10} {:>7}  {}"

_STYLES: dict[Outcome, str] = {"verified": "bold green", "failed": "bold red", "skipped": "yellow"}


def outcome_text(outcome: Outcome) -> str:
    """An outcome in rich markup: green only where it is `verified`."""
    style = _STYLES.get(outcome, "bold yellow")
    return f"[{style}]{outcome}[/]"


def print_error(message: str, next_step: str = "") -> None:
    """Two lines on standard error: what is wrong, and what to do."""
    console = Console(stderr=True, highlight=False, soft_wrap=True)
    console.print(f"[bold red]error:[/] {escape(message)}")
    if next_step:
        console.print(f"[bold]next:[/] {escape(next_step)}")


def print_zooport_error(error: ZooportError) -> None:
    print_error(str(error.args[0]) if error.args else type(error).__name__, error.next)


def console_on(file: TextIO) -> Console:
    """A console that never breaks a line of its own accord, and into a file or a pipe writes tables in full width."""
    console = Console(file=file, highlight=False, soft_wrap=True)
    return console if console.is_terminal else Console(file=file, highlight=False, soft_wrap=True, width=200)


class ExportView:
    """Shows one export after another; meant to be fed the events of a chain as they come."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._status: Status | None = None

    def begin(self, model: str, backend: str) -> None:
        self._console.print(f"[bold]{escape(model)}[/] to [bold]{backend}[/]")
        self._console.print(f"[dim]{_ROW.format('stage', 'seconds', 'memory', 'size', 'cached', 'workarounds fired')}[/]")
        self._working("starting")

    def show(self, event: Started | StageReport | Parity | Report) -> None:
        """One event of a chain."""
        match event:
            case Started():
                self._working(event.stage)
            case StageReport():
                self._stage(event)
            case Parity():
                self._parity(event)
            case Report():
                self._end(event)

    def stop(self) -> None:
        """Leave the terminal as it was, whatever is in progress."""
        self._rest()

    def _stage(self, stage: StageReport) -> None:
        self._rest()
        row = _ROW.format(
            stage.stage,
            f"{stage.seconds:.2f}",
            f"{stage.peak_rss_mb:.0f} MB",
            decimal(stage.bytes),
            "yes" if stage.cached else "-",
            _fired(stage.fired),
        )
        self._console.print(escape(row))

    def _parity(self, parity: Parity) -> None:
        self._rest()
        verdict = "[green]equal[/]" if parity.ok else "[bold red]not equal[/]"
        difference = "" if parity.max_abs_diff is None else f", max abs diff {parity.max_abs_diff:.1e}"
        message = f": {escape(parity.message)}" if parity.message else ""
        self._console.print(f"  parity   {escape(parity.inputs):<9} {verdict}{difference}{message}")

    def _end(self, report: Report) -> None:
        self._rest()
        if report.inputs not in ("", "rules"):
            self._console.print(f"  inputs   {escape(report.inputs)}")
        reason = f" ({escape(report.reason)})" if report.reason else ""
        self._console.print(f"  outcome  {outcome_text(report.outcome)}{reason}")
        if report.artifact:
            self._console.print(f"  artifact {escape(report.artifact)}")
        if report.error:
            self._failed(report.error)

    def _failed(self, error: ErrorReport) -> None:
        self._console.print(f"  [bold red]error[/]    {escape(error.stage)}: {escape(error.type)}: {escape(error.message)}")
        if error.active_workarounds:
            self._console.print(f"           active workarounds: {escape(', '.join(error.active_workarounds))}")
        if error.next:
            self._console.print(f"  next     {escape(error.next)}")

    def _working(self, what: str) -> None:
        self._rest()
        if self._console.is_terminal:
            self._status = self._console.status(f"[dim]{escape(what)}[/]")
            self._status.start()

    def _rest(self) -> None:
        if self._status is not None:
            self._status.stop()
            self._status = None


def _fired(names: Sequence[str]) -> str:
    return ", ".join(names) or "-"
