"""One chain in a child process: started, listened to, and ended, whatever becomes of it. Imports no Dagster.

A child that crashes, hangs or falls silent takes nothing with it but itself: what it said until then, how it ended and
the stage it was in become the report of its partition.
"""

import contextlib
import json
import os
import selectors
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from exporters.backends import STAGES, family_of
from exporters.errors import StoreError
from exporters.home import store_of
from exporters.report import ErrorReport, Parity, Report, StageReport, Started
from exporters.reports import remember
from exporters.store import Store

COMMAND = (sys.executable, "-m", "exporters.chain")

# what a child is in once its last stage has ended
VERIFICATION = "verification"

_POLL_SECONDS = 0.25
_GRACE_SECONDS = 5.0
_TAIL_LINES = 30
_TAIL_SHOWN = 6

_HINTS = {
    "SIGKILL": "the kernel kills what takes all memory: look into `dmesg`, then free memory or give the machine more",
    "SIGSEGV": "native code crashed: `zooport export` with the same model and backend shows it alone, `PYTHONFAULTHANDLER=1` shows where",
    "Timeout": "raise `timeout_seconds` of the `runner` resource if this model really needs longer",
}


Event = Started | StageReport | Parity | Report


class ChildTimeout(Exception):
    """The child is still alive at its deadline."""


@dataclass
class _Progress:
    """What a child has said so far, enough to write its report for it if it can't."""

    model: str
    backend: str
    stages: list[StageReport] = field(default_factory=list)
    parity: list[Parity] = field(default_factory=list)
    report: Report | None = None
    stage: str = ""

    def __post_init__(self) -> None:
        self._order = (*STAGES[family_of(self.backend)], VERIFICATION)
        self.stage = self._order[0]

    def add(self, event: Event) -> None:
        if isinstance(event, Started):
            self.stage = event.stage
        elif isinstance(event, StageReport):
            self.stages.append(event)
            if event.stage in self._order[:-1]:
                self.stage = self._order[self._order.index(event.stage) + 1]
        elif isinstance(event, Parity):
            self.parity.append(event)
        else:
            self.report = event

    def obituary(self, kind: str, how: str, tail: Sequence[str]) -> Report:
        """The report of a child that wrote none: all its stages made is `exported`, anything less is `failed`."""
        made_all = self.stage == VERIFICATION
        error = ErrorReport(
            stage=self.stage,
            type=kind,
            message=f"the export's process {how}" + _last_words(tail),
            next=_HINTS.get(kind, f"`zooport export {self.model} --backend {self.backend}` runs it alone"),
        )
        return Report(
            model=self.model,
            backend=self.backend,
            outcome="exported" if made_all else "failed",
            stages=self.stages,
            parity=self.parity,
            artifact=self.stages[-1].path if made_all else None,
            error=error,
        )


def run_chain(
    request: Mapping[str, Any], *, command: Sequence[str] = COMMAND, timeout_seconds: float = 1800.0, forward_stderr: bool = False
) -> Iterator[Event]:
    """Run one chain in a process group of its own and yield what it reports as it reports it.

    The last event is always a `Report`: the child's own, or one that says how it ended without one. Closing the iterator,
    or an exception in its consumer's thread (an interrupt), kills the child and every process it started.

    Args:
        request: what `exporters.chain` reads from its standard input; `model`, `backend` and `home` at least.
        command: the child's argument vector; it speaks the protocol of `python -m exporters.chain`.
        timeout_seconds: how long the child may live.
        forward_stderr: also copy what it writes to standard error, or beside the protocol, to ours.
    """
    progress = _Progress(model=request["model"], backend=request["backend"])
    tail: deque[str] = deque(maxlen=_TAIL_LINES)
    deadline = time.monotonic() + timeout_seconds
    process = subprocess.Popen(list(command), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True)
    try:
        _send(process, request)
        for is_protocol, line in _lines(process, deadline):
            event = _parse(line) if is_protocol else None
            if event is None:
                tail.append(line)
                if forward_stderr:
                    print(line, file=sys.stderr, flush=True)
                continue
            progress.add(event)
            if isinstance(event, Report):
                break
            yield event
        report = progress.report or _wait_and_tell(process, progress, deadline, tail)
    except ChildTimeout:
        report = progress.obituary("Timeout", f"was stopped after {timeout_seconds:g} s", tail)
    finally:
        _end(process, graceful=progress.report is not None)
    if progress.report is None:
        report.at, report.run = time.time(), request.get("run") or ""
        _leave(request, report)
    yield report


def _leave(request: Mapping[str, Any], report: Report) -> None:
    """Leave a child's obituary where its own report would be. A store that can't be written ends no run: the report itself says so."""
    place = Path(request["home"])
    try:
        remember(Store(request.get("store") or store_of(place), cache=place / "cache" / "artifacts"), report)
    except StoreError as error:
        assert report.error is not None
        report.error.message += f"\nand the store doesn't have this report: {error}"


def _last_words(tail: Sequence[str]) -> str:
    """The end of what a child wrote, its most telling line first: an error that it named, or simply the last."""
    lines = [line for line in tail if line.strip()]
    if not lines:
        return ""
    telling = next((line for line in reversed(lines) if line.startswith("error: ")), lines[-1])
    return "\n".join([f": {telling.strip()}", *lines[-_TAIL_SHOWN:]])


def _send(process: "subprocess.Popen[bytes]", request: Mapping[str, Any]) -> None:
    assert process.stdin is not None
    with contextlib.suppress(BrokenPipeError):  # it died before it read anything: how it ended is told from its exit status
        process.stdin.write(json.dumps(dict(request)).encode())
        process.stdin.close()


def _lines(process: "subprocess.Popen[bytes]", deadline: float) -> Iterator[tuple[bool, str]]:
    """Lines of both outputs as they come, each with whether it came from standard output."""
    assert process.stdout is not None
    assert process.stderr is not None
    rests = {process.stdout: b"", process.stderr: b""}
    with selectors.DefaultSelector() as selector:
        for stream in rests:
            selector.register(stream, selectors.EVENT_READ)
        while selector.get_map():
            remaining = deadline - time.monotonic()
            if remaining <= 0:
                raise ChildTimeout
            exited = process.poll() is not None
            ready = selector.select(min(_POLL_SECONDS, remaining))
            for key, _ in ready:
                stream = process.stdout if key.fileobj is process.stdout else process.stderr
                chunk = os.read(stream.fileno(), 1 << 16)
                *lines, rests[stream] = (rests[stream] + chunk).split(b"\n")
                if not chunk:
                    selector.unregister(stream)
                    lines = [rests[stream]] if rests[stream] else []
                for line in lines:
                    yield stream is process.stdout, line.decode(errors="replace").rstrip("\r")
            if exited and not ready:
                return  # a grandchild holds the pipes open; the child itself has nothing more to say


def _parse(line: str) -> Event | None:
    """The event in a line of the protocol, or None for what a library printed in between."""
    if not line.startswith("{"):
        return None
    try:
        message = json.loads(line)
        match message.get("event"):
            case "start":
                return Started(stage=message["stage"])
            case "stage":
                return StageReport.model_validate(message["stage"])
            case "parity":
                return Parity.model_validate(message["parity"])
            case "report":
                return Report.model_validate(message["report"])
    except (ValueError, KeyError, AttributeError):
        return None
    return None


def _wait_and_tell(process: "subprocess.Popen[bytes]", progress: _Progress, deadline: float, tail: Sequence[str]) -> Report:
    try:
        code = process.wait(timeout=max(0.0, deadline - time.monotonic()))
    except subprocess.TimeoutExpired:
        raise ChildTimeout from None
    if code < 0:
        name = signal.Signals(-code).name
        return progress.obituary(name, f"was ended by {name}", tail)
    return progress.obituary("NoReport", f"exited with status {code} and without a report", tail)


def _end(process: "subprocess.Popen[bytes]", *, graceful: bool) -> None:
    """Leave no process of the child's group behind, and no pipe open."""
    if graceful:
        with contextlib.suppress(subprocess.TimeoutExpired):  # it has said everything; what keeps it is not worth waiting for
            process.wait(timeout=_GRACE_SECONDS)
    with contextlib.suppress(ProcessLookupError):  # the whole group may have ended by itself
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    for stream in (process.stdin, process.stdout, process.stderr):
        if stream is not None:
            with contextlib.suppress(BrokenPipeError):  # the rest of a request that nobody will read
                stream.close()
