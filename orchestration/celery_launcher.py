"""Runs as Celery tasks, whose workers are asked whether they still have them.

Dagster's own launcher believes the result backend: a task whose worker is gone stays `STARTED` there for ever, and its run with it
(dagster-io/dagster#33493, open). Here a run is healthy only while a worker says that it holds its task. A task that waits in the
queue has no worker to ask and is healthy, whatever it waits for.

Needs the `deploy` extra. Named in `dagster.yaml` (deploy/celery); run monitoring is what asks.
"""

import time
from collections.abc import Mapping
from typing import Any

import dagster as dg
from celery import states
from dagster._core.launcher import CheckRunHealthResult, WorkerStatus
from dagster._serdes import ConfigurableClassData
from dagster_celery.launcher import CeleryRunLauncher
from dagster_celery.tags import DAGSTER_CELERY_TASK_ID_TAG

# What has to be so on both sides: one chunk a process at a time, taken from the queue only when there is a process for it, and
# acknowledged as it starts. A chunk is never delivered twice; one whose worker dies is Dagster's to notice and to request again.
CELERY_SETTINGS = {
    "worker_prefetch_multiplier": 1,
    "worker_disable_prefetch": True,
    "task_acks_late": False,
    "broker_connection_retry_on_startup": True,
}

_REPLY_SECONDS = 2.0


class WatchedCeleryRunLauncher(CeleryRunLauncher):
    """A `CeleryRunLauncher` that notices when the worker of a run is gone.

    Args:
        silence_seconds: how long a worker may answer nothing before its run counts as lost. One that answers, but no longer
            has the task (it was restarted), is believed at once.
    """

    def __init__(self, silence_seconds: float, config_source: dict[str, Any] | None = None, **settings: Any) -> None:
        super().__init__(config_source={**CELERY_SETTINGS, **(config_source or {})}, **settings)
        self.silence_seconds = silence_seconds
        self._silent_since: dict[str, float] = {}

    @classmethod
    def config_type(cls) -> dict[str, Any]:
        seconds = dg.Field(float, is_required=False, default_value=60.0, description="How long a worker may be silent.")
        return {**super().config_type(), "silence_seconds": seconds}

    @classmethod
    def from_config_value(cls, inst_data: ConfigurableClassData, config_value: Mapping[str, Any]) -> "WatchedCeleryRunLauncher":
        return cls(inst_data=inst_data, **config_value)

    @property
    def supports_resume_run(self) -> bool:
        """Never: a resumed run would repeat its whole chunk. What is left of it is requested as a run of its own (`lost_chunks`)."""
        return False

    def terminate(self, run_id: str) -> bool:
        """Take the run's task from the queue; a worker that has begun it ends it by itself, and all that it started (`celery_worker`)."""
        run = self._instance.get_run_by_id(run_id)
        if run is None or run.is_finished:
            return False
        self._instance.report_run_canceling(run)
        if task_id := run.tags.get(DAGSTER_CELERY_TASK_ID_TAG):
            self.celery.control.revoke(task_id)
        return True

    def check_run_worker_health(self, run: dg.DagsterRun) -> CheckRunHealthResult:
        task_id = run.tags.get(DAGSTER_CELERY_TASK_ID_TAG)
        if task_id is None:
            return CheckRunHealthResult(WorkerStatus.RUNNING)  # on its way to the broker at this moment
        result = self.celery.AsyncResult(task_id)
        state, info = result.state, result.info
        if state == states.PENDING:
            return CheckRunHealthResult(WorkerStatus.RUNNING)
        if state != states.STARTED:
            return super().check_run_worker_health(run)
        return self._ask(task_id, info["hostname"])

    def _ask(self, task_id: str, worker: str) -> CheckRunHealthResult:
        replies = self.celery.control.inspect(destination=[worker], timeout=_REPLY_SECONDS, limit=1).query_task(task_id)
        if replies:
            self._silent_since.pop(task_id, None)
            if task_id in replies[worker]:
                return CheckRunHealthResult(WorkerStatus.RUNNING)
            # it may have ended between the two questions
            if self.celery.AsyncResult(task_id).state in states.READY_STATES:
                return CheckRunHealthResult(WorkerStatus.SUCCESS)
            return CheckRunHealthResult(WorkerStatus.FAILED, f"{worker} no longer has the Celery task: it was restarted")
        silent = time.monotonic() - self._silent_since.setdefault(task_id, time.monotonic())
        if silent < self.silence_seconds:
            return CheckRunHealthResult(WorkerStatus.RUNNING)
        del self._silent_since[task_id]
        return CheckRunHealthResult(WorkerStatus.FAILED, f"{worker} has answered nothing for {silent:.0f} s: it is gone")
