"""An interrupt that was raised where nobody hears it is remembered."""

import os
import signal
import threading
import weakref

import pytest

from orchestration.interrupts import interrupts


class Thing:
    pass


def interrupt_in_a_callback() -> None:
    """Where SQLAlchemy's interrupts get lost: what a weak reference's callback raises is printed and forgotten."""

    def callback(_: object) -> None:
        os.kill(os.getpid(), signal.SIGINT)
        for _ in range(1000):
            pass  # the handler runs between two instructions

    thing = Thing()
    kept = weakref.ref(thing, callback)
    del thing
    assert kept() is None


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_an_interrupt_that_is_swallowed_is_seen() -> None:
    with interrupts() as watcher:
        assert not watcher.seen
        interrupt_in_a_callback()
        assert watcher.seen
        assert watcher.seen


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_who_watches_within_shares_what_is_seen_also_when_it_ends_late() -> None:
    with interrupts() as outer:
        within = interrupts()
        inner = within.__enter__()
        interrupt_in_a_callback()
        assert inner.seen
        assert outer.seen
    within.__exit__(None, None, None)
    with interrupts() as another:
        assert not another.seen


def test_another_thread_sees_none_and_does_no_harm() -> None:
    seen: list[bool] = []

    def watch() -> None:
        with interrupts() as watcher:
            seen.append(watcher.seen)

    thread = threading.Thread(target=watch)
    thread.start()
    thread.join()
    assert seen == [False]
