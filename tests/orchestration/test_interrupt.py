"""Ctrl-C during the demo: the child is ended, the run is closed, the exit status is the shell's."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import dagster as dg
import psutil

from orchestration.instance import open_instance

PROGRAM = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
from orchestration import cli, demo
from orchestration.resources import PoolRunner
hanging = PoolRunner(chain="fake_chain:hang")
demo.PoolRunner = lambda: hanging
sys.argv = ["zooport", "demo"]
cli.main()
"""


def children_of(pid: int) -> list[psutil.Process]:
    """The zygote and the chain that it has forked, once both are there."""
    found = [child for child in psutil.Process(pid).children(recursive=True) if "exporters.zygote" in child.cmdline()]
    return found if len(found) == 2 else []


def test_ctrl_c_ends_the_demo_cleanly(zooport_home: Path) -> None:
    program = subprocess.Popen([sys.executable, "-c", PROGRAM], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        deadline = time.monotonic() + 60
        while not (children := children_of(program.pid)):
            assert program.poll() is None, program.communicate()
            assert time.monotonic() < deadline
            time.sleep(0.1)
        time.sleep(1.0)
        os.kill(program.pid, signal.SIGINT)
        _, said = program.communicate(timeout=30)
    finally:
        program.kill()
    assert program.returncode == 130
    assert "Traceback" not in said
    assert not any(child.is_running() and child.status() != psutil.STATUS_ZOMBIE for child in children)
    with open_instance() as instance:
        (run,) = instance.get_runs()
        assert run.status in (dg.DagsterRunStatus.FAILURE, dg.DagsterRunStatus.CANCELED)
