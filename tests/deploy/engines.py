"""Throwaway PostgreSQL and Redis servers on loopback, from what the machine has installed; each is ended by its own pid."""

import contextlib
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

_START_SECONDS = 30.0
_USER = "postgres"


def program(name: str) -> str | None:
    """Where a server's program lies; Debian keeps those of PostgreSQL off the path."""
    versions = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"), key=lambda path: int(path.parts[-3]))
    return shutil.which(name) or (str(versions[-1]) if versions else None)


def missing() -> list[str]:
    """What this machine lacks of the servers, empty if they can be started."""
    lacks = [name for name in ("initdb", "postgres", "pg_isready", "redis-server") if program(name) is None]
    if os.geteuid() == 0 and not _has_user():
        lacks.append(f"a user {_USER}")
    return lacks


def _has_user() -> bool:
    try:
        pwd.getpwnam(_USER)
    except KeyError:
        return False
    return True


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextlib.contextmanager
def postgres() -> Iterator[str]:
    """URL of an empty database of a server of its own, which refuses to run as root."""
    user = _USER if os.geteuid() == 0 else None
    folder = Path(tempfile.mkdtemp(prefix="zooport_pg_", dir="/tmp"))
    if user:
        shutil.chown(folder, user, pwd.getpwnam(user).pw_gid)
    initdb, server = program("initdb"), program("postgres")
    assert initdb is not None
    assert server is not None
    try:
        command = [initdb, "-D", str(folder / "data"), "-U", "zooport", "-A", "trust", "--no-sync", "-E", "UTF8", "--locale=C"]
        subprocess.run(command, user=user, cwd=folder, check=True, capture_output=True, timeout=120)
        port = free_port()
        # it holds nothing that anybody needs after a power cut
        options = ["-p", str(port), "-k", str(folder), "-h", "127.0.0.1", "-F", "-c", "full_page_writes=off"]
        with _server([server, "-D", str(folder / "data"), *options], port, folder, user=user, stop=signal.SIGINT):
            _await_database(port)
            yield f"postgresql+psycopg2://zooport@127.0.0.1:{port}/postgres"
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _await_database(port: int) -> None:
    """It listens before it takes anybody in."""
    ready = program("pg_isready")
    assert ready is not None
    deadline = time.monotonic() + _START_SECONDS
    while subprocess.run([ready, "-h", "127.0.0.1", "-p", str(port)], capture_output=True, check=False).returncode:
        if time.monotonic() > deadline:
            raise RuntimeError("PostgreSQL takes nobody in")
        time.sleep(0.05)


@contextlib.contextmanager
def redis() -> Iterator[str]:
    """URL of an empty Redis of its own, which writes nothing to disk."""
    folder = Path(tempfile.mkdtemp(prefix="zooport_redis_", dir="/tmp"))
    server = program("redis-server")
    assert server is not None
    port = free_port()
    try:
        command = [server, "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--dir", str(folder)]
        with _server(command, port, folder, stop=signal.SIGTERM):
            yield f"redis://127.0.0.1:{port}/0"
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def _server(command: list[str], port: int, folder: Path, *, stop: signal.Signals, user: str | None = None) -> Iterator[None]:
    log = folder / "log"
    with log.open("wb") as output:
        process = subprocess.Popen(command, user=user, cwd=folder, stdout=output, stderr=subprocess.STDOUT, start_new_session=True)
    try:
        _await(process, port, log)
        yield
    finally:
        process.send_signal(stop)
        try:
            process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _await(process: "subprocess.Popen[bytes]", port: int, log: Path) -> None:
    deadline = time.monotonic() + _START_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
            return
        time.sleep(0.05)
    raise RuntimeError(f"{process.args!r} does not listen:\n{log.read_text()}")
