"""A whole deployment on this machine: a shipped `dagster.yaml` of deploy/ over real servers, and workers that stand for machines."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import dagster as dg
import engines
import psutil
import yaml
from dagster._core.storage.partition_status_cache import get_and_update_asset_status_cache_value
from dagster._core.workspace.context import WorkspaceProcessContext
from dagster._core.workspace.load_target import WorkspaceFileTarget
from dagster_celery.tags import DAGSTER_CELERY_TASK_ID_TAG

from orchestration.submission import submit

ROOT = Path(__file__).parents[2]
PYTHON = sys.executable


@dataclass
class Deployment:
    """What the tests ask of it."""

    folder: Path
    engine: str
    environment: Mapping[str, str]
    instance: dg.DagsterInstance
    workspace: WorkspaceProcessContext
    processes: dict[str, "subprocess.Popen[bytes]"] = field(default_factory=dict)

    def start(self, name: str, *command: str, **environment: str) -> None:
        """A process of the deployment, with the home and the Dagster home of a machine of its own."""
        home = self.folder / name
        settle(home, self.engine)
        own = {"ZOOPORT_HOME": str(home / "home"), "DAGSTER_HOME": str(home), "MACHINE": name}
        with (home / "log").open("ab") as log:
            self.processes[name] = subprocess.Popen(
                [PYTHON, *command],
                env={**os.environ, **self.environment, **own, **environment},
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def start_worker(self, name: str, **environment: str) -> None:
        self.start(name, "-m", "orchestration.celery_worker", "--concurrency", "1", "-n", f"{name}@%h", **environment)

    def start_daemon(self) -> None:
        self.start("daemon", "-m", "dagster._daemon", "run", "-w", str(self.folder / "workspace.yaml"))

    def kill(self, name: str) -> None:
        """As when a machine loses power: nothing of it is left, and nothing of it has had a chance to say so."""
        everything = self.tree(name)
        for each in everything:
            each.suspend()  # so that none of them sees another one end
        for each in everything:
            each.kill()
        self.processes.pop(name).wait()
        psutil.wait_procs(everything, timeout=10)

    def tree(self, name: str) -> list[psutil.Process]:
        """All processes of a machine, the one that it was started with first."""
        process = psutil.Process(self.processes[name].pid)
        return [process, *process.children(recursive=True)]

    def submit(self, keys: Sequence[str], *, per_run: int) -> list[str]:
        """Runs over chunks of partitions, into Dagster's queue; their ids."""
        pairs = [(backend, model) for backend, _, model in (key.partition("|") for key in keys)]
        return submit(self.workspace, pairs, per_run=per_run)

    def begun(self) -> list[dict[str, Any]]:
        """Every beginning of a partition, on any machine."""
        log = Path(self.environment["COUNTED_LOG"])
        return [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []

    def runs(self) -> list[dg.DagsterRun]:
        return list(self.instance.get_runs())

    def machine_of(self, run: dg.DagsterRun) -> str | None:
        """The worker that began the run's Celery task, as far as the backend knows."""
        launcher = self.instance.run_launcher
        info = launcher.celery.AsyncResult(run.tags[DAGSTER_CELERY_TASK_ID_TAG]).info  # type: ignore[attr-defined]
        return str(info["hostname"]).partition("@")[0] if isinstance(info, dict) else None

    def statuses(self, asset: dg.AssetKey, partitions: dg.PartitionsDefinition) -> dict[str, set[str]]:
        """Dagster's own partition statuses, from where its pages read them."""
        value = get_and_update_asset_status_cache_value(self.instance, asset, partitions)
        assert value is not None
        return {
            "materialized": set(value.deserialize_materialized_partition_subsets(partitions).get_partition_keys()),
            "failed": set(value.deserialize_failed_partition_subsets(partitions).get_partition_keys()),
            "in progress": set(value.deserialize_in_progress_partition_subsets(partitions).get_partition_keys()),
        }

    def log(self, name: str) -> str:
        return (self.folder / name / "log").read_text(errors="replace")


def settle(home: Path, engine: str) -> None:
    """A Dagster home with an engine's shipped settings, quickened."""
    home.mkdir(parents=True, exist_ok=True)
    settings = yaml.safe_load((ROOT / "deploy" / engine / "dagster.yaml").read_text())
    settings["run_monitoring"]["poll_interval_seconds"] = 1
    if engine == "celery":
        settings["run_launcher"]["config"]["silence_seconds"] = 3.0
    (home / "dagster.yaml").write_text(yaml.safe_dump(settings))


@contextmanager
def deployed(
    folder: Path, family: str, models: Sequence[str], chain: str, environment: Mapping[str, str], *, engine: str = "celery"
) -> Iterator[Deployment]:
    """Servers, and an engine's settings with minutes of waiting made seconds.

    The daemon and the workers are the test's to start. All that is left of them at the end is killed.
    """
    with ExitStack() as stack:
        everywhere = {
            **environment,
            "ZOOPORT_POSTGRES": stack.enter_context(engines.postgres()),
            "ZOOPORT_REDIS": stack.enter_context(engines.redis()),
            "ENGINE_FAMILY": family,
            "ENGINE_MODELS": ",".join(models),
            "COUNTED_LOG": str(folder / "begun"),
            "COUNTED_CHAIN": chain,
            "PYTHONPATH": os.pathsep.join([str(ROOT), str(Path(__file__).parent), os.environ["PYTHONPATH"]]),
            "HF_HUB_OFFLINE": "1",
            "OMP_NUM_THREADS": "1",
        }
        (folder / "workspace.yaml").write_text("load_from:\n  - python_module: {module_name: engine_definitions, location_name: engines}\n")
        home = folder / "console"
        settle(home, engine)
        own = {**everywhere, "DAGSTER_HOME": str(home), "ZOOPORT_HOME": str(home / "home")}
        before = {name: os.environ.get(name) for name in own}
        os.environ.update(own)
        try:
            instance = stack.enter_context(dg.DagsterInstance.get())
            target = WorkspaceFileTarget([str(folder / "workspace.yaml")])
            workspace = stack.enter_context(WorkspaceProcessContext(instance, target))
            deployment = Deployment(folder, engine, everywhere, instance, workspace)
            try:
                yield deployment
            finally:
                for name in list(deployment.processes):
                    deployment.kill(name)
        finally:
            for name, value in before.items():
                if value is None:
                    os.environ.pop(name, None)
                else:
                    os.environ[name] = value


def wait_for(condition: Any, seconds: float, what: str, deployment: Deployment) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        dead = [name for name, process in deployment.processes.items() if process.poll() is not None]
        if dead or time.monotonic() > deadline:
            logs = "\n".join(f"== {name}\n{deployment.log(name)[-4000:]}" for name in deployment.processes)
            states = [(run.run_id[:8], run.status.value, dict(run.tags)) for run in deployment.runs()]
            raise TimeoutError(f"{what} did not happen within {seconds:g} s; dead: {dead}\n{deployment.begun()}\n{states}\n{logs}")
        time.sleep(0.2)
