"""The definitions load without torch and cheaply, `workspace.yaml` names them, and named checkpoints are partitions."""

import json
import subprocess
import sys
from pathlib import Path

import dagster as dg
import pytest
import yaml
from typer.testing import CliRunner

from assets.partitions import partition_key
from exporters.zoo import catalogue, zoo_file
from orchestration.cli import app
from orchestration.definitions import build, defs
from orchestration.resources import PoolRunner

ROOT = Path(__file__).parents[2]

MEASURE = """
import json, sys, time
import dagster
begin = time.process_time()
from orchestration.definitions import defs
loaded = defs()
loaded.resolve_all_job_defs()
seconds = time.process_time() - begin
print(json.dumps({"seconds": seconds, "heavy": sorted({"torch", "transformers", "onnx", "executorch"} & set(sys.modules))}))
"""


def test_they_load_without_torch_in_under_two_cpu_seconds() -> None:
    done = subprocess.run([sys.executable, "-c", MEASURE], cwd=ROOT, capture_output=True, text=True, timeout=120, check=True)
    measured = json.loads(done.stdout)
    assert measured["heavy"] == []
    assert measured["seconds"] < 2


def test_the_workspace_names_them() -> None:
    """That a webserver loads them from there, tests/orchestration/test_webserver.py shows."""
    (entry,) = yaml.safe_load((ROOT / "workspace.yaml").read_text())["load_from"]
    assert entry["python_module"]["module_name"] == "orchestration.definitions"


def test_a_job_for_each_family_and_one_for_the_report() -> None:
    jobs = {job.name for job in defs().resolve_all_job_defs() if not job.name.startswith("__")}
    assert jobs == {"export_dynamo", "export_onnx", "export_executorch", "export_fleet", "report_fleet"}


def models(definitions: dg.Definitions) -> set[str]:
    partitions = definitions.get_assets_def(["onnx", "ir_fixed_model"]).partitions_def
    assert isinstance(partitions, dg.MultiPartitionsDefinition)
    return set(partitions.get_partitions_def_for_dimension("model").get_partition_keys())


def test_a_named_checkpoint_is_a_partition_after_a_reload(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    assert models(defs()) == set(catalogue.names())
    assert CliRunner().invoke(app, ["zoo", "add", "tickets", "support/tickets"]).exit_code == 0
    assert models(defs()) == {*catalogue.names(), "tickets"}


def test_a_named_checkpoint_runs_through_the_chain(fake_runner: PoolRunner, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    zoo_file.add("Fine", "support/tickets")  # the fake child knows it
    with dg.DagsterInstance.ephemeral() as instance:
        job = build(fake_runner).resolve_job_def("export_onnx")
        assert job.execute_in_process(instance=instance, partition_key=partition_key("onnx", "Fine")).success
        assert instance.get_materialized_partitions(dg.AssetKey(["onnx", "ir_fixed_model"])) == {"onnx|Fine"}
