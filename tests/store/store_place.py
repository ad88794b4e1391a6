"""A store as the tests see it: where it lies, and what this machine keeps of it."""

import subprocess
import sys
import uuid
from dataclasses import dataclass
from pathlib import Path

from upath import UPath

from exporters.store import Store
from exporters.store_upkeep import Finding, examine

STAGE = Path(__file__).with_name("store_stage.py")


@dataclass
class Place:
    """Where a store lies, and what this machine keeps of it."""

    kind: str
    url: str
    cache: Path
    home: Path

    def store(self) -> Store:
        """As a process finds it that has used it before."""
        return Store(self.url, cache=self.cache)

    def elsewhere(self) -> Store:
        """As another machine finds it, which has no copies."""
        return Store(self.url, cache=self.cache / uuid.uuid4().hex)

    def object(self, digest: str) -> UPath:
        name = digest.removeprefix("sha256:")
        return self.store().root / "objects" / name[:2] / name

    def ref(self, *parts: str) -> UPath:
        return self.store().root.joinpath("refs", *parts[:-1], f"{parts[-1]}.json")

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        """A stage in a process of its own."""
        command = [sys.executable, str(STAGE), self.url, str(self.cache), *arguments]
        return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def once(self, text: str) -> str:
        """A stage in a process of its own, to its end; the artifact's digest."""
        process = self.start("once", text)
        printed, errors = process.communicate(timeout=60)
        assert process.returncode == 0, errors
        return printed.strip()

    def damage(self, *, repair: bool = False) -> list[Finding]:
        """What is wrong with the store."""
        return examine(self.store(), home=self.home, repair=repair, on_progress=lambda what, done, total: None).findings
