"""A chain in a child process: whatever becomes of it, its stages and its end are told, and nothing of it is left."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from exporters.backends import STAGES
from exporters.home import home, store_of
from exporters.report import Parity, Report, StageReport, Started
from exporters.reports import last_reports
from exporters.store import Store
from orchestration.outcomes import Event
from orchestration.pool import Limits, Pool, default_limits

FAKE = "fake_chain:serve"


def request(model: str, backend: str = "onnx", run: str = "") -> dict[str, object]:
    return {"model": model, "backend": backend, "home": str(home()), "verify": True, "run": run}


def run(model: str, timeout_seconds: float = 30.0, retries: int = 0, run_id: str = "") -> list[Event]:
    with Pool(Limits(1, timeout_seconds, memory=2 << 30, retries=retries), chain=FAKE) as pool:
        return [event for _, event in pool.run([request(model, run=run_id)])]


def end_of(events: list[Event]) -> Report:
    assert isinstance(events[-1], Report)
    return events[-1]


def alive() -> list[psutil.Process]:
    return [child for child in psutil.Process().children(recursive=True) if child.status() != psutil.STATUS_ZOMBIE]


def left(count: int) -> bool:
    """Whether no more than `count` processes are left, soon: who is killed needs a moment."""
    deadline = time.monotonic() + 5
    while len(alive()) > count and time.monotonic() < deadline:
        time.sleep(0.02)
    return len(alive()) <= count


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
    begin = time.time()
    report = end_of(run("Killed", run_id="r1"))
    assert last_reports(Store(store_of(home())))["onnx", "Killed"] == report
    assert begin <= report.at <= time.time()
    assert report.run == "r1"


def test_a_store_that_cannot_be_written_takes_no_report_away(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("ZOOPORT_STORE", str(tmp_path / "file" / "store"))
    error = end_of(run("Killed")).error
    assert error is not None
    assert error.type == "SIGKILL"
    assert "the store doesn't have this report: can't write to" in error.message


def test_the_tail_of_what_it_wrote_is_kept() -> None:
    error = end_of(run("Silent")).error
    assert error is not None
    assert error.message.splitlines()[0] == "the export's process exited with status 0 and without a report: a last word"


def test_a_hang_is_ended_at_its_limit() -> None:
    begin = time.monotonic()
    report = end_of(run("Hangs", timeout_seconds=5))
    assert time.monotonic() - begin < 20
    assert report.error is not None
    assert (report.error.type, report.error.stage) == ("Timeout", "decomposed_graph")
    assert left(0)


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
    assert left(0)


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
        assert len(alive()) == 2  # the child, and the process that forked it
        events.close()
        assert left(1)
    assert left(0)


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
    assert left(0)


def test_a_child_that_says_nothing_is_told_from_its_status() -> None:
    report = end_of(run("Refuses"))
    assert report.outcome == "failed"
    assert report.error is not None
    assert (report.error.type, report.error.stage) == ("NoReport", "traced_program")


def test_no_dagster_and_no_torch_are_imported() -> None:
    code = "import sys, orchestration.pool; sys.exit(bool({'dagster', 'torch'} & set(sys.modules)))"
    assert os.spawnv(os.P_WAIT, sys.executable, [sys.executable, "-c", code]) == 0


# ── Several ───────────────────────────────────────────────────────────────────


def outcomes(events: list[tuple[int, Event]]) -> dict[int, str]:
    """By request: the outcome, and the kind of error where there is one."""
    return {key: event.outcome + (f" {event.error.type}" if event.error else "") for key, event in events if isinstance(event, Report)}


def test_each_of_many_has_its_own_outcome_and_the_rest_go_on() -> None:
    models = ["A", "Segfaults", "B", "Eats", "Raises", "C", "Silent", "Spins", "D", "Skipped"]
    with Pool(Limits(2, 8.0, memory=2 << 30, retries=0), chain=FAKE) as pool:
        found = outcomes(list(pool.run(map(request, models))))
    assert {models[key]: outcome for key, outcome in found.items()} == {
        **dict.fromkeys("ABCD", "verified"),
        "Segfaults": "failed SIGSEGV",
        "Eats": "failed MemoryError",
        "Raises": "failed ValueError",
        "Silent": "failed NoReport",
        "Spins": "failed Timeout",
        "Skipped": "skipped",
    }
    assert left(0)


def test_an_allocation_beyond_the_limit_fails_as_such() -> None:
    error = end_of(run("Eats")).error
    assert error is not None
    assert error.type == "MemoryError"
    assert "--memory" in error.next


def test_as_many_run_at_once_as_there_are_workers() -> None:
    with Pool(Limits(3), chain=FAKE) as pool:
        events = pool.run([request("Hangs") for _ in range(5)])
        began = {next(events)[0] for _ in range(3 * 3)}  # one stage of each, and the start of the next
        assert began == {0, 1, 2}
        assert len(alive()) == 4
        events.close()
    assert left(0)


def test_the_next_begins_within_a_second_of_a_crash() -> None:
    with Pool(Limits(1, retries=0), chain=FAKE) as pool:
        times = {(key, type(event)): time.monotonic() for key, event in pool.run([request("Segfaults"), request("A")])}
    assert times[1, Report] - times[0, Report] < 1.0


def test_one_that_crashed_is_tried_again_and_says_nothing_twice() -> None:
    events = run("Crashes1", retries=1)
    assert end_of(events).outcome == "verified"
    assert [event.stage for event in events if isinstance(event, StageReport)] == list(STAGES["onnx"])


@pytest.mark.parametrize("model", ["Raises", "Differs", "Skipped", "Eats", "Misused"])
def test_one_that_told_how_it_ended_is_not_tried_again(model: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("FAKE_LOG", str(tmp_path / "log"))
    run(model, retries=3)
    assert (tmp_path / "log").read_text().splitlines() == [f"onnx|{model}"]


def test_one_that_was_too_slow_is_not_tried_again(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("FAKE_LOG", str(tmp_path / "log"))
    assert end_of(run("Hangs", timeout_seconds=4, retries=3)).error is not None
    assert (tmp_path / "log").read_text().splitlines() == ["onnx|Hangs"]


def test_a_killed_zygote_is_replaced_and_its_chains_are_tried_again() -> None:
    with Pool(Limits(1, retries=1), chain=FAKE) as pool:
        events = pool.run([request("Hangs"), request("A")])
        assert [type(next(events)[1]) for _ in range(3)] == [Started, StageReport, Started]
        first = pool.zygotes
        os.kill(first[0], signal.SIGKILL)
        assert next(events) == (0, Started(stage="decomposed_graph"))  # what was done is not told again
        assert pool.zygotes != first
        os.kill(pool.zygotes[0], signal.SIGKILL)
        found = outcomes(list(events))
    assert found == {0: "failed ZygoteLost", 1: "verified"}
    assert left(0)


def test_everything_ends_when_the_process_of_the_pool_is_killed(tmp_path: Path) -> None:
    code = (
        "from orchestration.pool import Limits, Pool\n"
        f"pool = Pool(Limits(2), chain={FAKE!r})\n"
        f"requests = [dict(model='Hangs', backend='onnx', home={str(tmp_path)!r}, verify=True)] * 2\n"
        "for _, event in pool.run(requests):\n"
        "    print(event, flush=True)\n"
    )
    program = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert program.stdout is not None
    for _ in range(6):
        program.stdout.readline()
    family = psutil.Process(program.pid).children(recursive=True)
    assert len(family) == 3
    program.kill()
    program.communicate()
    _, survivors = psutil.wait_procs(family, timeout=5)
    assert survivors == []


def test_the_default_takes_no_more_memory_than_there_is() -> None:
    limits = default_limits()
    assert 1 <= limits.workers <= (os.cpu_count() or 1)
    assert limits.workers * limits.memory <= psutil.virtual_memory().total
    assert default_limits(7).memory * 7 <= psutil.virtual_memory().total


def test_an_error_that_ended_a_chain_is_told_with_its_advice() -> None:
    error = end_of(run("Misused")).error
    assert error is not None
    assert (error.type, error.message, error.next) == ("UsageError", "the weights don't fit", "save them again")
