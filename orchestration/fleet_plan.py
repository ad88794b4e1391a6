"""What fleets were asked to make, and what of it is done: whatever ends a fleet, what is left of it is known.

A plan is a file that is written once, and beside it a journal that grows by a line for each partition of which Dagster has everything.
"""

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from assets.partitions import Partition, key_of
from exporters.errors import StoreError
from exporters.store import write_whole

_KEPT = 20  # plans; the reports of their partitions are in the store


@dataclass(frozen=True)
class Plan:
    """One fleet.

    Attributes:
        file: where it is kept.
        partitions: what was asked for, in order.
    """

    file: Path
    partitions: tuple[Partition, ...]

    @property
    def name(self) -> str:
        return self.file.stem

    def done(self, partition: Partition) -> None:
        """Note that nothing of this partition is left to do; at once, in one write."""
        with self._journal.open("a", encoding="utf-8") as stream:
            stream.write(key_of(partition) + "\n")

    def left(self) -> list[Partition]:
        """What isn't done."""
        try:
            lines = self._journal.read_text(encoding="utf-8").splitlines()
        except FileNotFoundError:
            lines = []
        done = set(lines)
        return [partition for partition in self.partitions if key_of(partition) not in done]

    @property
    def _journal(self) -> Path:
        return self.file.with_suffix(".done")


def begin(home: Path, partitions: Sequence[Partition]) -> Plan:
    """A new plan, written down.

    Raises:
        StoreError: the home can't be written.
    """
    seconds, micros = divmod(time.time_ns() // 1000, 1_000_000)
    name = f"{time.strftime('%Y%m%d-%H%M%S', time.gmtime(seconds))}-{micros:06}"  # in order, as names too
    folder = _folder(home)
    plan = Plan(folder / f"{name}.json", tuple(partitions))
    try:
        write_whole(plan.file, json.dumps({"partitions": partitions}))
        for old in sorted(folder.glob("*.json"))[:-_KEPT]:
            old.unlink(missing_ok=True)
            old.with_suffix(".done").unlink(missing_ok=True)
    except OSError as error:
        raise StoreError(f"can't write into {folder}: {error.strerror}", next="set ZOOPORT_HOME to a folder that can be written") from error
    return plan


def last(home: Path) -> Plan | None:
    """The latest plan; None if there is none that can be read."""
    for file in sorted(_folder(home).glob("*.json"), reverse=True):
        try:
            content = json.loads(file.read_text())
            return Plan(file, tuple((backend, model) for backend, model in content["partitions"]))
        except (OSError, ValueError, KeyError, TypeError):
            continue  # cut short by a power cut, say: the one before it still tells something
    return None


def _folder(home: Path) -> Path:
    return home / "fleets"
