"""The definitions load without torch and cheaply, and `workspace.yaml` names them."""

import json
import subprocess
import sys
from pathlib import Path

import yaml

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


def test_a_job_for_each_family() -> None:
    from orchestration.definitions import defs

    jobs = {job.name for job in defs().resolve_all_job_defs() if not job.name.startswith("__")}
    assert jobs == {"export_dynamo", "export_onnx", "export_executorch"}
