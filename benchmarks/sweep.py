"""The fixed sample of 60 model types through all three families, each in a child of its own, as docs/sweep.md.

    python benchmarks/sweep.py --sample [--backends dynamo onnx executorch.xnnpack] [--home DIR] [--workers 1]
    python benchmarks/sweep.py --choose      # writes benchmarks/sample.json anew

A parent imports torch, transformers, onnxscript and executorch once and forks a child for each (model, backend), with limits on CPU
time and memory. Results are appended to HOME/sweep.jsonl as they come, and a run that was interrupted goes on where it was; what HOME's
store has is not made again, and counts with what it cost when it was made. Outcomes are those of `zooport export`.
"""

import argparse
import functools
import json
import os
import resource
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
SAMPLE = ROOT / "benchmarks" / "sample.json"
TARGET = ROOT / "docs" / "sweep.md"
SIZE = 60
BACKENDS = ("dynamo", "onnx", "executorch.xnnpack")
SECONDS = {"dynamo": 240, "onnx": 240, "executorch.xnnpack": 420}  # of CPU; of the clock four times that, on a machine with others on it
MEMORY = 8 << 30
BARS = {"dynamo": 0.85, "onnx": 0.80, "executorch.xnnpack": 0.60}

# The most used model type of each family, as far as one can tell without the hub.
FIRST = ("bert", "vit", "wav2vec2", "clip", "videomae", "patchtst", "graphormer")


def choose() -> list[str]:
    """One class a model type: the first of each family, then every tenth of the other types by name, until there are 60."""
    from exporters.zoo import catalogue

    by_type: dict[str, list[catalogue.Entry]] = defaultdict(list)
    for name in catalogue.names():
        entry = catalogue.entry(name)
        if "@" not in name and not entry.requires:
            by_type[entry.model_type].append(entry)
    rest = sorted(set(by_type) - set(FIRST))
    types = [kind for kind in FIRST if kind in by_type] + [rest[index % len(rest)] for index in range(0, 10 * SIZE, 10)]
    return [_representative(by_type[kind]).name for kind in dict.fromkeys(types)][:SIZE]


def _representative(entries: list[Any]) -> Any:
    """A class with a head if there is one: what people deploy."""
    return min(entries, key=lambda entry: (not entry.generates, "For" not in entry.name, entry.name))


def run(names: list[str], backends: list[str], home: Path) -> None:
    """Export what has no result yet, forking from one warm process."""
    from exporters.backends import family_of
    from exporters.isolation import run_forked
    from exporters.warm import warm_up

    results = home / "sweep.jsonl"
    results.parent.mkdir(parents=True, exist_ok=True)
    done = {(row["model"], row["backend"]) for row in _read(results)}
    todo = [(name, backend) for backend in backends for name in names if (name, backend) not in done]
    for backend in backends:
        warm_up(family_of(backend))
    with results.open("a") as stream:
        for index, (name, backend) in enumerate(todo, 1):
            ended = run_forked(_work(name, backend, home), seconds=4 * SECONDS[backend], memory=MEMORY)
            row = _row(name, backend, ended)
            stream.write(json.dumps(row) + "\n")
            stream.flush()
            print(
                f"{index:3}/{len(todo)} {backend:20} {name:44} {row['outcome']:9} {row['cpu_seconds']:6.1f} s  {row['cause'][:90]}",
                flush=True,
            )


def _work(name: str, backend: str, home: Path) -> Callable[[Callable[[Any], None]], None]:
    def work(say: Callable[[Any], None]) -> None:
        from exporters.chain import Request, Started
        from exporters.chain import run as run_chain
        from exporters.report import Report

        resource.setrlimit(resource.RLIMIT_CPU, (SECONDS[backend], SECONDS[backend]))

        def tell(event: Any) -> None:
            if isinstance(event, Started):
                say({"stage": event.stage})
            elif isinstance(event, Report):
                made = sum(stage.details.get("made", {}).get("cpu_seconds", stage.cpu_seconds) for stage in event.stages)
                told = event.model_dump(include={"outcome", "error", "parity", "reason"})
                say({"report": told, "cpu_seconds": made})

        run_chain(Request(model=name, backend=backend, home=str(home)), tell)

    return work


def _row(name: str, backend: str, ended: Any) -> dict[str, Any]:
    report, cpu = next(((line["report"], line["cpu_seconds"]) for line in ended.lines if "report" in line), (None, ended.cpu_seconds))
    stage = next((line["stage"] for line in reversed(ended.lines) if "stage" in line), "start")
    if report is None:
        said = (ended.tail.strip().splitlines() or ["it said nothing"])[-1]
        report = {
            "outcome": "failed",
            "error": {"stage": stage, "message": f"{ended.how or 'ended'}: {said}" if ended.how != "timeout" else "timeout"},
        }
    error = report.get("error") or {}
    return {
        "model": name,
        "backend": backend,
        "outcome": report["outcome"],
        "stage": error.get("stage", ""),
        "cause": " ".join((error.get("message") or report.get("reason") or "").split())[:300],
        "seconds": ended.seconds,
        "cpu_seconds": round(cpu, 1),
        "peak_rss_mb": ended.peak_rss_mb,
        "commit": _commit(),
    }


@functools.cache
def _commit() -> str:
    done = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.strip() or "unknown"


def _read(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def write_table(names: list[str], backends: list[str], home: Path) -> bool:
    """Write docs/sweep.md; whether every bar is reached."""
    rows = {(row["model"], row["backend"]): row for row in _read(home / "sweep.jsonl")}
    shares = {backend: sum(rows.get((name, backend), {}).get("outcome") == "verified" for name in names) for backend in backends}
    lines = [
        "# The sample",
        "",
        f"Generated by `benchmarks/sweep.py --sample`: {len(names)} model types (`benchmarks/sample.json`), dynamic axes, one child each.",
        "",
        "| backend | verified | bar | at commits |",
        "| --- | --- | --- | --- |",
    ]
    for backend in backends:
        commits = Counter(row["commit"] for (_, each), row in rows.items() if each == backend)
        told = ", ".join(f"{commit} ({count})" for commit, count in commits.most_common())
        lines.append(
            f"| {backend} | {shares[backend]} of {len(names)} ({shares[backend] / len(names):.0%}) | {BARS[backend]:.0%} | {told} |"
        )
    lines += ["", "## What fails, by stage and cause", ""]
    causes = Counter((row["backend"], row["stage"], row["cause"][:110]) for row in rows.values() if row["outcome"] != "verified")
    for (backend, stage, cause), count in causes.most_common():
        models = [row["model"] for row in rows.values() if (row["backend"], row["stage"], row["cause"][:110]) == (backend, stage, cause)]
        lines.append(f"- {backend}, {stage} ({count}): {cause.replace('|', '/')} — {', '.join(models)}")
    lines += ["", "## All", "", "| model | " + " | ".join(backends) + " |", "| --- |" + " --- |" * len(backends)]
    for name in names:
        lines.append(f"| {name} | " + " | ".join(rows.get((name, backend), {}).get("outcome", "") for backend in backends) + " |")
    TARGET.write_text("\n".join(lines) + "\n")
    return all(shares[backend] >= BARS[backend] * len(names) for backend in backends)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sample", action="store_true", help="export the committed sample")
    parser.add_argument("--choose", action="store_true", help="choose the sample anew")
    parser.add_argument("--backends", nargs="+", default=list(BACKENDS))
    parser.add_argument("--home", type=Path, default=Path("/tmp/zooport-sweep"))
    options = parser.parse_args()
    if options.choose:
        SAMPLE.write_text(json.dumps(choose(), indent=1) + "\n")
        return 0
    if not options.sample:
        parser.error("say --sample or --choose")
    os.environ |= {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"}
    names = json.loads(SAMPLE.read_text())
    try:
        run(names, options.backends, options.home)
    finally:
        reached = write_table(names, options.backends, options.home)
    return 0 if reached else 1


if __name__ == "__main__":
    sys.exit(main())
