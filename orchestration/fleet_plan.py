"""What fleets were asked to make, kept until it is made: whatever ends a fleet, what is left of it is known."""

import json
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from exporters.errors import StoreError
from exporters.report import Report
from exporters.store import write_whole
from orchestration.selection import Partition

_KEPT = 20  # plans; the reports of their partitions are in the store


@dataclass(frozen=True)
class Plan:
    """One fleet: its partitions and when it began, in seconds since the epoch."""

    name: str
    began: float
    partitions: tuple[Partition, ...]

    def left(self, reports: Mapping[Partition, Report]) -> list[Partition]:
        """What has no report since the fleet began."""
        return [each for each in self.partitions if each not in reports or reports[each].at < self.began]


def begin(home: Path, partitions: Sequence[Partition]) -> Plan:
    """A new plan, written down.

    Raises:
        StoreError: the home can't be written.
    """
    now = time.time()
    name = f"{time.strftime('%Y%m%d-%H%M%S', time.gmtime(now))}-{uuid.uuid4().hex[:6]}"
    plan = Plan(name, now, tuple(partitions))
    folder = _folder(home)
    try:
        write_whole(folder / f"{name}.json", json.dumps({"began": now, "partitions": partitions}))
        for old in sorted(folder.glob("*.json"))[:-_KEPT]:
            old.unlink(missing_ok=True)
    except OSError as error:
        raise StoreError(f"can't write into {folder}: {error.strerror}", next="set ZOOPORT_HOME to a folder that can be written") from error
    return plan


def last(home: Path) -> Plan | None:
    """The latest plan; None if there is none that can be read."""
    for file in sorted(_folder(home).glob("*.json"), reverse=True):
        try:
            content = json.loads(file.read_text())
            return Plan(file.stem, content["began"], tuple((backend, model) for backend, model in content["partitions"]))
        except (OSError, ValueError, KeyError, TypeError):
            continue  # cut short by a power cut, say: the one before it still tells something
    return None


def _folder(home: Path) -> Path:
    return home / "fleets"
