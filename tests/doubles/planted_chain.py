"""The real chain, but for five models that end in the ways that no report tells. Named in a `zoo.toml` of the test's."""

import os
import signal
import sys
from typing import Any

from exporters import chain


def serve(request: dict[str, Any]) -> int:
    """What a zygote's child runs."""
    match request["model"]:
        case "Segfaults":
            os.kill(os.getpid(), signal.SIGSEGV)
        case "Loops":
            while True:
                pass
        case "Eats":
            block = bytearray(20 << 30)
            block[-1] = 1
        case "Raises":
            raise ValueError("planted")
        case "Silent":
            sys.exit(0)
    return chain.serve(request)
