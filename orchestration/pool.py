"""Many chains in forked children, some at once: whatever becomes of one, its outcome is told and the next begins. Imports no Dagster.

A zygote forks a child for each chain. As long as everything is cached it has imported nothing; the first chain that needs a model makes
it import torch, transformers and the backend, once for all that follow. A second zygote, which knows the runtimes only, forks the
processes in which artifacts are run.
"""

import contextlib
import os
import selectors
import sys
import time
from collections import deque
from collections.abc import Generator, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from exporters.backends import family_of
from exporters.code_index import code_index
from exporters.errors import StoreError
from exporters.home import store_of
from exporters.keys import environment
from exporters.report import Report, StageReport, Started
from exporters.reports import remember
from exporters.store import Store
from exporters.zygote import Call, Zygote, ZygoteLost
from orchestration.outcomes import Event, NeedsModel, Progress, ending, parse

CHAIN = "exporters.chain:serve"
WARM_UP = "exporters.warm:warm_up"
READY = "exporters.warm:ready"

_GIB = 1 << 30
_MEMORY_PER_WORKER = 8 * _GIB  # of address space for data: the largest of the sample (docs/sweep.md) takes 2 GiB resident
_TAIL_LINES = 30
_GRACE_SECONDS = 5.0
_LOST_IN_A_ROW = 3

Request = Mapping[str, Any]


@dataclass(frozen=True)
class Limits:
    """What a pool may use.

    Attributes:
        workers: chains at once.
        timeout_seconds: wall time of one chain, its verification included.
        memory: bytes of data that one chain's process, or one that runs its artifact, may allocate.
        retries: how often a chain is tried again whose process was ended by a signal or without a word; never one that failed or timed out.
    """

    workers: int
    timeout_seconds: float = 1800.0
    memory: int = _MEMORY_PER_WORKER
    retries: int = 1


def default_limits(workers: int | None = None) -> Limits:
    """One worker a core, fewer where memory is short; together they get at most four fifths of the machine's memory."""
    total = psutil.virtual_memory().total
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    count = workers or max(1, min(cores, total // (4 * _GIB)))
    return Limits(count, memory=min(_MEMORY_PER_WORKER, total * 4 // 5 // count))


@dataclass(eq=False)
class _Task:
    """One chain, from its first try to its report."""

    key: int
    request: Request
    attempts: int = 0
    told: set[str] = field(default_factory=set)  # stages that the caller knows of from an earlier try


class _Try:
    """One process of a chain, and what it has said so far."""

    def __init__(self, task: _Task, call: Call, stdout: int, stderr: int, seconds: float) -> None:
        self.task, self.call, self.stdout, self.stderr = task, call, stdout, stderr
        self.deadline = time.monotonic() + seconds
        self.progress = Progress(model=task.request["model"], backend=task.request["backend"])
        self.tail: deque[str] = deque(maxlen=_TAIL_LINES)
        self.needs_model = False
        self.lost = ""
        self.reported = False
        self._rests = {stdout: b"", stderr: b""}

    def lines(self, stream: int) -> Iterator[str | None]:
        """The lines that one output has now; None as the last where the output is closed."""
        while True:
            try:
                chunk = os.read(stream, 1 << 16)
            except BlockingIOError:
                return
            *lines, rest = (self._rests[stream] + chunk).split(b"\n")
            if not chunk and rest:
                lines, rest = [rest], b""
            self._rests[stream] = rest
            yield from (line.decode(errors="replace").rstrip("\r") for line in lines)
            if not chunk:
                yield None
                return

    def close(self) -> None:
        """Kill what is left of it."""
        self.call.close()
        os.close(self.stdout)
        os.close(self.stderr)


class Pool:
    """Runs chains within `limits`. Its zygotes are started when they are first needed, and end with `close`.

    Args:
        chain: `module:name` of what a child does: a function of a request that writes events as `exporters.chain.serve` does.
        forward_stderr: also copy what the children write beside the protocol to our standard error.
    """

    def __init__(self, limits: Limits, *, chain: str = CHAIN, forward_stderr: bool = False) -> None:
        self._limits = limits
        self._chain = chain
        self._forward = forward_stderr
        self._exporting: Zygote | None = None
        self._runtimes: Zygote | None = None
        self._warm: set[str] = set()
        self._lost_in_a_row = 0
        self._selector = selectors.DefaultSelector()
        self._tries: set[_Try] = set()

    def __enter__(self) -> "Pool":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the zygotes, and with them whatever still runs."""
        for zygote in (self._exporting, self._runtimes):
            if zygote is not None:
                zygote.close()
        self._exporting = self._runtimes = None
        self._warm.clear()

    @property
    def zygotes(self) -> list[int]:
        """Process ids of the zygotes that are there."""
        return [zygote.pid for zygote in (self._exporting, self._runtimes) if zygote is not None]

    def run(self, requests: Iterable[Request]) -> Generator[tuple[int, Event], None, None]:
        """Run chains, and yield each one's events as they come: (its index in `requests`, event). A chain's last event is its `Report`.

        Closing the iterator, or an exception in it (an interrupt), kills every child and all that they started.

        Args:
            requests: fields of `exporters.chain.Request`; `model`, `backend` and `home` at least.

        Raises:
            RuntimeError: zygotes end as fast as they are started.
        """
        waiting = deque(_Task(key, request) for key, request in enumerate(requests))
        try:
            while waiting or self._tries:
                while waiting and len(self._tries) < self._limits.workers:
                    self._start(waiting.popleft())
                for a_try in self._ready():
                    yield from self._listen(a_try)
                    if not self._over(a_try):
                        continue
                    again, report = self._end(a_try)
                    if again is not None:
                        waiting.appendleft(again)
                    else:
                        yield a_try.task.key, report
        finally:
            for a_try in list(self._tries):
                self._drop(a_try)

    # ── One try ───────────────────────────────────────────────────────────────

    def _start(self, task: _Task) -> None:
        task.attempts += 1
        readers, writers = zip(*(os.pipe() for _ in range(2)), strict=True)
        try:
            call = self._call(task, *writers)
        except BaseException:
            for reader in readers:
                os.close(reader)
            raise
        finally:
            for writer in writers:
                os.close(writer)
        stdout, stderr = readers
        a_try = _Try(task, call, stdout, stderr, self._limits.timeout_seconds)
        self._tries.add(a_try)
        for source in (*readers, call):
            self._selector.register(source, selectors.EVENT_READ, a_try)
        for reader in readers:
            os.set_blocking(reader, False)

    def _call(self, task: _Task, stdout: int, stderr: int) -> Call:
        request = dict(task.request)
        warm = (READY, request.get("store") or store_of(Path(request["home"])))
        if (family := family_of(request["backend"])) in self._warm:
            request["runtimes"] = self._zygote("_runtimes").address
            warm = (WARM_UP, family)
        else:
            request["cached_only"] = True
        where: dict[str, Any] = {"stdout": stdout, "stderr": stderr, "memory": self._limits.memory, "warm": warm}
        try:
            return Call(self._zygote("_exporting").address, self._chain, request, **where)
        except ZygoteLost:  # it ended since it was last looked at
            return Call(self._zygote("_exporting", anew=True).address, self._chain, request, **where)

    def _zygote(self, name: str, *, anew: bool = False) -> Zygote:
        found: Zygote | None = getattr(self, name)
        if found is not None and (anew or not found.alive):
            found.close()
            found = None
            self._lost_in_a_row += 1
            if self._lost_in_a_row > _LOST_IN_A_ROW:
                raise RuntimeError("the processes that fork exports are ended as fast as they are started; `dmesg` may tell by whom")
        if found is None:
            found = Zygote()
            setattr(self, name, found)
        return found

    def _ready(self) -> list[_Try]:
        """Wait until something was said, or somebody's time is up."""
        earliest = min(a_try.deadline for a_try in self._tries)
        ready = self._selector.select(max(0.0, earliest - time.monotonic()))
        late = [a_try for a_try in self._tries if a_try.deadline <= time.monotonic()]
        for key, _ in ready:
            if isinstance(key.fileobj, Call):
                try:
                    key.fileobj.receive()
                except ZygoteLost as error:
                    key.data.lost = str(error)
        return list(dict.fromkeys([*(key.data for key, _ in ready), *late]))

    def _listen(self, a_try: _Try) -> Iterator[tuple[int, Event]]:
        """What it has said since, but for its report, and for stages that were told in an earlier try."""
        for stream in (a_try.stderr, a_try.stdout):
            for line in a_try.lines(stream):
                if line is None:
                    self._forget(stream)
                    continue
                event = parse(line) if stream == a_try.stdout else None
                if event is None:
                    self._beside(a_try, line)
                elif isinstance(event, NeedsModel):
                    a_try.needs_model = True
                else:
                    a_try.progress.add(event)
                    if not isinstance(event, Report) and _is_news(event, a_try.task.told):
                        yield a_try.task.key, event

    def _beside(self, a_try: _Try, line: str) -> None:
        a_try.tail.append(line)
        if self._forward:
            print(line, file=sys.stderr, flush=True)

    def _over(self, a_try: _Try) -> bool:
        """Whether it has ended, or has to be. One that has said everything is given some seconds more to end by itself."""
        if a_try.call.ended or a_try.lost:
            return True
        if a_try.progress.report is not None and not a_try.reported:
            a_try.reported = True
            a_try.deadline = time.monotonic() + _GRACE_SECONDS
        return a_try.deadline <= time.monotonic()

    def _end(self, a_try: _Try) -> tuple[_Task | None, Report]:
        """Its report; or the task, if it is to be tried again, and what the report would be."""
        self._drop(a_try)
        task, progress, ended = a_try.task, a_try.progress, a_try.call.ended
        self._lost_in_a_row *= bool(a_try.lost)
        if progress.report is not None:
            return None, progress.report
        if a_try.needs_model:
            self._warm.add(family_of(task.request["backend"]))
            task.attempts -= 1
            return task, progress.obituary("NeedsModel", "needs the model", ())
        if a_try.lost:
            kind, how = "ZygoteLost", a_try.lost
        elif ended is None:
            kind, how = "Timeout", f"was stopped after {self._limits.timeout_seconds:g} s"
        else:
            kind, how = ending(ended.how)
        report = progress.obituary(kind, how, list(a_try.tail))
        said_why = report.error is not None and report.error.type != kind
        if kind != "Timeout" and not said_why and task.attempts <= self._limits.retries:
            return task, report
        report.at, report.run = time.time(), task.request.get("run") or ""
        report.environment = environment(report.backend, code_index(Path(task.request["home"]) / "cache"))
        _leave(task.request, report)
        return None, report

    def _drop(self, a_try: _Try) -> None:
        self._tries.discard(a_try)
        for source in (a_try.stdout, a_try.stderr, a_try.call):
            self._forget(source)
        a_try.close()

    def _forget(self, source: int | Call) -> None:
        with contextlib.suppress(KeyError):  # an output that was closed before its process ended
            self._selector.unregister(source)


def _is_news(event: Event, told: set[str]) -> bool:
    """Whether an event of a chain that was begun anew says something that its first try hasn't said."""
    if isinstance(event, Started):
        return event.stage not in told
    if isinstance(event, StageReport):
        if event.stage in told:
            return False
        told.add(event.stage)
    return True


def _leave(request: Request, report: Report) -> None:
    """Leave the report of a chain that left none where its own would be.

    A store that can't be written ends no run: the report itself says so.
    """
    place = Path(request["home"])
    try:
        remember(Store(request.get("store") or store_of(place), cache=place / "cache" / "artifacts"), report)
    except StoreError as error:
        assert report.error is not None
        report.error.message += f"\nand the store doesn't have this report: {error}"
