"""A chain whose stages take a millisecond and make nothing, for `benchmarks/scale.py`: what is left is what a fleet costs by itself."""

import hashlib
import json
import time
from pathlib import Path
from typing import Any

from exporters.backends import STAGES, family_of
from exporters.home import store_of
from exporters.report import Parity, Report, StageReport
from exporters.reports import remember
from exporters.store import Store

STAGE_SECONDS = 0.001
FAILS_EVERY = 50  # of the digests, so that there is something to report on


def serve(request: dict[str, Any]) -> None:
    """What a zygote's child runs."""
    model, backend = request["model"], request["backend"]
    report = Report(model=model, backend=backend, at=time.time(), run=request["run"], outcome="verified")
    for stage in STAGES[family_of(backend)]:
        print(json.dumps({"event": "start", "stage": stage}), flush=True)
        time.sleep(STAGE_SECONDS)
        digest = hashlib.sha256(f"{model} {backend} {stage}".encode()).hexdigest()
        if int(digest, 16) % FAILS_EVERY == 0:
            raise RuntimeError(f"synthetic: {stage} of {model} fails")
        made = StageReport(stage=stage, seconds=STAGE_SECONDS, cpu_seconds=STAGE_SECONDS, bytes=1000, digest=f"sha256:{digest}", path="-")
        report.stages.append(made)
        print(json.dumps({"event": "stage", "stage": made.model_dump()}), flush=True)
    report.parity = [Parity(inputs="sample", ok=True, max_abs_diff=1e-7), Parity(inputs="other", ok=True, max_abs_diff=1e-7)]
    home = Path(request["home"])
    remember(Store(store_of(home)), report)
    print(json.dumps({"event": "report", "report": report.model_dump()}), flush=True)
