"""Keeping the store small and whole: what no reference reaches is deleted, what is damaged is found. Exports may run meanwhile.

Safe while they do: an artifact that was just written has no reference yet, so what was used lately stays; references are read after the
artifacts are listed, so one that appears in between is seen or its artifact isn't; and each artifact's age is looked at again as it is
deleted, locally under the lock that writers take. Only over a network is a moment left between that look and the deletion: what is lost
in it is noticed when it is read, and made again.

Copies of weights and what lies under `exports/` are left alone: output folders anywhere may point at them.
"""

import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from exporters import manifest
from exporters.backends import STAGES
from exporters.errors import CorruptArtifact
from exporters.store import Store
from exporters.store_local import LocalObjects, StoredObject, delete
from exporters.store_remote import RemoteObjects

# What is no older may belong to an export that runs.
IN_USE_SECONDS = 86_400.0

# what is being done, bytes done, bytes in all
Progress = Callable[[str, int, int], None]

# how everything that is written aside is named, as are the folders of `exporters.publish`
_ASIDE = re.compile(r"\..+\.[0-9a-f]{32}(\.old|\.pack)?")


# ── Garbage ───────────────────────────────────────────────────────────────────


@dataclass
class Collected:
    """What was deleted, or would be.

    Attributes:
        artifacts: digests of artifacts of the store.
        copies: digests of this machine's copies of a remote store's artifacts.
        leftovers: paths of what interrupted exports left.
        kept: how many artifacts stay; `kept_for_now` of them have no reference and were used lately.
    """

    artifacts: list[str] = field(default_factory=list)
    copies: list[str] = field(default_factory=list)
    leftovers: list[str] = field(default_factory=list)
    freed_bytes: int = 0
    kept: int = 0
    kept_for_now: int = 0


def collect(store: Store, *, home: Path, keep_seconds: float, dry_run: bool, on_progress: Progress) -> Collected:
    """Delete what no reference reaches and nobody used in the last `keep_seconds`.

    Args:
        home: zooport's home, whose leftovers go too.

    Raises:
        StoreError: the store can't be read or written.
    """
    before = time.time() - keep_seconds
    collected = Collected()
    with store.reporting("delete from"):
        on_progress("listing artifacts", 0, 0)
        stored = list(store.objects.stored())
        copied = list(store.copies.stored()) if store.copies else []
        on_progress("reading references", 0, 0)
        reached = {content["digest"] for _, content in store.refs() if content and manifest.is_digest(content.get("digest"))}
        unreached = [each for each in stored if each.digest not in reached]
        old_copies = [each for each in copied if each.digest not in reached and each.used_at <= before]
        old = [each for each in unreached if each.used_at <= before]
        total, done = sum(each.bytes for each in [*old, *old_copies]), 0
        for place, garbage, gone in ((store.objects, old, collected.artifacts), (store.copies, old_copies, collected.copies)):
            for each in garbage:
                on_progress("deleting artifacts", done, total)
                done += each.bytes
                assert place is not None
                if dry_run or place.remove(each.digest, unused_since=before):
                    gone.append(each.digest)
                    collected.freed_bytes += each.bytes
        for path in leftovers(store, home, before):
            collected.leftovers.append(str(path))
            collected.freed_bytes += sum(_sizes(path))
            if not dry_run:
                delete(path)
    collected.kept = len(stored) - len(collected.artifacts)
    collected.kept_for_now = len(unreached) - len(collected.artifacts)
    return collected


def leftovers(store: Store, home: Path, before: float) -> Iterator[Path]:
    """What was being written or deleted and hasn't been touched since `before`."""
    local = store.copies or store.objects
    assert isinstance(local, LocalObjects)
    places = [home / "exports", home / "reports", home / "weights", local.root / "stamps"]
    if store.copies is None:
        places += [local.root / "refs", local.root / "history", local.root / "reports"]
    yield from (path for path in local.unfinished() if _touched(path) <= before)
    for place in places:
        # parents come first: what lies in a leftover goes with it
        found: list[Path] = []
        for path in sorted(place.rglob(".*")):
            if _ASIDE.fullmatch(path.name) and not any(path.is_relative_to(above) for above in found) and _touched(path) <= before:
                found.append(path)
        yield from found


def _touched(path: Path) -> float:
    """When anything in a folder was last changed."""
    try:
        return max(each.lstat().st_mtime for each in [path, *path.rglob("*")])
    except FileNotFoundError:
        return time.time()  # it changes as we look


def _sizes(path: Path) -> Iterator[int]:
    """Of the files that go with a path; those with another link stay."""
    for each in [path, *path.rglob("*")]:
        try:
            stat = each.lstat()
        except FileNotFoundError:
            continue
        if stat.st_nlink == 1 and not each.is_dir():
            yield stat.st_size


# ── Damage ────────────────────────────────────────────────────────────────────


@dataclass
class Finding:
    """One thing that is wrong, and what to do about it."""

    kind: Literal["artifact", "copy", "reference", "leftover"]
    path: str
    problem: str
    next: str
    repaired: bool = False


@dataclass
class Examined:
    """What was looked at, and what was wrong."""

    artifacts: int = 0
    references: int = 0
    bytes: int = 0
    unreferenced: int = 0
    findings: list[Finding] = field(default_factory=list)


def examine(store: Store, *, home: Path, repair: bool, on_progress: Progress) -> Examined:
    """Read everything in the store and compare it with what it has to be.

    Args:
        repair: delete what is damaged: it is made again when it is wanted.

    Raises:
        StoreError: the store can't be read, or not repaired.
    """
    return _Examination(store, home, repair, on_progress).run()


_MAKE_AGAIN = "`zooport store verify --repair` deletes it, and the next export makes it again"


class _Examination:
    def __init__(self, store: Store, home: Path, repair: bool, on_progress: Progress) -> None:
        self._store = store
        self._home = home
        self._repair = repair
        self._say = on_progress
        self._recent = time.time() - IN_USE_SECONDS
        self._examined = Examined()

    def run(self) -> Examined:
        with self._store.reporting("read"):
            self._say("listing artifacts", 0, 0)
            stored = list(self._store.objects.stored())
            copied = list(self._store.copies.stored()) if self._store.copies else []
            self._say("reading references", 0, 0)
            refs = list(self._store.refs())
            reached = {content.get("digest") for _, content in refs if content}
            # without its manifest yet, since it is being written
            settled = [each for each in stored if each.whole or each.digest in reached or each.used_at <= self._recent]
            self._total, self._done = sum(each.bytes for each in [*settled, *copied]), 0
            bad = self._objects("artifact", self._store.objects, settled)
            good = {each.digest for each in settled if each.whole} - bad
            if self._store.copies:
                self._objects("copy", self._store.copies, copied)
            for parts, content in refs:
                self._reference(parts, content, good, bad)
            for path in leftovers(self._store, self._home, self._recent):
                self._found("leftover", str(path), "an export that was interrupted left it", "`zooport store gc` deletes it")
                if self._repair:
                    delete(path)
        self._examined.artifacts, self._examined.references = len(stored), len(refs)
        self._examined.bytes = self._total
        self._examined.unreferenced = sum(each.digest not in reached for each in stored)
        return self._examined

    def _objects(self, kind: Literal["artifact", "copy"], place: LocalObjects | RemoteObjects, stored: list[StoredObject]) -> set[str]:
        """Read artifacts; the digests of those that are damaged."""
        bad = set()
        for each in stored:
            self._say("reading artifacts", self._done, self._total)
            self._done += each.bytes
            try:
                place.check(each.digest)
            except CorruptArtifact as error:
                # deleted or replaced meanwhile, by whoever found it damaged too
                gone = not place.there(each.digest)
                if gone or (self._repair and place.remove_damaged(each.digest) is None):
                    continue
                bad.add(each.digest)
                where = place.where(each.digest)
                self._found(kind, where, str(error.args[0]).removeprefix(f"{where}: "), _MAKE_AGAIN)
        return bad

    def _reference(self, parts: tuple[str, ...], content: dict[str, object] | None, good: set[str], bad: set[str]) -> None:
        digest = content.get("digest") if content else None
        if content is None:
            problem = "it isn't what was written"
        elif manifest.is_digest(digest):
            assert isinstance(digest, str)
            if digest in good or (digest not in bad and self._store.has(digest)):  # or was written since
                return
            problem = f"its artifact {digest} is {'damaged' if digest in bad else 'missing'}"
        elif parts[0] in STAGES:
            problem = "it names no artifact"
        else:
            return  # of a sample, or of a verification: it has no artifact
        if self._store.read_ref(*parts) != content:
            return  # replaced meanwhile
        self._found("reference", "/".join(("refs", *parts)) + ".json", problem, _MAKE_AGAIN)
        if self._repair:
            self._store.remove_ref(*parts)

    def _found(self, kind: Literal["artifact", "copy", "reference", "leftover"], path: str, problem: str, next_step: str) -> None:
        self._examined.findings.append(Finding(kind, path, problem, next_step, repaired=self._repair))
