"""What a person sees after `make demo` and `make ui`: the demo's materializations and checks, asked for over GraphQL."""

import json
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from exporters.zoo import zoo_file
from orchestration import demo
from orchestration.instance import dagster_home
from orchestration.resources import PoolRunner

ROOT = Path(__file__).parents[2]
PATIENCE_SECONDS = 60

Ask = Callable[..., Any]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_for(url: str, server: "subprocess.Popen[bytes]") -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < deadline:
        assert server.poll() is None, "the webserver ended"
        try:
            urllib.request.urlopen(url, timeout=5).close()
            return
        except OSError:
            time.sleep(0.2)
    pytest.fail(f"no answer from {url} in {PATIENCE_SECONDS} s")


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("home")


@pytest.fixture(scope="module")
def ask(home: Path) -> Iterator[Ask]:
    """A webserver over the instance that the demo has just written, as a function from query and variables to data."""
    fake = PoolRunner(chain="fake_chain:serve", timeout_seconds=30)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ZOOPORT_HOME", str(home))
        assert demo.run_demo(fake) == 0
        patch.setenv("DAGSTER_HOME", str(dagster_home()))
        port = free_port()
        command = [sys.executable, "-m", "dagster_webserver", "-w", "workspace.yaml", "-h", "127.0.0.1", "-p", str(port)]
        server = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait_for(f"http://127.0.0.1:{port}/server_info", server)

        def query(text: str, **variables: Any) -> Any:
            body = json.dumps({"query": text, "variables": variables}).encode()
            request = urllib.request.Request(f"http://127.0.0.1:{port}/graphql", body, {"Content-Type": "application/json"})
            with urllib.request.urlopen(request, timeout=PATIENCE_SECONDS) as response:
                answer = json.load(response)
            assert "errors" not in answer, answer
            return answer["data"]

        yield query
    finally:
        server.terminate()
        try:
            server.wait(timeout=15)
        except subprocess.TimeoutExpired:
            server.kill()


def test_every_asset_is_in_the_graph(ask: Ask) -> None:
    nodes = ask("{ assetNodes { assetKey { path } groupName kinds isPartitioned hasAssetChecks } }")["assetNodes"]
    assert {tuple(node["assetKey"]["path"]) for node in nodes} >= {("onnx", "ir_fixed_model"), ("executorch", "pte")}
    groups = {tuple(node["assetKey"]["path"]): node["groupName"] for node in nodes}
    assert groups.pop(("fleet_report",)) == "fleet"
    assert len(groups) == 18
    for (family, stage), group in groups.items():
        assert group == (f"{family}_recipes" if stage.endswith("_recipe") else family)
    assert [node["assetKey"]["path"] for node in nodes if not node["isPartitioned"]] == [["fleet_report"]]


@pytest.mark.parametrize(("family", "last", "backend"), [("onnx", "ir_fixed_model", "onnx"), ("executorch", "pte", "executorch.xnnpack")])
def test_the_demo_is_visible_and_fresh(ask: Ask, family: str, last: str, backend: str) -> None:
    for model in demo.MODELS:
        node = ask(
            """query ($key: AssetKeyInput!, $partition: String!) { assetNodeOrError(assetKey: $key) { ... on AssetNode {
                 staleStatus(partition: $partition)
                 assetMaterializations(partitions: [$partition], limit: 1) { runId metadataEntries { label } } } } }""",
            key={"path": [family, last]},
            partition=f"{backend}|{model}",
        )["assetNodeOrError"]
        assert node["staleStatus"] == "FRESH"
        (materialization,) = node["assetMaterializations"]
        labels = {entry["label"] for entry in materialization["metadataEntries"]}
        assert {"seconds", "peak_rss_mb", "digest", "operators", "workarounds", "path", "outcome", "parity"} <= labels


def test_the_checks_are_green_for_each_partition(ask: Ask) -> None:
    executions = ask(
        """query ($key: AssetKeyInput!) { assetCheckExecutions(assetKey: $key, checkName: "parity", limit: 10) {
             status evaluation { success partition } } }""",
        key={"path": ["onnx", "ir_fixed_model"]},
    )["assetCheckExecutions"]
    assert {execution["evaluation"]["partition"] for execution in executions} == {f"onnx|{model}" for model in demo.MODELS}
    assert all(execution["evaluation"]["success"] and execution["status"] == "SUCCEEDED" for execution in executions)


def test_the_runs_are_listed_under_their_jobs(ask: Ask) -> None:
    runs = ask("{ runsOrError { ... on Runs { results { jobName status } } } }")["runsOrError"]["results"]
    assert len(runs) == len(demo.MODELS) * len(demo.BACKENDS)
    assert {run["jobName"] for run in runs} == {"export_onnx", "export_executorch"}
    assert {run["status"] for run in runs} == {"SUCCESS"}


def test_a_named_checkpoint_is_there_after_a_reload(ask: Ask, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def models() -> list[str]:
        (node,) = ask("""{ assetNodes(assetKeys: [{path: ["onnx", "ir_fixed_model"]}]) {
                 partitionKeysByDimension { name partitionKeys } } }""")["assetNodes"]
        return next(row["partitionKeys"] for row in node["partitionKeysByDimension"] if row["name"] == "model")

    monkeypatch.setenv("ZOOPORT_HOME", str(home))
    zoo_file.add("tickets", "support/tickets")
    assert "tickets" not in models()
    ask("""mutation { reloadRepositoryLocation(repositoryLocationName: "zooport") { __typename } }""")
    assert "tickets" in models()
