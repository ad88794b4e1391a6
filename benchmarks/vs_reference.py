"""CPU of an ONNX export: ours against `transformers.exporters` on the same model and inputs, each in a process of its own.

    python benchmarks/vs_reference.py [--models NAME ...] [--rounds N] [--json]

Both processes do everything: imports, building the model, all stages, with dynamic axes. Ours also saves every stage, which is shown
apart, and neither verifies. Rounds alternate, so that both see the same machine; the median counts. CPU seconds are user and system
time of the whole process as the kernel counted it.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

MODELS = [
    "BertForSequenceClassification",
    "LlamaForCausalLM",
    "ViTForImageClassification",
    "WhisperForConditionalGeneration",
    "T5ForConditionalGeneration",
]

REFERENCE = """
import copy, sys
from exporters.zoo.build import build
from transformers.exporters.exporter_onnx import OnnxConfig, OnnxExporter
sample = build(sys.argv[1])
OnnxExporter().export(sample.model, copy.deepcopy(sample.inputs), config=OnnxConfig(dynamic=True))
"""


def measure(arguments: list[str], environment: dict[str, str]) -> tuple[float, str]:
    """CPU seconds of one process and what it wrote to standard output."""
    with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
        child = subprocess.Popen(arguments, stdout=output, stderr=errors, env=environment)
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        errors.seek(0)
        if child.returncode:
            raise SystemExit(f"{' '.join(arguments[:4])}: exit status {child.returncode}\n{errors.read().decode()[-2000:]}")
        output.seek(0)
        return usage.ru_utime + usage.ru_stime, output.read().decode()


def ours(model: str) -> tuple[float, float]:
    """CPU seconds without saving, and of saving."""
    with tempfile.TemporaryDirectory(prefix="zooport-bench-") as home:
        environment = {**os.environ, "ZOOPORT_HOME": home, "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
        program = [
            sys.executable,
            "-c",
            "from orchestration.cli import main; main()",
            "export",
            model,
            "--backend",
            "onnx",
            "--no-verify",
            "--json",
        ]
        total, output = measure(program, environment)
    report = json.loads(output)
    saving = sum(stage["save_cpu_seconds"] for stage in report["stages"])
    assert report["outcome"] == "exported", report
    assert not any(stage["cached"] for stage in report["stages"])
    return total - saving, saving


def reference(model: str) -> float:
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
    return measure([sys.executable, "-W", "ignore", "-c", REFERENCE, model], environment)[0]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", default=MODELS)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    sys.path.insert(0, str(Path(__file__).parents[1]))
    rows: list[dict[str, Any]] = []
    for model in options.models:
        mine, saving, theirs = [], [], []
        for _ in range(options.rounds):
            cpu, save = ours(model)
            mine.append(cpu)
            saving.append(save)
            theirs.append(reference(model))
        row = {
            "model": model,
            "zooport_cpu_seconds": round(statistics.median(mine), 2),
            "zooport_saving_cpu_seconds": round(statistics.median(saving), 2),
            "reference_cpu_seconds": round(statistics.median(theirs), 2),
            "ratio": round(statistics.median(mine) / statistics.median(theirs), 3),
            "rounds": options.rounds,
        }
        rows.append(row)
        if not options.json:
            if len(rows) == 1:
                print(f"{'model':36} {'zooport':>8} {'(saving)':>9} {'reference':>10} {'ratio':>6}   CPU s, median of {options.rounds}")
            print(
                f"{model:36} {row['zooport_cpu_seconds']:8.2f} {row['zooport_saving_cpu_seconds']:9.2f} "
                f"{row['reference_cpu_seconds']:10.2f} {row['ratio']:6.2f}",
                flush=True,
            )
    if options.json:
        print(json.dumps(rows))
    return 0 if all(row["ratio"] <= 1 for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
