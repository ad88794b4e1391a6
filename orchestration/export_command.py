"""`zooport export`: chains in this process, one after another."""

import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from exporters.backends import family_of
from exporters.errors import UsageError, ZooportError
from exporters.home import home
from exporters.report import OUTCOMES, Outcome, Report
from orchestration.console import ExportView, console_on, print_zooport_error
from orchestration.streams import reserved_stdout

if TYPE_CHECKING:
    from exporters.chain import Event


def parse_sizes(pairs: Sequence[str]) -> dict[str, int]:
    """`["sequence=512"]` as `{"sequence": 512}`.

    Raises:
        UsageError: for what isn't NAME=N with N a positive whole number.
    """
    sizes: dict[str, int] = {}
    for pair in pairs:
        match = re.fullmatch(r"([A-Za-z_]\w*)=([1-9]\d*)", pair)
        if match is None:
            raise UsageError(f"--max {pair!r} is not NAME=N", next="write it like --max sequence=512")
        sizes[match[1]] = int(match[2])
    return sizes


def goal(*, static: bool, verify: bool) -> Outcome:
    """The outcome that was asked for: at one shape there are no others to verify at."""
    if not verify:
        return "exported"
    return "matched" if static else "verified"


def reached(report: Report, asked: Outcome) -> bool:
    return report.error is None and OUTCOMES.index(report.outcome) >= OUTCOMES.index(asked)


def export(models: Sequence[str], backends: Sequence[str], *, options: dict[str, Any], asked: Outcome, as_json: bool) -> int:
    """Run every model through every backend's chain and return the exit status: that of the worst.

    With `as_json` standard output gets one line of JSON a report and nothing else.
    """
    for backend in backends:
        family_of(backend)  # before torch is imported for nothing
    status = 0
    with reserved_stdout() as stdout:
        view = None if as_json else ExportView(console_on(stdout))
        for model in models:
            for backend in backends:
                try:
                    report = _export_one({"model": model, "backend": backend, "home": str(home()), **options}, view)
                except ZooportError as error:
                    print_zooport_error(error)
                    status = max(status, error.exit_code)
                    continue
                if as_json:
                    print(report.model_dump_json(), file=stdout, flush=True)
                if not reached(report, asked):
                    status = max(status, 1)
    return status


def _export_one(request: dict[str, Any], view: ExportView | None) -> Report:
    if view is None:
        return _run(request, None)
    view.begin(request["model"], request["backend"])
    try:
        return _run(request, view.show)
    finally:
        view.stop()


def _run(request: dict[str, Any], on_event: Callable[["Event"], None] | None) -> Report:
    from exporters.chain import Request, run

    return run(Request(**request), on_event=on_event)
