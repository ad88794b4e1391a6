"""A zygote imports once and forks for each call; whatever ends a child, or whoever asked for it, is told and leaves nothing behind."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import psutil
import pytest

from exporters.zygote import Call, Ended, Zygote, ZygoteLost


@pytest.fixture
def zygote() -> Iterator[Zygote]:
    made = Zygote()
    yield made
    made.close()


class Asked:
    """A call with both outputs in one pipe."""

    def __init__(self, zygote: Zygote, function: str, argument: Any = None, **options: Any) -> None:
        self._reader, writer = os.pipe()
        self.call = Call(zygote.address, function, argument, stdout=writer, stderr=writer, **options)
        os.close(writer)

    def end(self) -> tuple[Ended, str]:
        said = b""
        while chunk := os.read(self._reader, 4096):
            said += chunk
        os.close(self._reader)
        while not self.call.receive():
            pass
        assert self.call.ended is not None
        return self.call.ended, said.decode()

    def pid(self) -> int:
        while self.call.pid is None:
            self.call.receive()
        return self.call.pid


def gone(pid: int, seconds: float = 5.0) -> bool:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE:
            return True
        time.sleep(0.02)
    return False


def test_a_child_runs_the_function_and_is_told_of_when_it_ends(zygote: Zygote) -> None:
    ended, said = Asked(zygote, "builtins:print", "hello").end()
    assert (ended.how, said) == ("", "hello\n")
    assert 0 <= ended.cpu_seconds < 5
    assert ended.peak_rss_mb > 1


@pytest.mark.parametrize(
    ("function", "argument", "how", "said"),
    [
        ("builtins:exit", 3, "exit status 3", ""),
        ("builtins:exec", "raise ValueError('no')", "exit status 1", "error: ValueError: no"),
        ("builtins:exec", "import os; os.kill(os.getpid(), 11)", "SIGSEGV", ""),
        ("builtins:exec", "import os; os._exit(0)", "", ""),
        ("no_such_module:run", None, "exit status 1", "error: ModuleNotFoundError: No module named 'no_such_module'"),
    ],
)
def test_how_it_ended(zygote: Zygote, function: str, argument: Any, how: str, said: str) -> None:
    ended, told = Asked(zygote, function, argument).end()
    assert (ended.how, told.strip()) == (how, said)


def test_memory_beyond_the_limit_is_not_given(zygote: Zygote) -> None:
    ended, said = Asked(zygote, "builtins:exec", "bytearray(2 << 30)", memory=1 << 30).end()
    assert (ended.how, said.strip()) == ("exit status 1", "error: MemoryError:")
    assert Asked(zygote, "builtins:exec", "bytearray(10 << 20)", memory=1 << 30).end()[0].how == ""


def test_what_is_warmed_is_there_in_every_child_and_in_none_before(zygote: Zygote) -> None:
    loaded = "import sys; print('colorsys' in sys.modules)"
    assert Asked(zygote, "builtins:exec", loaded).end()[1] == "False\n"
    for _ in range(2):
        assert Asked(zygote, "builtins:exec", loaded, warm=("importlib:import_module", "colorsys")).end()[1] == "True\n"
    assert Asked(zygote, "builtins:exec", loaded).end()[1] == "True\n"


def test_what_cannot_be_warmed_is_said_and_the_child_runs_all_the_same(zygote: Zygote) -> None:
    ended, said = Asked(zygote, "builtins:print", "ran", warm=("importlib:import_module", "no_such_module")).end()
    assert ended.how == ""
    assert said.startswith("ModuleNotFoundError while importing: No module named 'no_such_module'")
    assert said.endswith("ran\n")


def test_closing_a_call_kills_its_child_and_what_that_started_while_another_runs_on(zygote: Zygote) -> None:
    code = "import subprocess, time; print(subprocess.Popen(['sleep', '600']).pid, flush=True); time.sleep(600)"
    other = Asked(zygote, "time:sleep", 600)
    asked = Asked(zygote, "builtins:exec", code)
    child, grandchild = asked.pid(), int(os.read(asked._reader, 100))
    asked.call.close()
    assert gone(child)
    assert gone(grandchild)
    assert not gone(other.pid(), seconds=0.2)
    other.call.close()


def test_what_a_child_leaves_running_is_killed_when_it_ends(zygote: Zygote) -> None:
    code = "import subprocess; print(subprocess.Popen(['sleep', '600'], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).pid)"
    ended, said = Asked(zygote, "builtins:exec", code).end()
    assert ended.how == ""
    assert gone(int(said))


def test_children_of_a_killed_zygote_die_and_its_callers_are_told(zygote: Zygote) -> None:
    asked = Asked(zygote, "time:sleep", 600)
    child = asked.pid()
    os.kill(zygote.pid, signal.SIGKILL)
    with pytest.raises(ZygoteLost):
        asked.call.receive()
    assert gone(child)
    assert not zygote.alive
    with pytest.raises(ZygoteLost):
        Asked(zygote, "builtins:print")


def test_a_zygote_goes_with_the_process_that_made_it() -> None:
    code = (
        "import os, time\nfrom exporters.zygote import Call, Zygote\nzygote = Zygote()\n"
        "call = Call(zygote.address, 'time:sleep', 600, stdout=1, stderr=2)\ncall.receive()\n"
        "print(zygote.pid, call.pid, flush=True)\ntime.sleep(600)\n"
    )
    program = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert program.stdout is not None
    pids = [int(pid) for pid in program.stdout.readline().split()]
    program.kill()
    program.wait()
    assert all(gone(pid) for pid in pids)


def test_many_calls_at_once_each_get_their_own_answer(zygote: Zygote) -> None:
    asked = [Asked(zygote, "builtins:exec", f"import sys; print({number}); sys.exit({number % 5})") for number in range(40)]
    for number, each in enumerate(asked):
        ended, said = each.end()
        assert said == f"{number}\n"
        assert ended.how == (f"exit status {number % 5}" if number % 5 else "")


def test_no_torch_is_imported_for_a_zygote() -> None:
    code = "import sys, exporters.zygote; sys.exit(bool({'torch', 'pydantic'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_what_is_warmed_starts_no_thread_that_a_fork_would_lose(zygote: Zygote) -> None:
    assert Asked(zygote, "builtins:print", "", warm=("importlib:import_module", "numpy")).end()[0].how == ""
    assert psutil.Process(zygote.pid).num_threads() == 1
