"""Dagster's storage on SQLite: what is stored is there, whoever is killed, and nobody waits for the disk at each event."""

import subprocess
import sys
from pathlib import Path

from sqlalchemy import create_engine, text
from sqlalchemy.pool import NullPool

from orchestration import sqlite

STORES_AND_IS_KILLED = """
import os, signal, sys
from sqlalchemy import create_engine, text
from sqlalchemy.pool import NullPool
from orchestration import sqlite
sqlite.settle()
engine = create_engine(f"sqlite:///{sys.argv[1]}", poolclass=NullPool)
with engine.connect() as connection:
    connection.execute(text("PRAGMA journal_mode=WAL"))
    connection.execute(text("CREATE TABLE events (id INTEGER)"))
with engine.connect() as connection, connection.begin():
    connection.execute(text("INSERT INTO events VALUES (7)"))
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_connections_do_not_wait_and_the_log_is_kept_open(tmp_path: Path) -> None:
    sqlite.settle()
    sqlite.settle()
    file = tmp_path / "events.db"
    engine = create_engine(f"sqlite:///{file}", poolclass=NullPool)
    with engine.connect() as connection:
        connection.execute(text("PRAGMA journal_mode=WAL"))
        connection.execute(text("CREATE TABLE events (id INTEGER)"))
    for number in range(3):
        with engine.connect() as connection, connection.begin():
            assert connection.execute(text("PRAGMA synchronous")).scalar() == 1
            connection.execute(text(f"INSERT INTO events VALUES ({number})"))
    assert Path(f"{file}-wal").stat().st_size > 0  # the last of Dagster's connections didn't end it
    sqlite.release()
    assert not Path(f"{file}-wal").exists()


def test_what_was_stored_outlives_a_killed_process(tmp_path: Path) -> None:
    file = tmp_path / "events.db"
    assert subprocess.run([sys.executable, "-c", STORES_AND_IS_KILLED, str(file)], check=False).returncode == -9
    with create_engine(f"sqlite:///{file}").connect() as connection:
        assert connection.execute(text("SELECT id FROM events")).scalar() == 7


def test_only_so_many_databases_are_kept_open(tmp_path: Path) -> None:
    sqlite.settle()
    for number in range(20):
        with create_engine(f"sqlite:///{tmp_path}/{number}.db", poolclass=NullPool).connect() as connection:
            connection.execute(text("SELECT 1"))
    assert len(sqlite._open) == 8
