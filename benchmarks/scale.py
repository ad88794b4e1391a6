"""A fleet of 5,000 partitions whose stages take a millisecond: what launching, watching and reporting cost. Prints JSON.

    python benchmarks/scale.py [--partitions 5000] [--workers 2] [--home DIR]

The fleet runs through the pool and Dagster as any other. Then the webserver answers what the asset's page and a partition's status ask,
and `zooport report` writes its page.
"""

import argparse
import json
import os
import resource
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
BACKENDS = ("dynamo", "onnx", "executorch.xnnpack")

FLEET = """
import sys
from orchestration.fleet_command import Choice, run_fleet
from orchestration.resources import PoolRunner
from orchestration.selection import Scope, sampled
count, workers = int(sys.argv[1]), int(sys.argv[2])
runner = PoolRunner(chain="synthetic_chain:serve", workers=workers, retries=0)
scope = Scope(backends=sys.argv[3].split(","))
models = [model for _, model in sampled(scope.partitions(), count // len(scope.backends))]
sys.exit(run_fleet(Choice(Scope(list(dict.fromkeys(models)), scope.backends)), runner, as_json=True))
"""

STATUS = """query($key: AssetKeyInput!) { assetNodeOrError(assetKey: $key) { ... on AssetNode { id
  partitionStats { numMaterialized numFailed numPartitions }
  assetPartitionStatuses { ... on MultiPartitionStatuses { ranges { primaryDimStartKey primaryDimEndKey } } } } } }"""
RUNS = "query { runsOrError(limit: 25) { ... on Runs { results { runId status tags { key value } assetSelection { path } } } } }"
GRAPH = "query { assetNodes { id assetKey { path } groupName staleStatus isPartitioned dependencyKeys { path } } }"


def cpu_of(before: resource.struct_rusage, after: resource.struct_rusage) -> float:
    return round(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, 1)


def run(command: list[str], environment: dict[str, str]) -> tuple[str, dict[str, float]]:
    """Standard output of a command, with CPU and wall seconds of its tree of processes."""
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    done = subprocess.run(command, env=environment, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False)
    cost = {"cpu_seconds": cpu_of(before, resource.getrusage(resource.RUSAGE_CHILDREN)), "seconds": round(time.monotonic() - began, 1)}
    return done.stdout, cost


def ask(port: int, query: str, **variables: Any) -> tuple[float, Any]:
    """Seconds until the second answer is there, as of a page that is open; and the answer."""
    body = json.dumps({"query": query, "variables": variables}).encode()
    for _ in range(2):
        request = urllib.request.Request(f"http://127.0.0.1:{port}/graphql", body, {"Content-Type": "application/json"})
        began = time.monotonic()
        with urllib.request.urlopen(request, timeout=300) as response:
            answer = json.load(response)
        seconds = time.monotonic() - began
    if "errors" in answer:
        raise SystemExit(json.dumps(answer["errors"])[:2000])
    return round(seconds, 3), answer["data"]


def pages(home: Path, environment: dict[str, str]) -> dict[str, Any]:
    """What the webserver takes to answer."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "dagster_webserver", "-w", "workspace.yaml", "-h", "127.0.0.1", "-p", str(port)]
    settings = {**environment, "DAGSTER_HOME": str(home / "dagster")}
    began = time.monotonic()
    server = subprocess.Popen(command, cwd=ROOT, env=settings, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        while True:
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{port}/server_info", timeout=5).close()
                break
            except OSError:
                time.sleep(0.2)
        started = round(time.monotonic() - began, 1)
        graph, _ = ask(port, GRAPH)
        runs, _ = ask(port, RUNS)
        status, answer = ask(port, STATUS, key={"path": ["onnx", "ir_fixed_model"]})
        found = answer["assetNodeOrError"]["partitionStats"]
        return {"starts_seconds": started, "graph_seconds": graph, "runs_seconds": runs, "status_seconds": status, "statuses": found}
    finally:
        server.terminate()
        server.wait()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--partitions", type=int, default=5000)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--home", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="zooport-scale-") as folder:
        home = options.home or Path(folder)
        paths = os.pathsep.join([str(ROOT), str(ROOT / "benchmarks")])
        environment = {**os.environ, "ZOOPORT_HOME": str(home), "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1", "PYTHONPATH": paths}
        words = [str(options.partitions), str(options.workers), ",".join(BACKENDS)]
        output, cost = run([sys.executable, "-c", FLEET, *words], environment)
        told = json.loads(output)
        result: dict[str, Any] = {"partitions": len(told["partitions"]), "outcomes": told["counts"], "fleet": cost}
        result["fleet"]["cpu_seconds_a_partition"] = round(cost["cpu_seconds"] / len(told["partitions"]), 3)
        result["webserver"] = pages(home, environment)
        page = home / "report.html"
        zooport = [sys.executable, "-c", "from orchestration.cli import main; main()"]
        _, result["report"] = run([*zooport, "report", "--html", str(page)], environment)
        result["report"]["bytes"] = page.stat().st_size
        result["home_bytes"] = sum(file.stat().st_size for file in home.rglob("*") if file.is_file())
    print(json.dumps(result, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
