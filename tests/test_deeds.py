"""`zooport workarounds` tells the truth: an independent count, made with Python's profiling hook, agrees with it."""

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

# Counts from outside: calls of what the patch factories return, fixes that say that they changed something, translations that are run.
PROGRAM = """
import json, sys
from collections import Counter
import exporters.exporter_executorch, exporters.exporter_onnx
from exporters.chain import Request, run
from exporters.code_index import code_index

home, wanted = sys.argv[1], json.loads(sys.argv[2])
functions = {}  # code of a registered function -> its name and kind; a factory may serve several scopes
for each in exporters.utils.REGISTRY.select():
    functions.setdefault(each.function.__code__, []).append(each)
replacements, counts = {}, {}

def watch(frame, event, argument):
    code = frame.f_code
    if event == "return" and code in functions:
        first = functions[code][0]
        if first.kind == "patch" and argument is not None:
            replacements[argument.__code__] = first.function.__name__
        elif first.kind == "translation" or (argument is not None and argument is not False):
            counts[model][first.function.__name__] += 1
    elif event == "call" and code in replacements:
        counts[model][replacements[code]] += 1

for model, backend in wanted:
    counts[model] = Counter()
    sys.setprofile(watch)
    report = run(Request(model=model, backend=backend, home=home, verify=False))
    sys.setprofile(None)
    assert report.outcome == "exported", report
print(json.dumps(counts))
"""


def counted_from_outside(home: Path, wanted: list[tuple[str, str]]) -> dict[str, Counter[str]]:
    done = subprocess.run([sys.executable, "-c", PROGRAM, str(home), json.dumps(wanted)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return {model: Counter(counts) for model, counts in json.loads(done.stdout.splitlines()[-1]).items()}


def listed(home: Path, *options: str) -> list[dict[str, Any]]:
    program = [sys.executable, "-c", "from orchestration.cli import main; main()", "workarounds", "--json", *options]
    done = subprocess.run(program, capture_output=True, text=True, check=True, env={**os.environ, "ZOOPORT_HOME": str(home)})
    rows: list[dict[str, Any]] = json.loads(done.stdout)
    return rows


@pytest.mark.parametrize(
    "wanted",
    [
        [("ViTForImageClassification", "onnx")],
        pytest.param([("MixtralForCausalLM", "onnx")], marks=pytest.mark.slow),
        pytest.param([("MixtralForCausalLM", "executorch.xnnpack"), ("MambaForCausalLM", "executorch.xnnpack")], marks=pytest.mark.slow),
    ],
    ids=["onnx", "onnx, experts", "executorch"],
)
def test_the_list_agrees_with_a_count_from_outside(tmp_path: Path, wanted: list[tuple[str, str]]) -> None:
    counts = counted_from_outside(tmp_path, wanted)
    rows = listed(tmp_path)
    found = {model: {row["name"].partition(":")[2]: row["models"][model] for row in rows if model in row["models"]} for model, _ in wanted}
    exact = {row["name"].partition(":")[2] for row in rows if row["kind"] != "fx_program_fix"}
    for model, _ in wanted:
        assert found[model].keys() == counts[model].keys()
        # of a program fix the nodes are counted that came or went, not its calls
        assert {name: number for name, number in found[model].items() if name in exact} == {
            name: number for name, number in counts[model].items() if name in exact
        }
    assert any(counts.values())
    unused = {row["name"] for row in listed(tmp_path, "--unused")}
    assert unused == {row["name"] for row in rows if not row["models"]}
    for row in rows:
        assert {"kind", "backend", "stages", "file", "line", "upstream"} <= row.keys()
