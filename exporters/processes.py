"""Child processes: how one ends its parent's ways, how it ended, and how it is ended with all that it started."""

import contextlib
import os
import resource
import signal


def become_child(stdout: int, stderr: int, memory: int) -> None:
    """What a forked child does first: a group of its own, its own outputs, and a limit.

    Args:
        stdout, stderr: descriptors that become its standard output and error.
        memory: bytes of data beyond which an allocation fails; 0 for no limit.
    """
    os.setsid()  # one signal reaches it and all that it starts
    for number in (signal.SIGINT, signal.SIGCHLD):
        signal.signal(number, signal.SIG_DFL)
    os.dup2(stdout, 1)
    os.dup2(stderr, 2)
    if memory:
        resource.setrlimit(resource.RLIMIT_DATA, (memory, memory))


def kill_group(pid: int) -> None:
    """Kill a child and all that it started and that is in its group."""
    for kill in (os.killpg, os.kill):  # by itself too: it may not have made its group yet
        with contextlib.suppress(ProcessLookupError, PermissionError):
            kill(pid, signal.SIGKILL)


def how_it_ended(code: int) -> str:
    """Of an exit code as `subprocess` and `os.waitstatus_to_exitcode` have it: empty for 0, a signal's name, or `exit status N`."""
    if code < 0:
        return signal.Signals(-code).name
    return f"exit status {code}" if code else ""
