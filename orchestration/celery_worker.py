"""A Celery worker of this machine: `python -m orchestration.celery_worker --concurrency 1 -n NAME@%h`.

Takes broker, backend and queue from the run launcher in `$DAGSTER_HOME/dagster.yaml`, so that the two sides can't disagree; the
arguments are those of `celery worker`. Needs the `deploy` extra.
"""

import contextlib
import logging
import os
import signal
import sys
import threading
from collections.abc import Sequence
from typing import Any

import dagster as dg
import psutil
from celery import Celery
from dagster._cli.api import _execute_run_command_body  # what every launcher's worker calls; Dagster has no public name for it
from dagster._grpc.types import ExecuteRunArgs
from dagster._serdes import unpack_value
from dagster_celery.config import TASK_EXECUTE_JOB_NAME
from dagster_celery.launcher import CeleryRunLauncher

_STATEMENT_MILLISECONDS = 60_000
_CONNECTION_SECONDS = 3600

_RUN_ENDS = {dg.DagsterEventType.RUN_SUCCESS, dg.DagsterEventType.RUN_FAILURE, dg.DagsterEventType.RUN_CANCELED}

# between the moment that a run's end is stored and the moment that this process, whose run it was, hears so itself
_GRACE_SECONDS = 0.2


def application(launcher: object) -> Celery:
    """The launcher's Celery application, with the task that it sends.

    Raises:
        TypeError: if the launcher is not Celery's.
    """
    if not isinstance(launcher, CeleryRunLauncher):
        raise TypeError(f"the run launcher is {type(launcher).__name__}: name one for Celery in $DAGSTER_HOME/dagster.yaml (deploy/celery)")
    launcher.celery.task(name=TASK_EXECUTE_JOB_NAME, track_started=True)(execute_job)
    return launcher.celery


def execute_job(execute_job_args_packed: Any) -> int:
    """Execute one run, and end it when Dagster no longer wants it: when it was cancelled, or given up while this machine was silent.

    Dagster's own task knows no end but SIGTERM, which leaves what the run had started.
    """
    arguments = unpack_value(execute_job_args_packed, as_type=ExecuteRunArgs)
    finished = threading.Event()

    def on_event(event: dg.DagsterEvent) -> None:
        if event.event_type in _RUN_ENDS:
            finished.set()

    with dg.DagsterInstance.get() as instance:
        # by default each query connects anew, which costs the server more than the query
        instance.optimize_for_webserver(statement_timeout=_STATEMENT_MILLISECONDS, pool_recycle=_CONNECTION_SECONDS, max_overflow=2)
        watch = threading.Thread(target=_watch, args=(instance, arguments.run_id, finished), name="watch", daemon=True)
        watch.start()
        try:
            return _execute_run_command_body(arguments.run_id, instance, on_event, set_exit_code_on_failure=True)
        finally:
            finished.set()
            watch.join()


def _watch(instance: dg.DagsterInstance, run_id: str, finished: threading.Event) -> None:
    while not finished.wait(instance.cancellation_thread_poll_interval_seconds):
        try:
            run = instance.get_run_by_id(run_id)
        except Exception:  # the database may be away for a while; there are many ways to say so, and the run goes on meanwhile
            logging.getLogger(__name__).warning("can't read the run's status", exc_info=True)
            continue
        if run is not None and run.status == dg.DagsterRunStatus.CANCELING:
            os.kill(os.getpid(), signal.SIGINT)  # Dagster listens for it, ends what the run has started and says that it was cancelled
            return
        if (run is None or run.is_finished) and not finished.wait(_GRACE_SECONDS):
            _abandon()


def _abandon() -> None:
    """End this process and all it has started, without a word to Dagster: whatever it said would change what is already told of the run."""
    for child in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            child.kill()
    os._exit(1)  # Celery starts another process in its place


def main(arguments: Sequence[str]) -> None:
    with dg.DagsterInstance.get() as instance:
        try:
            celery = application(instance.run_launcher)
        except TypeError as error:
            sys.exit(f"error: {error}")
    celery.worker_main(["worker", "--loglevel", "INFO", *arguments])


if __name__ == "__main__":
    main(sys.argv[1:])
