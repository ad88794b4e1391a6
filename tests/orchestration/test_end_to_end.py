"""One real model through Dagster, and the same through the command line: the same artifacts, made once."""

import json
import subprocess
import sys
from pathlib import Path

import dagster as dg
import pytest

from assets.partitions import partition_key
from exporters.backends import STAGES
from orchestration.definitions import build, job_name
from orchestration.instance import open_instance
from orchestration.resources import PoolRunner

MODEL = "ViTForImageClassification"

pytestmark = pytest.mark.e2e


def test_dagster_makes_what_the_command_line_then_finds(zooport_home: Path) -> None:
    job = build(PoolRunner()).resolve_job_def(job_name("onnx"))
    with open_instance() as instance:
        result = job.execute_in_process(instance=instance, partition_key=partition_key("onnx", MODEL))
    materialized = {event.asset_key.path[-1]: event.materialization for event in result.get_asset_materialization_events()}
    assert tuple(materialized) == STAGES["onnx"]
    last = materialized["ir_fixed_model"]
    assert last.metadata["outcome"].value == "verified"
    assert Path(str(last.metadata["artifact"].value)).is_file()
    (check,) = result.get_asset_check_evaluations()
    assert check.passed
    assert check.severity == dg.AssetCheckSeverity.ERROR

    program = "import sys; from orchestration.cli import main; sys.argv = sys.argv[0:1] + ['export', *sys.argv[1:]]; main()"
    done = subprocess.run([sys.executable, "-c", program, MODEL, "--json"], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["outcome"] == "verified"
    assert [stage["cached"] for stage in report["stages"]] == [True] * 4
    data_versions = {stage: (event.tags or {})["dagster/data_version"] for stage, event in materialized.items()}
    assert {stage["stage"]: stage["digest"] for stage in report["stages"]} == data_versions
    assert report["artifact"] == last.metadata["artifact"].value
