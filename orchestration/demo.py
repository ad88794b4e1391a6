"""`zooport demo`: three models to ONNX and ExecuTorch, through Dagster and on the instance that `make ui` shows."""

import time
from collections.abc import Generator, Sequence
from dataclasses import dataclass

import dagster as dg
from rich.filesize import decimal
from rich.markup import escape
from rich.table import Table

from assets.partitions import partition_key
from assets.runner import Partition
from exporters.backends import family_of
from exporters.report import Report
from orchestration.console import ExportView, console_on, outcome_text
from orchestration.definitions import build, job_name
from orchestration.instance import dagster_home, open_instance
from orchestration.interrupts import Interrupts, interrupts
from orchestration.outcomes import Event
from orchestration.resources import PoolRunner
from orchestration.streams import reserved_stdout, stderr_into

MODELS = ("BertForSequenceClassification", "LlamaForCausalLM@decode", "ViTForImageClassification")
BACKENDS = ("onnx", "executorch.xnnpack")


@dataclass
class _Watched:
    """A runner whose events are shown as they pass. Used in place of the `runner` resource; its processes live through all runs."""

    runner: PoolRunner
    view: ExportView
    interrupted: Interrupts
    last: Report | None = None

    def run(
        self, partitions: Sequence[Partition], *, until: str | None = None, run_id: str = ""
    ) -> Generator[tuple[Partition, Event], None, None]:
        ((backend, model),) = partitions
        self.view.begin(model, backend)
        for partition, event in self.runner.run(partitions, until=until, run_id=run_id):
            self.view.show(event)
            if isinstance(event, Report):
                self.last = event
            yield partition, event


@dataclass(frozen=True)
class _Row:
    report: Report
    seconds: float


def run_demo(runner: PoolRunner | None = None) -> int:
    """Materialize the six partitions one after another, print how each ended and where it lies; 0 if all are verified."""
    log = dagster_home() / "demo.log"
    with open_instance() as instance, reserved_stdout() as stdout, stderr_into(log), interrupts() as interrupted:
        console = console_on(stdout)
        view = ExportView(console)
        watched = _Watched(runner or PoolRunner(), view, interrupted)
        definitions = build(watched)
        rows: list[_Row] = []
        try:
            for backend in BACKENDS:
                job = definitions.resolve_job_def(job_name(family_of(backend)))
                for model in MODELS:
                    rows.append(_materialize(job, instance, watched, model, backend))
                    console.print()
        finally:
            view.stop()
            watched.runner.close()
        console.print(_outcomes(rows))
        for artifact in (row.report.artifact for row in rows if row.report.artifact):
            console.print(f"  {escape(artifact)}")
        console.print(f"\n`make ui` shows them as Dagster assets; Dagster's own log is in {escape(str(log))}")
    return 0 if all(row.report.outcome == "verified" for row in rows) else 1


def _materialize(job: dg.JobDefinition, instance: dg.DagsterInstance, watched: _Watched, model: str, backend: str) -> _Row:
    watched.last = None
    begin = time.monotonic()
    job.execute_in_process(instance=instance, partition_key=partition_key(backend, model), raise_on_error=False)
    if watched.interrupted.seen:
        raise KeyboardInterrupt  # Dagster closes an interrupted run, and returns as from any other
    report = watched.last or Report(model=model, backend=backend, reason="the run ended before it reported; its log tells more")
    return _Row(report, time.monotonic() - begin)


def _outcomes(rows: list[_Row]) -> Table:
    table = Table(box=None, header_style="dim", pad_edge=True)
    table.add_column("model", overflow="fold")  # what gives way in a narrow terminal
    for column in ("backend", "outcome"):
        table.add_column(column, no_wrap=True)
    for column in ("max abs diff", "seconds", "size"):
        table.add_column(column, justify="right", no_wrap=True)
    for row in rows:
        differences = [parity.max_abs_diff for parity in row.report.parity if parity.max_abs_diff is not None]
        table.add_row(
            escape(row.report.model),
            row.report.backend,
            outcome_text(row.report.outcome),
            f"{max(differences):.1e}" if differences else "-",
            f"{row.seconds:.1f}",
            decimal(row.report.stages[-1].bytes) if row.report.artifact and row.report.stages else "-",
        )
    return table
