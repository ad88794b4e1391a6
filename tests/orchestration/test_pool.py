"""A chain in a child process: whatever becomes of it, its stages and its end are told, and nothing of it is left."""

import os
import signal
import sys
import time
from pathlib import Path

import psutil
import pytest

from exporters.home import home
from exporters.report import Parity, Report, StageReport, Started
from orchestration.outcomes import Event
from orchestration.pool import Limits, Pool
from orchestration.reports import last_reports

FAKE = "fake_chain:serve"


def request(model: str, backend: str = "onnx") -> dict[str, object]:
    return {"model": model, "backend": backend, "home": str(home()), "verify": True}


def run(model: str, timeout_seconds: float = 30.0, retries: int = 0) -> list[Event]:
    with Pool(Limits(1, timeout_seconds, memory=2 << 30, retries=retries), chain=FAKE) as pool:
        return [event for _, event in pool.run([request(model)])]


def end_of(events: list[Event]) -> Report:
    assert isinstance(events[-1], Report)
    return events[-1]


def fakes_alive() -> list[psutil.Process]:
    return [child for child in psutil.Process().children(recursive=True) if child.status() != psutil.STATUS_ZOMBIE]


def test_events_come_in_order() -> None:
    events = run("Fine")
    kinds = [type(event) for event in events]
    assert kinds == [Started, StageReport] * 4 + [Parity, Parity, Report]
    assert end_of(events).outcome == "verified"


@pytest.mark.parametrize(("model", "kind"), [("Segfaults", "SIGSEGV"), ("Killed", "SIGKILL"), ("Silent", "NoReport")])
def test_a_child_that_dies_becomes_an_outcome_with_its_stage(model: str, kind: str) -> None:
    report = end_of(run(model))
    assert report.outcome == "failed"
    assert [stage.stage for stage in report.stages] == ["traced_program"]
    assert report.error is not None
    assert (report.error.stage, report.error.type) == ("decomposed_graph", kind)
    assert report.error.next


def test_it_is_remembered_in_place_of_the_report_that_the_child_never_wrote() -> None:
    report = end_of(run("Killed"))
    assert last_reports(home())["onnx", "Killed"] == report


def test_the_tail_of_what_it_wrote_is_kept() -> None:
    error = end_of(run("Silent")).error
    assert error is not None
    assert error.message.splitlines()[0] == "the export's process exited with status 0 and without a report: a last word"


def test_a_hang_is_ended_at_its_limit() -> None:
    begin = time.monotonic()
    report = end_of(run("Hangs", timeout_seconds=1.5))
    assert time.monotonic() - begin < 6
    assert report.error is not None
    assert (report.error.type, report.error.stage) == ("Timeout", "decomposed_graph")
    assert not fakes_alive()


def test_death_after_the_last_stage_leaves_the_artifact() -> None:
    report = end_of(run("DiesVerifying"))
    assert report.outcome == "exported"
    assert report.artifact == report.stages[-1].path
    assert report.error is not None
    assert report.error.stage == "verification"


def test_prints_beside_the_protocol_and_a_grandchild_on_the_pipes_do_no_harm() -> None:
    begin = time.monotonic()
    assert end_of(run("Chatty")).outcome == "verified"
    assert time.monotonic() - begin < 10
    assert not fakes_alive()


def test_a_grandchild_on_the_pipes_does_not_hide_a_death() -> None:
    begin = time.monotonic()
    report = end_of(run("Orphans"))
    assert time.monotonic() - begin < 10
    assert report.error is not None
    assert "status 3" in report.error.message


def test_closing_the_iterator_ends_the_child() -> None:
    with Pool(Limits(1), chain=FAKE) as pool:
        events = pool.run([request("Hangs")])
        assert isinstance(next(events)[1], Started)
        assert len(fakes_alive()) == 2  # the child, and the process that forked it
        events.close()
        assert len(fakes_alive()) == 1
    assert not fakes_alive()


def test_an_interrupt_ends_the_child() -> None:
    pool = Pool(Limits(1), chain=FAKE)
    events = pool.run([request("Hangs")])
    next(events)
    signal.setitimer(signal.ITIMER_REAL, 1.0)
    previous = signal.signal(signal.SIGALRM, lambda *_: (_ for _ in ()).throw(KeyboardInterrupt()))
    try:
        with pytest.raises(KeyboardInterrupt):
            list(events)
    finally:
        signal.signal(signal.SIGALRM, previous)
        pool.close()
    assert not fakes_alive()


def test_a_child_that_says_nothing_is_told_from_its_status() -> None:
    report = end_of(run("Refuses"))
    assert report.outcome == "failed"
    assert report.error is not None
    assert (report.error.type, report.error.stage) == ("NoReport", "traced_program")


def test_no_dagster_and_no_torch_are_imported() -> None:
    code = "import sys, orchestration.pool; sys.exit(bool({'dagster', 'torch'} & set(sys.modules)))"
    assert os.spawnv(os.P_WAIT, sys.executable, [sys.executable, "-c", code]) == 0
