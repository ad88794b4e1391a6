"""Ctrl-C that isn't lost.

Python raises an interrupt wherever it happens to be. What is raised in a callback of a weak reference, and SQLAlchemy makes many of those
at every event that Dagster stores, is printed and forgotten. The interpreter also writes each signal to a descriptor: that stays.
"""

import contextlib
import signal
import socket
import threading
from collections.abc import Iterator


class Interrupts:
    """Remembers whether this process was interrupted."""

    def __init__(self, source: socket.socket) -> None:
        self._source = source
        self._seen = False

    @property
    def seen(self) -> bool:
        with contextlib.suppress(BlockingIOError):
            self._seen |= signal.SIGINT in self._source.recv(4096)
        return self._seen


_watching: Interrupts | None = None


@contextlib.contextmanager
def interrupts() -> Iterator[Interrupts]:
    """Watch for interrupts until the end. Who begins while another watches shares what that sees: a generator that nobody has closed may
    outlive its caller. Another thread than the main one sees none."""
    global _watching
    if _watching is not None:
        yield _watching
        return
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.setblocking(False)
        theirs.setblocking(False)
        watcher = Interrupts(ours)
        if threading.current_thread() is not threading.main_thread():  # signals are the main thread's
            yield watcher
            return
        before = signal.set_wakeup_fd(theirs.fileno(), warn_on_full_buffer=False)
        _watching = watcher
        try:
            yield watcher
        finally:
            _watching = None
            signal.set_wakeup_fd(before)
