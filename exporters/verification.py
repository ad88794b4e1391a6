"""What an export is worth: run on its runtime, in a process of its own, and compared with eager at every input set."""

import copy
import json
import os
import resource
import select
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch.utils import _pytree as pytree

from exporters import artifacts, parity, zygote
from exporters.backends import family_of
from exporters.errors import SignatureMismatch
from exporters.processes import how_it_ended, kill_group
from exporters.publish import MAIN_FILE
from exporters.report import ErrorReport, Outcome, Parity
from exporters.signature import Signature
from exporters.weight_set import WeightSet
from exporters.zoo.sample import Sample

SAMPLE_SET = "sample"
TIMEOUT_SECONDS = 600


class Verification:
    """The outcome of one verification.

    Attributes:
        outcome: highest rung reached, from `exported` to `verified`; `matched` is the top where there is only one input set.
        load_seconds: time that the runtime took to load the artifact; None if it didn't.
        cpu_seconds_elsewhere: CPU of a process that isn't one of ours, so that nobody counts it as such.
    """

    def __init__(self) -> None:
        self.outcome: Outcome = "exported"
        self.parity: list[Parity] = []
        self.load_seconds: float | None = None
        self.cpu_seconds_elsewhere = 0.0
        self.error: ErrorReport | None = None


def verify(
    sample: Sample,
    made: Path,
    weights: WeightSet,
    *,
    backend: str,
    dynamic: bool,
    on_parity: Callable[[Parity], None] | None = None,
    runtimes: str = "",
) -> Verification:
    """Run an artifact at the sample inputs and, if it is dynamic, at all others, and compare each with eager.

    Args:
        made: the folder of the last stage's artifact; of the `dynamo` family the runtime loads it as it is, of others its main file.
        runtimes: address of a zygote that forks the process which runs the artifact; by default a new one is started.
    """
    family = family_of(backend)
    signature = artifacts.read_signature(made)
    artifact = made if family == "dynamo" else made / MAIN_FILE[family]
    result = Verification()
    sets = {SAMPLE_SET: sample.inputs, **(sample.others if dynamic else {})}
    with tempfile.TemporaryDirectory(prefix="zooport-verify-") as name:
        folder = Path(name)
        refused: dict[str, str] = {}
        for label, inputs in sets.items():
            try:
                leaves = signature.flatten(inputs)
            except SignatureMismatch as error:
                refused[label] = str(error)
                continue
            save_file({str(i): leaf.detach().clone().contiguous() for i, leaf in enumerate(leaves)}, folder / f"{label}.in.safetensors")
        runnable = [label for label in sets if label not in refused]
        ran = _run(folder, runnable, artifact, weights, family, result, runtimes) if runnable else set()
        for label, inputs in sets.items():
            row = _parity_of(label, inputs, sample, signature, folder, refused.get(label), label in ran, result)
            result.parity.append(row)
            if on_parity is not None:
                on_parity(row)
    ok = {row.inputs: row.ok for row in result.parity}
    if SAMPLE_SET in ran:
        result.outcome = "ran"
        if ok[SAMPLE_SET]:
            result.outcome = "verified" if len(sets) > 1 and all(ok.values()) else "matched"
    if result.error is None and result.outcome != ("verified" if len(sets) > 1 else "matched"):
        worst = next(row for row in result.parity if not row.ok)
        result.error = ErrorReport(
            stage="verification",
            type="Mismatch",
            message=f"{worst.inputs}: {worst.message}",
            next=f"`zooport export {type(sample.model).__name__} --backend {backend} --static` tells whether it is the dynamic axes",
        )
    return result


def _run(folder: Path, labels: list[str], artifact: Path, weights: WeightSet, family: str, result: Verification, runtimes: str) -> set[str]:
    """Run the job in a child; the labels of the input sets that ran. Sets `outcome`, `load_seconds` and `error`."""
    job: dict[str, Any] = {"family": family, "artifact": str(artifact), "sets": labels, "weights": weights.to_json()}
    if family == "onnx" and weights.files:
        job["weights_folder"] = str(weights.folder(folder))
    (folder / "job.json").write_text(json.dumps(job))
    if runtimes:
        try:
            ending, output, errors, result.cpu_seconds_elsewhere = _forked(folder, family, runtimes)
        except zygote.ZygoteLost:  # says nothing of the artifact
            ending, output, errors = _spawned(folder)
    else:
        ending, output, errors = _spawned(folder)
    events = [json.loads(line) for line in output.splitlines() if line.startswith("{")]
    ran = {event["inputs"] for event in events if event["event"] == "ran"}
    loaded = next((event for event in events if event["event"] == "loaded"), None)
    if loaded is not None:
        result.outcome, result.load_seconds = "loaded", loaded["seconds"]
    if ending:
        result.error = ErrorReport(
            stage="verification",
            type=ending,
            message=_last_words(errors),
            next="run the artifact by itself to see more",
        )
    return ran


def _spawned(folder: Path) -> tuple[str, str, str]:
    """Run the job in a new process: how it ended (empty if well), its output, its errors."""
    child = subprocess.Popen(
        [sys.executable, "-m", "exporters.runtimes", str(folder)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "HF_HUB_OFFLINE": "1"},
        start_new_session=True,
    )
    try:
        output, errors = child.communicate(timeout=TIMEOUT_SECONDS)
    except subprocess.TimeoutExpired:
        kill_group(child.pid)
        output, errors = child.communicate()
        return "Timeout", output, errors
    except BaseException:
        kill_group(child.pid)
        child.wait()
        raise
    return how_it_ended(child.returncode), output, errors


def _forked(folder: Path, family: str, runtimes: str) -> tuple[str, str, str, float]:
    """The same in a child of the zygote at the address `runtimes`, and the CPU seconds that it took.

    Raises:
        ZygoteLost: nobody knows how the child ended.
    """
    with (folder / "output").open("w+b") as output, (folder / "errors").open("w+b") as errors:
        call = zygote.Call(
            runtimes,
            "exporters.runtimes:run_job",
            str(folder),
            warm=("exporters.runtimes:import_runtime", family),
            stdout=output.fileno(),
            stderr=errors.fileno(),
            memory=max(0, resource.getrlimit(resource.RLIMIT_DATA)[0]),  # what holds for this process holds for its proxy
        )
        deadline = time.monotonic() + TIMEOUT_SECONDS
        try:
            while call.ended is None and (left := deadline - time.monotonic()) > 0:
                if select.select([call], [], [], left)[0]:
                    call.receive()
            ending = call.ended.how if call.ended else "Timeout"
        finally:
            call.close()
        cpu = call.ended.cpu_seconds if call.ended else 0.0
        told = []
        for stream in (output, errors):
            stream.seek(0)
            told.append(stream.read().decode(errors="replace"))
        return ending, told[0], told[1], cpu


def _parity_of(
    label: str,
    inputs: dict[str, Any],
    sample: Sample,
    signature: Signature,
    folder: Path,
    refused: str | None,
    ran: bool,
    result: Verification,
) -> Parity:
    if refused is not None:
        return Parity(inputs=label, ok=False, message=refused)
    if not ran:
        return Parity(inputs=label, ok=False, message=result.error.message if result.error else "did not run")
    with torch.no_grad():
        eager = sample.model(**copy.deepcopy(inputs))
    stored = load_file(folder / f"{label}.out.safetensors")
    outputs = [stored[str(index)] for index in range(len(stored))]
    if len(outputs) != len(signature.graph_outputs):
        return Parity(inputs=label, ok=False, message=f"{len(outputs)} outputs instead of {len(signature.graph_outputs)}")
    actual = signature.unflatten(outputs)
    names = [info.name for info in signature.outputs]
    if sample.select is not None:
        eager, actual = sample.select(eager, inputs), sample.select(actual, inputs)
        names = [f"selected_{index}" for index in range(len(pytree.tree_leaves(eager)))]
    elif pytree.tree_structure(eager) != signature.output_spec:
        return Parity(
            inputs=label, ok=False, message=f"eager returns {pytree.tree_structure(eager)}, the export {signature.output_spec}"[:500]
        )
    compared = parity.compare(names, pytree.tree_leaves(eager), pytree.tree_leaves(actual))
    return Parity(inputs=label, ok=compared.ok, max_abs_diff=compared.max_abs_diff, message=compared.message)


def _last_words(errors: str) -> str:
    lines = [line.strip() for line in errors.splitlines() if line.strip() and not line.startswith("Failed to load")]
    return (lines[-1] if lines else "it said nothing")[:500]
