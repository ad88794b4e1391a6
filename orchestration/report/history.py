"""The kept snapshots: one small file each in the artifact store, written once, never changed and never collected.

    history/20261130T061500.123456Z-1a2b3c4d.json.gz

The name is the moment and a digest of the content, so that names sort by time and two machines never write over each other.
A file is compressed JSON: what the exports were made with, names once, then a row a partition (`_ROW`), then a row a stage in it
(`_STAGE_ROW`).
"""

import contextlib
import gzip
import hashlib
import json
import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from exporters.errors import UsageError
from exporters.store import Store
from orchestration.report.snapshot import Key, Partition, Snapshot, StageFacts, standing
from orchestration.report.software import Software

FOLDER = "history"
# of this format: a file of another one is passed over
_FORMAT = 1
_NAME = re.compile(r"(\d{8}T\d{6}\.\d{6}Z)-[0-9a-f]{8}\.json\.gz")
_MOMENT = "%Y%m%dT%H%M%S.%fZ"
_ROW = ("model", "backend", "outcome", "shapes", "stage", "kind", "message", "max_abs_diff", "at", "run")
_STAGE_ROW = ("stage", "cached", "cpu_seconds", "peak_rss_mb", "bytes")
# repeated texts, kept once in a table of their own
_SHARED = {"backend", "outcome", "shapes", "stage", "kind", "message", "run"}

_DAYS = re.compile(r"(\d+)\s*(d|days?|w|weeks?)", re.IGNORECASE)


@dataclass(frozen=True)
class Worth:
    """What one partition was worth."""

    outcome: str
    shapes: str
    failing: bool

    @property
    def good(self) -> bool:
        return standing(self.outcome, self.shapes) == "verified"


@dataclass(frozen=True)
class Standings:
    """What every partition was worth at a moment, by (backend, model)."""

    at: float
    of: dict[Key, Worth]


class History:
    """The snapshots of one store."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def names(self) -> list[str]:
        """Of every snapshot, the oldest first."""
        return [name for name in self._store.files(FOLDER) if _NAME.fullmatch(name)]

    def save(self, snapshot: Snapshot) -> str:
        """Keep a snapshot; its name."""
        content = gzip.compress(json.dumps(_packed(snapshot), separators=(",", ":")).encode(), mtime=0)
        moment = datetime.fromtimestamp(snapshot.at, UTC).strftime(_MOMENT)
        name = f"{moment}-{hashlib.sha256(content).hexdigest()[:8]}.json.gz"
        self._store.write_file(FOLDER, name, content=content)
        return name

    def load(self, name: str) -> Snapshot | None:
        """A snapshot by its name; None for one that is damaged, gone, or of another format."""
        content = self._store.read_file(FOLDER, name)
        if content is None:
            return None
        with _of_this_format():
            return _unpacked(_parsed(content))
        return None

    def standings(self, name: str) -> Standings | None:
        """The outcomes of a snapshot and no more, for reading many; None as for `load`."""
        content = self._store.read_file(FOLDER, name)
        if content is None:
            return None
        with _of_this_format():
            packed = _parsed(content)
            texts = packed["texts"]
            backend, model, outcome, shapes, stage = map(_ROW.index, ("backend", "model", "outcome", "shapes", "stage"))
            of = {
                (texts[row[backend]], row[model]): Worth(texts[row[outcome]], texts[row[shapes]], bool(texts[row[stage]]))
                for row in packed["partitions"]
            }
            return Standings(packed["at"], of)
        return None


def moment_of(name: str) -> float:
    """When a snapshot was taken, in seconds since the epoch."""
    match = _NAME.fullmatch(name)
    assert match is not None
    return datetime.strptime(match[1], _MOMENT).replace(tzinfo=UTC).timestamp()


def state_at(names: list[str], moment: float) -> str | None:
    """The snapshot that shows how things stood at a moment: the last one until then, or the first of all if there was none yet."""
    until = [name for name in names if moment_of(name) <= moment]
    return until[-1] if until else names[0] if names else None


def spread(names: list[str], most: int) -> list[str]:
    """At most so many of them, evenly spread, the first and the last included."""
    if len(names) <= most:
        return names
    return [names[round(index * (len(names) - 1) / (most - 1))] for index in range(most)]


def parse_since(text: str, now: float) -> float:
    """A date, a moment in ISO 8601 (UTC where it names no zone) or a number of days or weeks (`7d`, `2 weeks`) as seconds since the epoch.

    Raises:
        UsageError: it is none of them, or lies in the future.
    """
    match = _DAYS.fullmatch(text.strip())
    if match is not None:
        count = int(match[1]) * (7 if match[2].lower().startswith("w") else 1)
        with contextlib.suppress(OverflowError):
            return (datetime.fromtimestamp(now, UTC) - timedelta(days=count)).timestamp()
    try:
        moment = datetime.fromisoformat(text.strip())
    except ValueError:
        raise UsageError(f"--since {text!r} is no date and no number of days", next="write it like 2026-11-23, 7d or 2w") from None
    seconds = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    if seconds > now:
        raise UsageError(f"--since {text!r} lies in the future", next="write it like 2026-11-23, 7d or 2w")
    return seconds


# ── The file's format ─────────────────────────────────────────────────────────


def _parsed(content: bytes) -> dict[str, Any]:
    packed: dict[str, Any] = json.loads(gzip.decompress(content))
    if packed["format"] != _FORMAT:
        raise ValueError(f"format {packed['format']}")
    return packed


@contextlib.contextmanager
def _of_this_format() -> Iterator[None]:
    """For the block, pass over what isn't a snapshot of this format: a damaged file, or another version's."""
    with contextlib.suppress(OSError, EOFError, zlib.error, ValueError, KeyError, IndexError, TypeError):
        yield


def _packed(snapshot: Snapshot) -> dict[str, Any]:
    texts: dict[str, int] = {}

    def shared(text: str) -> int:
        return texts.setdefault(text, len(texts))

    rows = []
    for partition in snapshot.partitions:
        row = [shared(value) if name in _SHARED else value for name in _ROW for value in [getattr(partition, name)]]
        stages = [[shared(stage.stage), int(stage.cached), stage.cpu_seconds, stage.peak_rss_mb, stage.bytes] for stage in partition.stages]
        rows.append([*row, stages])
    software = {} if snapshot.software is None else {"software": snapshot.software.model_dump()}
    return {"format": _FORMAT, "at": snapshot.at, **software, "texts": list(texts), "partitions": rows}


def _unpacked(packed: dict[str, Any]) -> Snapshot:
    texts = packed["texts"]
    partitions = []
    for *values, stages in packed["partitions"]:
        fields = {name: texts[value] if name in _SHARED else value for name, value in zip(_ROW, values, strict=True)}
        facts = [StageFacts(**dict(zip(_STAGE_ROW, [texts[name], *rest], strict=True))) for name, *rest in stages]
        partitions.append(Partition(**fields, stages=facts))
    software = packed.get("software")  # older ones have none
    return Snapshot(at=packed["at"], software=software and Software(**software), partitions=partitions)
