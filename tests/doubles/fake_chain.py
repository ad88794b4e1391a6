"""A test double of `exporters.chain.serve`: the same protocol, no torch. The model's name says how it behaves.

`Fine` ends verified, `Differs` ends `ran`, `Raises` reports a failure at the second stage, `Segfaults`, `Killed`, `Hangs`
and `Silent` do that in their second stage, `DiesVerifying` after the last, `Skipped` is skipped, `Chatty` prints beside the
protocol and leaves a grandchild that holds its pipes open, `Refuses` says nothing at all, `Orphans` does so and leaves a grandchild,
`Crashes1` is killed the first time that it is tried, `Eats` takes more memory than there is, `Misused` names an error, `Spins` never
ends without sleeping either. Anything else ends verified.
"""

import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from exporters.backends import STAGES, family_of
from exporters.home import store_of
from exporters.report import Report
from exporters.reports import remember
from exporters.store import Store


def say(event: str, **fields: object) -> None:
    print(json.dumps({"event": event, **fields}), flush=True)


def stage_report(stage: str, request: dict[str, str]) -> dict[str, object]:
    digest = hashlib.sha256(f"{stage} {request['model']} {os.environ.get('FAKE_SALT', '')}".encode()).hexdigest()
    return {
        "stage": stage,
        "seconds": 0.5,
        "cpu_seconds": 0.4,
        "peak_rss_mb": 100.0,
        "bytes": 1234,
        "digest": f"sha256:{digest}",
        "recipe": f"recipe of {stage} {os.environ.get('FAKE_RECIPE', '')}",
        "path": f"{request['home']}/store/{digest}",
        "nodes": 3,
        "operators": {"aten.mm.default": 2, "aten.add.Tensor": 1},
        "fired": ["dynamo:_patch_fake"] if stage == "traced_program" else [],
    }


def die(how: str) -> None:
    match how:
        case "Segfaults":
            os.kill(os.getpid(), signal.SIGSEGV)
        case "Killed":
            os.kill(os.getpid(), signal.SIGKILL)
        case "Hangs":
            time.sleep(600)
        case "Silent":
            print("a last word", file=sys.stderr, flush=True)
            sys.exit(0)
        case "Misused":
            print("error: UsageError: the weights don't fit\n  next: save them again", file=sys.stderr, flush=True)
            sys.exit(2)
        case "Eats":
            bytearray(20 << 30)
        case "Spins":
            while True:
                pass


def serve(request: dict[str, Any]) -> None:
    """What a zygote's child runs."""
    if log := os.environ.get("FAKE_LOG"):
        with open(log, "a") as stream:
            stream.write(f"{request['backend']}|{request['model']}\n")
    model, stages = request["model"].partition("@")[0], STAGES[family_of(request["backend"])]
    if request.get("until"):
        stages = stages[: stages.index(request["until"]) + 1]
    report = {"model": request["model"], "backend": request["backend"], "stages": [], "parity": [], "outcome": "exported"}
    if model == "Skipped":
        end(request, report | {"outcome": "skipped", "reason": "not installed: a package"})
        return
    if model in ("Refuses", "Orphans"):
        if model == "Orphans":
            subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
        sys.exit(3)
    if model == "Crashes1":
        first = Path(request["home"]) / "crashed"
        if not first.exists():
            first.parent.mkdir(parents=True, exist_ok=True)
            first.touch()
            die("Killed")
    if model == "Chatty":
        print("a library prints this")
        print('{"not": "an event"}')
        subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    for position, stage in enumerate(stages):
        say("start", stage=stage)
        if position == 1:
            die(model)
            if model == "Raises":
                error = {"stage": stage, "type": "ValueError", "message": "no such operator", "next": "write one"}
                end(request, report | {"outcome": "failed", "error": error})
                return
        report["stages"].append(stage_report(stage, request))
        say("stage", stage=report["stages"][-1])
    if request["verify"]:
        if model == "DiesVerifying":
            die("Segfaults")
        report["parity"] = [
            {"inputs": "sample", "ok": model != "Differs", "max_abs_diff": 3e-7},
            {"inputs": "other", "ok": model != "Differs", "max_abs_diff": 0.5 if model == "Differs" else 4e-7},
        ]
        for parity in report["parity"]:
            say("parity", parity=parity)
        report["outcome"] = "ran" if model == "Differs" else "verified"
    end(request, report | {"artifact": report["stages"][-1]["path"]})


def end(request: dict[str, Any], report: dict[str, Any]) -> None:
    """Say the report and leave it in the store, as the chain does."""
    ended = Report.model_validate(report | {"at": time.time(), "run": request.get("run") or ""})
    home = Path(request["home"])
    remember(Store(store_of(home), cache=home / "cache"), ended)
    say("report", report=ended.model_dump(mode="json"))


def hang(request: dict[str, Any]) -> None:
    """A chain that says nothing and never ends."""
    del request
    time.sleep(600)


def serve_slowly(request: dict[str, Any]) -> None:
    """The same, with time to kill somebody."""
    time.sleep(0.3)
    serve(request)
