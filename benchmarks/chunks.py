"""What a chunk costs beyond its stages, in CPU seconds, over Celery, Redis and PostgreSQL: `python benchmarks/chunks.py`.

The deployment of tests/deploy on this machine, one worker, chains that make nothing: all that is measured is overhead. What the daemon and
the servers take while nothing happens is measured first and subtracted.
"""

import argparse
import contextlib
import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import boto3
import psutil

ROOT = Path(__file__).parents[1]
TESTS = [str(ROOT / "tests" / name) for name in ("deploy", "doubles")]
sys.path[:0] = TESTS
os.environ["PYTHONPATH"] = os.pathsep.join([*TESTS, os.environ.get("PYTHONPATH", "")])

from deployment import Deployment, deployed  # noqa: E402
from s3_server import s3_server  # noqa: E402

IDLE_SECONDS = 20.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--chunks", type=int, default=6)
    parser.add_argument("--per-run", type=int, default=16)
    chosen = parser.parse_args()
    models = [f"Fine@{number}" for number in range(chosen.chunks * chosen.per_run)]
    with tempfile.TemporaryDirectory() as folder, _s3() as s3:
        environment = {**s3, "COUNTED_SECONDS": "0"}
        with deployed(Path(folder), "onnx", models, "counted_chain:fake", environment) as deployment:
            deployment.start_worker("worker")
            deployment.start_daemon()
            _run(deployment, models[:1], 1)  # what is done once: tables, code locations, imports
            idle = _over(deployment, lambda: time.sleep(IDLE_SECONDS))
            busy = _over(deployment, lambda: _run(deployment, models, chosen.per_run))
    seconds = busy.pop("wall")
    rest = {name: max(0.0, busy[name] - idle[name] / idle["wall"] * seconds) for name in busy}
    partitions = len(models)
    print(
        json.dumps(
            {
                "chunks": chosen.chunks,
                "partitions": partitions,
                "wall_seconds": round(seconds, 1),
                "cpu_seconds_per_chunk": {name: round(value / chosen.chunks, 3) for name, value in rest.items()},
                "cpu_seconds_per_chunk_in_all": round(sum(rest.values()) / chosen.chunks, 3),
                "cpu_seconds_per_partition_in_all": round(sum(rest.values()) / partitions, 3),
            },
            indent=1,
        )
    )


@contextlib.contextmanager
def _s3() -> Iterator[dict[str, str]]:
    with s3_server() as server:
        environment = {**server, "ZOOPORT_STORE": "s3://zooport/store", "ZOOPORT_LOG_BUCKET": "zooport"}
        os.environ.update(environment)
        boto3.client("s3").create_bucket(Bucket="zooport")
        yield environment


def _run(deployment: Deployment, models: list[str], per_run: int) -> None:
    deployment.submit([f"onnx|{model}" for model in models], per_run=per_run)
    while not all(run.is_finished for run in deployment.runs()):
        time.sleep(2)  # each question costs the server a connection


def _over(deployment: Deployment, do: object) -> dict[str, float]:
    before, began = _cpu(deployment), time.monotonic()
    do()  # type: ignore[operator]
    after = _cpu(deployment)
    return {"wall": time.monotonic() - began, **{name: after[name] - before[name] for name in after}}


def _cpu(deployment: Deployment) -> dict[str, float]:
    """CPU seconds so far of each part, of its processes that have ended too."""
    run_worker = max(deployment.tree("worker")[1:], key=lambda process: sum(process.cpu_times()[:2]))
    times = run_worker.cpu_times()
    children = psutil.Process().children(recursive=True)
    servers = {name: [each for each in children if each.name() == name] for name in ("postgres", "redis-server")}
    return {
        "run": times.user + times.system,
        "chains and zygotes": times.children_user + times.children_system,
        "daemon": sum(_with_ended(process) for process in deployment.tree("daemon")),
        "worker": _own(deployment.tree("worker")[0]),
        **{name: sum(_own(process) for process in found) + sum(_ended(each) for each in found[:1]) for name, found in servers.items()},
    }


def _own(process: psutil.Process) -> float:
    try:
        return float(sum(process.cpu_times()[:2]))
    except psutil.NoSuchProcess:  # it ended since it was listed, and is counted with its parent
        return 0.0


def _ended(process: psutil.Process) -> float:
    try:
        times = process.cpu_times()
    except psutil.NoSuchProcess:
        return 0.0
    return float(times.children_user + times.children_system)


def _with_ended(process: psutil.Process) -> float:
    return _own(process) + _ended(process)


if __name__ == "__main__":
    main()
