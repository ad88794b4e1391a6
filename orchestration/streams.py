"""Standard output for what a command has to say, and nothing else."""

import contextlib
import io
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO


@contextlib.contextmanager
def reserved_stdout() -> Iterator[TextIO]:
    """Yield the real standard output; what libraries and their child processes print meanwhile goes to standard error.

    Works on the file descriptor, since much of what prints is native code. Where standard output has no descriptor (under
    a test's runner) only Python's own prints are diverted.
    """
    stdout = sys.stdout
    stdout.flush()
    try:
        descriptor = stdout.fileno()
    except (OSError, io.UnsupportedOperation):
        with contextlib.redirect_stdout(sys.stderr):
            yield stdout
        return
    with os.fdopen(os.dup(descriptor), "w", encoding=stdout.encoding) as real, contextlib.redirect_stdout(sys.stderr):
        os.dup2(sys.stderr.fileno(), descriptor)
        try:
            yield real
        finally:
            real.flush()
            os.dup2(real.fileno(), descriptor)


@contextlib.contextmanager
def stderr_into(file: Path) -> Iterator[TextIO]:
    """Send everything that this process and its children write to standard error into `file` instead; yield what it was."""
    sys.stderr.flush()
    saved = os.dup(2)
    try:
        with file.open("wb") as target:
            os.dup2(target.fileno(), 2)
        with os.fdopen(os.dup(saved), "w", buffering=1) as real:
            yield real
    finally:
        sys.stderr.flush()
        os.dup2(saved, 2)
        os.close(saved)
