"""Dagster's local storage without a wait for the disk at every event.

Dagster opens a connection to SQLite for each event, commits and closes it. With SQLite's defaults that is three to five waits for the disk:
the commit, and the checkpoint and removal of the write-ahead log when its last connection goes. A fleet stores five to thirteen events a
partition, measured at 60 ms each on the machine this was written on, 7 ms so.

`synchronous=NORMAL` with a write-ahead log keeps a database whole whatever happens; what a power cut can take are the last events
before it, not what a killed process had stored (https://www.sqlite.org/pragma.html#pragma_synchronous).
"""

import atexit
import sqlite3
from collections import OrderedDict
from typing import Any

from sqlalchemy import event
from sqlalchemy.engine import Engine

_KEPT = 8  # databases: Dagster has one for each run beside those for all
_open: "OrderedDict[str, sqlite3.Connection]" = OrderedDict()


def settle() -> None:
    """Let this process' connections to SQLite leave the waiting to the operating system. Again is harmless."""
    if not event.contains(Engine, "connect", _connected):
        event.listen(Engine, "connect", _connected)
        atexit.register(release)


def release() -> None:
    """Let go of the databases, which writes their logs into them."""
    while _open:
        _open.popitem()[1].close()


def _connected(connection: Any, record: object) -> None:
    del record
    if not isinstance(connection, sqlite3.Connection):
        return
    connection.execute("PRAGMA synchronous=NORMAL")
    files = [file for _, name, file in connection.execute("PRAGMA database_list") if name == "main" and file]
    for file in files:
        _keep(file)


def _keep(file: str) -> None:
    """Hold one connection of our own, so that Dagster's are never the last and their end checkpoints nothing."""
    try:
        if file not in _open:
            _open[file] = sqlite3.connect(file, check_same_thread=False)
        # each time: Dagster turns the write-ahead log on after it has connected, and only a read notices
        _open[file].execute("PRAGMA schema_version").fetchall()
    except sqlite3.Error:
        return  # only slower
    _open.move_to_end(file)
    while len(_open) > _KEPT:
        _open.popitem(last=False)[1].close()
