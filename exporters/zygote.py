"""A process that imports once what many calls need, and forks a child for each.

A call is a function of one JSON value. Whoever asks for it connects to the zygote's socket and hands over where the child's standard
output and error shall go; the connection is the call's life: the zygote tells through it how the child ended, and kills the child and
everything that it started when the other side closes it, dies or is killed. With the process that made it goes the zygote.

Importing torch, transformers and a backend takes five to seven CPU seconds, a forked child that has them a hundredth.
"""

import contextlib
import ctypes
import gc
import importlib
import json
import os
import selectors
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from exporters.processes import become_child, how_it_ended, kill_group

_PR_SET_PDEATHSIG = 1  # prctl(2)
_ANSWER_LIMIT = 1 << 16

# A thread doesn't live on in a forked child, and several children share the cores anyway. Who sets these knows better.
_ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}


class ZygoteLost(Exception):
    """The zygote ended before it told how a child of its ended."""


@dataclass(frozen=True)
class Ended:
    """How a child ended.

    Attributes:
        how: empty if its function returned; otherwise a signal's name or `exit status N`.
        cpu_seconds: of the child and of the processes that it waited for.
        peak_rss_mb: of the child, in MiB.
    """

    how: str
    cpu_seconds: float
    peak_rss_mb: int


# ── The side that asks ────────────────────────────────────────────────────────


class Zygote:
    """A zygote of this process: started at once, ended by `close`, which ends all its children too."""

    def __init__(self) -> None:
        self._folder = tempfile.mkdtemp(prefix="zooport-zygote-")  # for its owner only, so that nobody else can connect
        self.address = os.path.join(self._folder, "socket")
        ours, theirs = os.pipe()
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(self.address)
            listener.listen(128)
            self._process = subprocess.Popen(
                [sys.executable, "-m", "exporters.zygote", str(listener.fileno()), str(ours)],
                pass_fds=[listener.fileno(), ours],
                stdin=subprocess.DEVNULL,
                env={**_ONE_THREAD, **os.environ},
                start_new_session=True,  # Ctrl-C is for the process that asked: it decides what becomes of the children
            )
        os.close(ours)
        self._lifeline = theirs

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def close(self) -> None:
        with contextlib.suppress(OSError):
            os.close(self._lifeline)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout=5)
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        shutil.rmtree(self._folder, ignore_errors=True)


class Call:
    """A call in a child of the zygote at `address`.

    Args:
        function: `module:name` of a function of one JSON value.
        warm: `(module:name, argument)` of a function that the zygote itself calls before it forks, each once.
        stdout, stderr: descriptors for the child; the caller keeps its own.
        memory: limit of the child's data segment in bytes, beyond which an allocation fails; 0 for none.

    Raises:
        ZygoteLost: there is no zygote at this address.
    """

    def __init__(
        self,
        address: str,
        function: str,
        argument: Any,
        *,
        stdout: int,
        stderr: int,
        warm: tuple[str, str] | None = None,
        memory: int = 0,
    ) -> None:
        self._connection = socket.socket(socket.AF_UNIX)
        self._received = b""
        self.pid: int | None = None
        self.ended: Ended | None = None
        message = {"function": function, "argument": argument, "warm": warm, "memory": memory}
        text = json.dumps(message).encode() + b"\n"
        try:
            self._connection.connect(address)
            sent = socket.send_fds(self._connection, [text], [stdout, stderr])
            self._connection.sendall(text[sent:])
        except OSError as error:
            self._connection.close()
            raise ZygoteLost(f"no zygote at {address}: {error.strerror}") from error

    def fileno(self) -> int:
        """Readable when there is something to `receive`."""
        return self._connection.fileno()

    def receive(self) -> bool:
        """Take in what the zygote says, and wait for it if it says nothing yet; whether the child has ended.

        Raises:
            ZygoteLost: it will never say how the child ended.
        """
        try:
            data = self._connection.recv(_ANSWER_LIMIT)
        except ConnectionError:
            data = b""
        if not data:
            raise ZygoteLost("the process that forks was ended")
        *lines, self._received = (self._received + data).split(b"\n")
        for line in lines:
            answer = json.loads(line)
            if "pid" in answer:
                self.pid = answer["pid"]
            else:
                self.ended = Ended(**answer)
        return self.ended is not None

    def close(self) -> None:
        """Kill the child, if it is alive, and what it started."""
        self._connection.close()


# ── The zygote ────────────────────────────────────────────────────────────────


@dataclass
class _Child:
    connection: socket.socket
    pid: int


class _Server:
    def __init__(self, listener: socket.socket, lifeline: int) -> None:
        self._listener = listener
        self._lifeline = lifeline
        self._children: dict[int, _Child] = {}
        self._warmed: set[tuple[str, str]] = set()
        self._woken, self._waker = socket.socketpair()
        self._selector = selectors.DefaultSelector()

    def serve(self) -> None:
        self._waker.setblocking(False)
        signal.set_wakeup_fd(self._waker.fileno())
        signal.signal(signal.SIGCHLD, lambda *_: None)
        for source in (self._listener, self._woken, self._lifeline):
            self._selector.register(source, selectors.EVENT_READ)
        try:
            while True:
                for key, _ in self._selector.select():
                    if key.fileobj == self._lifeline:
                        return
                    self._handle(key.fileobj, key.data)
        finally:
            for child in self._children.values():
                kill_group(child.pid)

    def _handle(self, source: Any, child: _Child | None) -> None:
        if source is self._listener:
            connection, _ = self._listener.accept()
            self._answer(connection)
        elif source is self._woken:
            self._woken.recv(4096)
            self._reap()
        elif child is not None and self._children.get(child.pid) is child:
            self._abandon(child)

    def _answer(self, connection: socket.socket) -> None:
        connection.settimeout(30)
        descriptors: list[int] = []
        try:
            text, descriptors, _, _ = socket.recv_fds(connection, 1 << 20, 2)
            while text and not text.endswith(b"\n"):
                text += connection.recv(1 << 20)
            request = json.loads(text)
            stdout, stderr = descriptors
            self._warm(request["warm"], stderr)
            child = _Child(connection, self._fork(request, stdout, stderr, connection))
        except (OSError, ValueError):  # gone before it had said what it wants
            connection.close()
            return
        finally:
            for descriptor in descriptors:
                os.close(descriptor)
        connection.settimeout(None)
        self._children[child.pid] = child
        self._selector.register(connection, selectors.EVENT_READ, child)
        _tell(connection, pid=child.pid)

    def _warm(self, warm: Sequence[str] | None, stderr: int) -> None:
        """What it can't import, the children can't either, and say why each for its own."""
        if warm is None or (key := (warm[0], warm[1])) in self._warmed:
            return
        self._warmed.add(key)
        try:
            _function(key[0])(key[1])
        except Exception as error:  # whatever an import raises: the children meet it again where it is reported
            with contextlib.suppress(OSError):
                os.write(stderr, f"{type(error).__name__} while importing: {error}\n".encode())

    def _fork(self, request: dict[str, Any], stdout: int, stderr: int, connection: socket.socket) -> int:
        sys.stdout.flush()
        sys.stderr.flush()
        zygote = os.getpid()
        pid = os.fork()
        if pid == 0:
            signal.set_wakeup_fd(-1)
            _be_the_child(request, zygote, stdout, stderr, [*self._inherited(), connection.fileno()])
        return pid

    def _inherited(self) -> list[int]:
        """What belongs to the zygote alone: a copy that a child kept would hide from others that this end is closed."""
        connections = [child.connection.fileno() for child in self._children.values()]
        return [self._listener.fileno(), self._lifeline, self._woken.fileno(), self._waker.fileno(), *connections]

    def _reap(self) -> None:
        while self._children:
            try:
                pid, status, usage = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            child = self._children.pop(pid, None)
            kill_group(pid)  # whatever it started and left
            if child is not None:
                self._selector.unregister(child.connection)
                how = how_it_ended(os.waitstatus_to_exitcode(status))
                cpu = round(usage.ru_utime + usage.ru_stime, 4)
                _tell(child.connection, how=how, cpu_seconds=cpu, peak_rss_mb=usage.ru_maxrss // 1024)
                child.connection.close()

    def _abandon(self, child: _Child) -> None:
        """Nobody waits for this child any more."""
        self._selector.unregister(child.connection)
        child.connection.close()
        del self._children[child.pid]
        kill_group(child.pid)
        os.waitpid(child.pid, 0)


def _be_the_child(request: dict[str, Any], zygote: int, stdout: int, stderr: int, inherited: Sequence[int]) -> NoReturn:
    status = 1
    try:
        become_child(stdout, stderr, request["memory"])
        _die_with(zygote)
        for descriptor in (stdout, stderr, *inherited):
            os.close(descriptor)
        status = int(_function(request["function"])(request["argument"]) or 0)
    except SystemExit as error:
        status = error.code if isinstance(error.code, int) else 1
    # the child's last act: whatever it was, its standard error is where it is told
    except BaseException as error:
        with contextlib.suppress(OSError):
            os.write(2, f"error: {type(error).__name__}: {error}\n".encode())
    finally:
        with contextlib.suppress(OSError, ValueError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(status)


def _die_with(zygote: int) -> None:
    """On Linux a child is killed with its zygote, however that ends."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != zygote:  # it ended before that held
        os._exit(1)


def _function(name: str) -> Callable[[Any], Any]:
    module, _, attribute = name.partition(":")
    found: Callable[[Any], Any] = getattr(importlib.import_module(module), attribute)
    return found


def _tell(connection: socket.socket, **answer: Any) -> None:
    with contextlib.suppress(OSError):  # it went away; its child is killed when that is noticed
        connection.sendall(json.dumps(answer).encode() + b"\n")


def main() -> None:
    """`python -m exporters.zygote LISTENER LIFELINE`, both descriptors."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    gc.disable()  # it only imports; what it has made is never garbage
    _Server(socket.socket(fileno=int(sys.argv[1])), int(sys.argv[2])).serve()


if __name__ == "__main__":
    main()
