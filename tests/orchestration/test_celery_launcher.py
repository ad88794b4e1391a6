"""When a run counts as lost, by what the result backend and the workers say. With real workers: tests/deploy/test_engines.py."""

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import dagster as dg
import pytest
from celery import states
from dagster._core.launcher import WorkerStatus
from dagster_celery.tags import DAGSTER_CELERY_TASK_ID_TAG

from orchestration import celery_launcher
from orchestration.celery_launcher import WatchedCeleryRunLauncher

WORKER = "east@host"


@dataclass
class Told:
    """What the backend says of a task, and what the workers answer to who has it: None for no answer."""

    states: list[str]
    holds: list[str] | None = field(default_factory=lambda: ["task"])
    asked: list[str] = field(default_factory=list)

    def AsyncResult(self, task_id: str) -> Any:
        state = self.states.pop(0) if len(self.states) > 1 else self.states[0]
        return SimpleNamespace(state=state, info={"hostname": WORKER} if state == states.STARTED else None)

    @property
    def control(self) -> Any:
        return SimpleNamespace(inspect=self._inspect)

    def _inspect(self, *, destination: list[str], **_: Any) -> Any:
        self.asked += destination
        answer = None if self.holds is None else {WORKER: {task: ["active", {}] for task in self.holds}}
        return SimpleNamespace(query_task=lambda task_id: answer)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [1000.0]
    monkeypatch.setattr(celery_launcher.time, "monotonic", lambda: now[0])
    return now


def launcher(told: Told) -> WatchedCeleryRunLauncher:
    made = WatchedCeleryRunLauncher(60.0, default_queue="dagster", broker="memory://", backend="cache+memory://")
    made.celery = told  # type: ignore[assignment]
    return made


RUN = dg.DagsterRun(job_name="export_onnx", run_id="run", tags={DAGSTER_CELERY_TASK_ID_TAG: "task"})


def test_a_run_whose_worker_has_it_is_well() -> None:
    told = Told([states.STARTED])
    assert launcher(told).check_run_worker_health(RUN).status is WorkerStatus.RUNNING
    assert told.asked == [WORKER]


def test_a_run_that_waits_is_well_and_nobody_is_asked() -> None:
    told = Told([states.PENDING], holds=None)
    assert launcher(told).check_run_worker_health(RUN).status is WorkerStatus.RUNNING
    assert told.asked == []


def test_a_run_on_its_way_to_the_broker_is_well() -> None:
    run = dg.DagsterRun(job_name="export_onnx", run_id="run")
    assert launcher(Told([states.PENDING])).check_run_worker_health(run).status is WorkerStatus.RUNNING


def test_a_worker_that_was_restarted_under_its_name_is_noticed_at_once() -> None:
    health = launcher(Told([states.STARTED], holds=[])).check_run_worker_health(RUN)
    assert health.status is WorkerStatus.FAILED
    assert WORKER in (health.msg or "")


def test_a_task_that_ended_between_the_two_questions_is_no_loss() -> None:
    told = Told([states.STARTED, states.SUCCESS], holds=[])
    assert launcher(told).check_run_worker_health(RUN).status is WorkerStatus.SUCCESS


def test_a_silent_worker_is_given_up_after_its_time(clock: list[float]) -> None:
    watched = launcher(Told([states.STARTED], holds=None))
    assert watched.check_run_worker_health(RUN).status is WorkerStatus.RUNNING
    clock[0] += 59
    assert watched.check_run_worker_health(RUN).status is WorkerStatus.RUNNING
    clock[0] += 2
    assert watched.check_run_worker_health(RUN).status is WorkerStatus.FAILED


def test_an_answer_ends_the_silence(clock: list[float]) -> None:
    told = Told([states.STARTED], holds=None)
    watched = launcher(told)
    watched.check_run_worker_health(RUN)
    clock[0] += 59
    told.holds = ["task"]
    watched.check_run_worker_health(RUN)
    clock[0] += 59
    told.holds = None
    assert watched.check_run_worker_health(RUN).status is WorkerStatus.RUNNING


def test_a_task_whose_process_was_killed_has_failed() -> None:
    assert launcher(Told([states.FAILURE])).check_run_worker_health(RUN).status is WorkerStatus.FAILED


def test_a_lost_run_is_not_resumed() -> None:
    assert not launcher(Told([states.PENDING])).supports_resume_run
