"""What the ledger, the keys and the store cost beside an uncached export: CPU seconds, and their share.

    python benchmarks/bookkeeping.py [MODEL] [--backend onnx] [--rounds 3] [--at-most 0.05]

Each round exports into a home of its own in a process of its own, imports included, with a clock around everything that isn't the export
itself: the code index, the sample's identity, keys and recipes, references, hashing and publishing artifacts. Exit status 1 if the share of
the median round is above `--at-most`.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

# what is bookkeeping: (module, attribute or class.attribute)
PARTS = (
    ("exporters.chain", "code_index"),
    ("exporters.chain", "sample_parts"),
    ("exporters.chain", "stage_parts"),
    ("exporters.chain", "verification_parts"),
    ("exporters.ledger", "differences"),
    ("exporters.ledger", "recipe"),
    ("exporters.ledger", "recipe_version"),
    ("exporters.stage_makers", "identify"),
    ("exporters.stage_makers", "_record"),
    ("exporters.store", "Store.put"),
    ("exporters.store", "Store.get"),
    ("exporters.store", "Store.read_ref"),
    ("exporters.store", "Store.write_ref"),
)


class Clock:
    """CPU seconds inside the wrapped functions, the inner of nested ones counted once."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._running = False

    def wrap(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*args: Any, **kwargs: Any) -> Any:
            if self._running:
                return function(*args, **kwargs)
            self._running, started = True, time.process_time()
            try:
                return function(*args, **kwargs)
            finally:
                self._running = False
                self.seconds[name] = self.seconds.get(name, 0.0) + time.process_time() - started

        return timed


def one_round(model: str, backend: str) -> dict[str, Any]:
    """Export once in this process; what it cost."""
    import importlib

    from exporters.chain import Request, run

    clock = Clock()
    for module, path in PARTS:
        owner: Any = importlib.import_module(module)
        *parents, name = path.split(".")
        for parent in parents:
            owner = getattr(owner, parent)
        setattr(owner, name, clock.wrap(path, getattr(owner, name)))
    with tempfile.TemporaryDirectory() as home:
        report = run(Request(model=model, backend=backend, home=home, verify=False))
        assert report.outcome == "exported", report
    return {"total": time.process_time(), "parts": clock.seconds}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?", default="BertForSequenceClassification")
    parser.add_argument("--backend", default="onnx")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--at-most", type=float, default=0.05)
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(json.dumps(one_round(options.model, options.backend)))
        return 0
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, __file__, options.model, "--backend", options.backend, "--one"]
    shares = []
    for number in range(1, options.rounds + 1):
        done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
        cost = json.loads(done.stdout.splitlines()[-1])
        spent = sum(cost["parts"].values())
        shares.append(spent / cost["total"])
        print(f"round {number}: {spent:.3f} of {cost['total']:.2f} CPU s, {shares[-1]:.1%}", flush=True)
        for name, seconds in sorted(cost["parts"].items(), key=lambda item: -item[1]):
            print(f"  {seconds:8.4f}  {name}")
    median = statistics.median(shares)
    print(
        f"{options.model} to {options.backend}: {median:.1%} is bookkeeping (median of {options.rounds}); the bar is {options.at_most:.0%}"
    )
    return 0 if median <= options.at_most else 1


if __name__ == "__main__":
    sys.exit(main())
