"""One stage of a chain around a text instead of a model: what the chain does with the store, in its order.

As a program it does so in a process of its own, and halts where it is told to, so that it can be killed there.
"""

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from exporters import store_local
from exporters.errors import CorruptArtifact
from exporters.store import MANIFEST, Store, json_digest
from exporters.store_remote import RemoteObjects

REF = ("onnx", "traced_program", "onnx", "Model@decode")


@dataclass
class Stage:
    text: str
    cached: bool
    digest: str


def run(store: Store, text: str, *ref: str, between: Callable[[], None] = lambda: None) -> Stage:
    """The text by way of the store: from there, or made anew. `between` is called when there is an artifact and no reference."""
    known = store.read_ref(*(ref or REF))
    if known is not None and known.get("key") == json_digest(text):
        try:
            folder = store.get(known["digest"])
        except CorruptArtifact:
            pass
        else:
            return Stage((folder / "a").read_text(), True, known["digest"])
    digest = store.put(write(store, text))
    between()
    folder = store.get(digest)
    store.write_ref(*(ref or REF), content={"key": json_digest(text), "digest": digest})
    return Stage((folder / "a").read_text(), False, digest)


def write(store: Store, text: str) -> Path:
    folder = store.scratch()
    (folder / "a").write_text(text)
    (folder / "b").write_text(text[::-1])
    return folder


def halt() -> None:
    print("halted", flush=True)
    sys.stdin.read()


def halt_publishing() -> None:
    """Halt where the files are written, and the artifact isn't there yet."""
    take_place, upload = store_local._take_place, RemoteObjects.write

    def local(folder: Path, target: Path) -> bool:
        halt()
        return take_place(folder, target)

    def remote(self: RemoteObjects, target: str, source: Path | bytes) -> None:
        if target.endswith(MANIFEST):
            halt()
        upload(self, target, source)

    store_local._take_place = local
    RemoteObjects.write = remote  # type: ignore[method-assign]


def main(url: str, cache: str, what: str, *arguments: str) -> None:
    store = Store(url, cache=Path(cache))
    match what:
        case "writing":
            write(store, arguments[0])
            halt()
        case "publishing":
            halt_publishing()
            run(store, arguments[0])
        case "no reference yet":
            run(store, arguments[0], between=halt)
        case "rounds":  # each begins at a whole tenth of a second, so that processes write at the same moment
            for number in range(int(arguments[0])):
                time.sleep(0.1 - time.time() % 0.1)
                print(run(store, f"{number:20}" * 5_000).digest)
        case "anew":
            for number in range(int(arguments[0])):
                made = run(store, f"{arguments[1]} {number:20}", "onnx", "x", "onnx", f"{arguments[1]}{number % 3}")
                assert made.text == f"{arguments[1]} {number:20}"
        case "once":
            print(run(store, arguments[0]).digest)


if __name__ == "__main__":
    main(*sys.argv[1:])
