"""`zooport drift`: where the numbers of an export leave those of the model, in a child process that may crash alone."""

from collections.abc import Callable
from typing import Any

from rich.console import Console
from rich.markup import escape

from exporters.backends import family_of
from exporters.drift_report import DriftReport, DriftStage
from exporters.errors import UsageError, ZooportError
from exporters.home import home
from exporters.isolation import Ended, run_forked
from exporters.report import ErrorReport
from orchestration.console import console_on
from orchestration.streams import reserved_stdout

TIMEOUT_SECONDS = 3600.0
# of the child's data segment: files that are mapped, such as weights, don't count
MEMORY_BYTES = 64 << 30
_ROW = "  {:<17} {:>13} {:>13}  {}"


def drift(model: str, backend: str, *, as_json: bool) -> int:
    """Compare every stage with eager and print what came of it; 0 if all are within the bound, 1 if one isn't or none could be made.

    Raises:
        UsageError: there is no such model or backend.
        ZooportError: what else zooport refuses, as the child was told.
    """
    family_of(backend)  # before anything is imported for nothing
    request = {"model": model, "backend": backend, "home": str(home())}
    with reserved_stdout() as stdout:
        ended = run_forked(lambda say: _work(request, say), seconds=TIMEOUT_SECONDS, memory=MEMORY_BYTES)
        report = _report_of(ended, model, backend)
        if as_json:
            print(report.model_dump_json(), file=stdout)
        else:
            _print(report, console_on(stdout))
    return report.exit_code


def _work(request: dict[str, Any], say: Callable[[Any], None]) -> None:
    from exporters.chain import Request
    from exporters.drift import find

    try:
        report = find(Request(**request), on_stage=lambda stage: say({"stage": stage.model_dump()}))
    except ZooportError as error:
        message = str(error.args[0]) if error.args else type(error).__name__
        say({"refused": {"message": message, "next": error.next, "usage": isinstance(error, UsageError)}})
    else:
        say({"report": report.model_dump()})


def _report_of(ended: Ended, model: str, backend: str) -> DriftReport:
    """The child's report; of a child that wrote none, its stages so far and how it ended."""
    last = ended.lines[-1] if ended.lines else {}
    if "report" in last:
        return DriftReport.model_validate(last["report"])
    if "refused" in last:
        refused = last["refused"]
        raise (UsageError if refused["usage"] else ZooportError)(refused["message"], next=refused["next"])
    stages = [DriftStage.model_validate(line["stage"]) for line in ended.lines if "stage" in line]
    after = f"after {stages[-1].stage}" if stages else "before the first stage"
    tail = ended.tail.strip().splitlines()
    error = ErrorReport(
        stage=stages[-1].stage if stages else "",
        type=ended.how or "NoReport",
        message=f"the process ended ({ended.how or 'without a report'}) {after}{': ' + tail[-1] if tail else ''}"[:500],
        next=f"`zooport export {model} --backend {backend}` shows whether the export itself runs",
    )
    first = next((stage.stage for stage in stages if stage.ok is False), None)
    return DriftReport(model=model, backend=backend, stages=stages, first=first, reason="the process ended during the search", error=error)


def _print(report: DriftReport, console: Console) -> None:
    console.print(f"[bold]{escape(report.model)}[/] to [bold]{report.backend}[/], its {report.inputs} inputs, compared with eager")
    if report.stages:
        console.print(f"[dim]{_ROW.format('stage', 'max abs diff', 'max rel diff', 'within the bound')}[/]")
    for stage in report.stages:
        verdict = {True: "[green]yes[/]", False: "[bold red]no[/]", None: "[yellow]not run[/]"}[stage.ok]
        message = f": {escape(stage.message)}" if stage.message else ""
        console.print(_ROW.format(stage.stage, _number(stage.max_abs_diff), _number(stage.max_rel_diff), verdict) + message)
    if report.sentence():
        console.print(escape(report.sentence()))
    if report.error is not None:
        console.print(f"[bold red]error[/] {escape(report.error.stage)}: {escape(report.error.type)}: {escape(report.error.message)}")
        if report.error.next:
            console.print(f"next  {escape(report.error.next)}")


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.1e}"
