"""One call in a forked child, with limits: whatever becomes of it, the parent learns how it ended and goes on."""

import json
import os
import select
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from exporters.processes import become_child, how_it_ended, kill_group


@dataclass(frozen=True)
class Ended:
    """How a child ended.

    Attributes:
        lines: the JSON values that it said, in order.
        how: empty if it returned; otherwise `timeout`, a signal's name, or `exit status N`.
        seconds, cpu_seconds: of the child and of the processes that it waited for.
        tail: the end of what it wrote to standard error.
    """

    lines: list[Any]
    how: str
    seconds: float
    cpu_seconds: float
    peak_rss_mb: int
    tail: str


def run_forked(work: Callable[[Callable[[Any], None]], None], *, seconds: float, memory: int) -> Ended:
    """Call `work(say)` in a forked child; `say` sends a JSON value to the parent at once.

    Args:
        seconds: wall time until the child and everything it started is killed.
        memory: limit of the child's data segment in bytes; beyond it an allocation raises MemoryError.
    """
    reader, writer = os.pipe()
    errors_reader, errors_writer = os.pipe()
    began = time.monotonic()
    child = os.fork()
    if child == 0:
        os.close(reader)
        os.close(errors_reader)
        _be_the_child(work, writer, errors_writer, memory)
    os.close(writer)
    os.close(errors_writer)
    try:
        text, errors, late = _listen(reader, errors_reader, began + seconds)
    except BaseException:
        kill_group(child)
        os.waitpid(child, 0)
        raise
    finally:
        os.close(reader)
        os.close(errors_reader)
    if late:
        kill_group(child)
    _, status, usage = os.wait4(child, 0)
    how = "timeout" if late else how_it_ended(os.waitstatus_to_exitcode(status))
    return Ended(
        lines=[json.loads(line) for line in text.splitlines() if line.endswith(b"}")],
        how=how,
        seconds=round(time.monotonic() - began, 3),
        cpu_seconds=round(usage.ru_utime + usage.ru_stime, 3),
        peak_rss_mb=usage.ru_maxrss // 1024,
        tail=errors[-2000:].decode(errors="replace"),
    )


def _be_the_child(work: Callable[[Callable[[Any], None]], None], writer: int, errors: int, memory: int) -> None:
    status = 1
    try:
        become_child(os.open(os.devnull, os.O_WRONLY), errors, memory)
        work(lambda value: _write(writer, json.dumps(value).encode() + b"\n"))
        status = 0
    # the child's last act: whatever it was goes to the parent, which has the only use for it
    except BaseException as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)
    finally:
        os._exit(status)


def _write(descriptor: int, data: bytes) -> None:
    while data:
        data = data[os.write(descriptor, data) :]


def _listen(reader: int, errors_reader: int, end: float) -> tuple[bytes, bytes, bool]:
    """All that the child says and writes to standard error, and whether it was still alive when the time was up."""
    text, errors = b"", b""
    open_pipes = {reader, errors_reader}
    while reader in open_pipes:
        left = end - time.monotonic()
        if left <= 0:
            return text, errors, True
        ready, _, _ = select.select(list(open_pipes), [], [], left)
        for pipe in ready:
            data = os.read(pipe, 1 << 16)
            if not data:
                open_pipes.discard(pipe)
            elif pipe == reader:
                text += data
            else:
                errors = (errors + data)[-4000:]
    return text, errors, False
