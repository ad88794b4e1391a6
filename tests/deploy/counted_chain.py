"""What the test's workers run for a partition: the real chain, or a quick double of it, after a note that it began and on which machine.

`$COUNTED_LOG` gets a line for each beginning; the double waits `$COUNTED_SECONDS` first.
"""

import json
import os
import time
from typing import Any


def fake(request: dict[str, Any]) -> None:
    """A double that knows no cache: whatever it is asked, it does."""
    import fake_chain

    _note(request)
    fake_chain.say("start", stage="traced_program")
    time.sleep(float(os.environ["COUNTED_SECONDS"]))
    fake_chain.serve(request)


def real(request: dict[str, Any]) -> int:
    """The chain itself. A look into the store, which says that a model is needed, is no beginning."""
    from exporters import chain

    if not request.get("cached_only"):
        _note(request)
    return chain.serve(request)


def _note(request: dict[str, Any]) -> None:
    line = (
        json.dumps({"backend": request["backend"], "model": request["model"], "machine": os.environ["MACHINE"], "pid": os.getpid()}) + "\n"
    )
    log = os.open(os.environ["COUNTED_LOG"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(log, line.encode())
    os.close(log)
