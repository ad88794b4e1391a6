"""Artifacts as folders of a local file system: the store itself, or this machine's copies of what a remote store holds.

    objects/<2>/<digest>/   an artifact; when it was last used is the folder's time of modification
    stamps/<digest>         the files' sizes, times and inodes when their bytes were last hashed: while they are the same, so are the bytes,
                            until the machine starts anew, since a power cut loses what wasn't on the disk yet
    locks/<2>               held by whoever removes an artifact, or finds one in the place of its own
    tmp/                    what is being written, and what is being deleted

An artifact appears whole, by a rename, and disappears whole, by another.
"""

import contextlib
import errno
import functools
import os
import shutil
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock

from exporters import manifest
from exporters.errors import CorruptArtifact
from exporters.manifest import MANIFEST, is_digest, json_digest

# A file that changes twice within a tick of the file system's clock (10 ms at most) shows one time: what is younger isn't stamped.
_SETTLED_SECONDS = 0.05


@dataclass(frozen=True)
class StoredObject:
    """An artifact as it lies there, whole or not.

    Attributes:
        used_at: seconds since the epoch; of a remote one, when it was last written.
        whole: whether it has its manifest, which is written last.
    """

    digest: str
    bytes: int
    used_at: float
    whole: bool


class LocalObjects:
    """Artifacts under a local folder. Every method raises OSError where the disk does."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def folder(self, digest: str) -> Path:
        """Where an artifact lies."""
        name = digest.removeprefix("sha256:")
        return self.root / "objects" / name[:2] / name

    def where(self, digest: str) -> str:
        """The same, for people."""
        return str(self.folder(digest))

    # ── Writing ───────────────────────────────────────────────────────────────

    def scratch(self) -> Path:
        """A new empty folder, which a rename can make an artifact."""
        folder = self._aside()
        folder.mkdir()
        return folder

    def publish(self, folder: Path, digest: str, seen: str) -> None:
        """Make a folder an artifact, its manifest included; if the same artifact is there already, that one stays.

        Args:
            seen: the folder's fingerprint before its files were hashed.
        """
        target = self.folder(digest)
        target.parent.mkdir(parents=True, exist_ok=True)
        if not _take_place(folder, target):
            with self._lock(digest):
                if self._problem(digest):
                    self._drop(digest)
                if not _take_place(folder, target):
                    os.utime(target)
                    return
        self._stamp(digest, seen)

    # ── Reading ───────────────────────────────────────────────────────────────

    def open(self, digest: str) -> Path:
        """An artifact's folder, checked; the bytes are read only if they may have changed since they were last.

        Raises:
            CorruptArtifact: it isn't there, or was damaged, and then it is gone now.
        """
        folder = self.folder(digest)
        with contextlib.suppress(OSError):  # a store that can only be read, or has no such artifact
            os.utime(folder)
        problem = self._problem(digest)
        if problem is not None and self.there(digest):
            with contextlib.suppress(OSError):  # a store that can't be written keeps it, and it is found damaged again
                problem = self.remove_damaged(digest)
        if problem is not None:
            raise problem
        return folder

    def check(self, digest: str) -> None:
        """Read all of an artifact's bytes, whatever was known of them.

        Raises:
            CorruptArtifact: it isn't there, or is damaged.
        """
        problem = self._problem(digest, trust_stamp=False)
        if problem is not None:
            with contextlib.suppress(OSError):  # a store that can only be read
                self._stamp_file(digest).unlink(missing_ok=True)
            raise problem

    def has(self, digest: str) -> bool:
        return (self.folder(digest) / MANIFEST).exists()

    def there(self, digest: str) -> bool:
        """Whether there is anything of an artifact."""
        return os.path.lexists(self.folder(digest))

    def stored(self) -> Iterator[StoredObject]:
        """Every artifact, damaged ones too."""
        for folder in sorted((self.root / "objects").glob("*/*")):
            digest = f"sha256:{folder.name}"
            if is_digest(digest):
                with contextlib.suppress(FileNotFoundError):  # removed meanwhile
                    yield StoredObject(digest, sum(_sizes(folder)), folder.stat().st_mtime, self.has(digest))

    def _problem(self, digest: str, *, trust_stamp: bool = True) -> CorruptArtifact | None:
        folder = self.folder(digest)
        try:
            before = fingerprint(folder)
            known = trust_stamp and self._read_stamp(digest) == before
            manifest.check(folder, digest, bytes_too=not known)
        except FileNotFoundError:
            return manifest.corrupt(folder, "it isn't there")
        except NotADirectoryError:
            return manifest.corrupt(folder, "it is no folder")
        except CorruptArtifact as problem:
            return problem
        if not known:
            self._stamp(digest, before)
        return None

    # ── Removing ──────────────────────────────────────────────────────────────

    def remove(self, digest: str, unused_since: float | None = None) -> bool:
        """Remove an artifact, if nobody used it after `unused_since`; whether it is gone."""
        with self._lock(digest):
            with contextlib.suppress(FileNotFoundError):
                if unused_since is not None and self.folder(digest).stat().st_mtime > unused_since:
                    return False
            self._drop(digest)
        return True

    def remove_damaged(self, digest: str) -> CorruptArtifact | None:
        """Remove an artifact, if it is still damaged: somebody may have replaced it meanwhile. What is wrong with it."""
        with self._lock(digest):
            problem = self._problem(digest, trust_stamp=False)
            if problem is not None:
                self._drop(digest)
        return problem

    def unfinished(self) -> Iterator[Path]:
        """What is being written or deleted right now, or was when somebody was interrupted."""
        with contextlib.suppress(FileNotFoundError):
            yield from sorted((self.root / "tmp").iterdir())

    def _drop(self, digest: str) -> None:
        """With the lock held: renamed first, so that no reader sees half of it."""
        self._stamp_file(digest).unlink(missing_ok=True)
        aside = self._aside()
        with contextlib.suppress(FileNotFoundError):
            self.folder(digest).rename(aside)
            delete(aside)

    def _aside(self) -> Path:
        base = self.root / "tmp"
        base.mkdir(parents=True, exist_ok=True)
        return base / uuid.uuid4().hex

    def _lock(self, digest: str) -> FileLock:
        locks = self.root / "locks"
        locks.mkdir(parents=True, exist_ok=True)
        return FileLock(locks / self.folder(digest).parent.name)

    # ── Stamps ────────────────────────────────────────────────────────────────

    def _stamp_file(self, digest: str) -> Path:
        return self.root / "stamps" / digest.removeprefix("sha256:")

    def _read_stamp(self, digest: str) -> str:
        try:
            return self._stamp_file(digest).read_text()
        except (FileNotFoundError, NotADirectoryError, UnicodeDecodeError):
            return ""

    def _stamp(self, digest: str, seen: str) -> None:
        """Remember that the bytes are right, if the files are still those that were seen before they were hashed."""
        folder = self.folder(digest)
        with contextlib.suppress(OSError):  # a full disk or a store that can only be read: hashed again next time
            if seen != fingerprint(folder) or time.time() - _last_change(folder) < _SETTLED_SECONDS:
                return
            stamp = self._stamp_file(digest)
            stamp.parent.mkdir(exist_ok=True)
            aside = stamp.with_name(f".{stamp.name}.{uuid.uuid4().hex}")
            aside.write_text(seen)
            aside.replace(stamp)


def fingerprint(folder: Path) -> str:
    """Changes when a file of a folder is written to or replaced, its manifest left out, which is read each time; and when the machine
    starts anew."""
    found = [(entry.name, entry.stat()) for entry in os.scandir(folder) if entry.name != MANIFEST]
    files = sorted((name, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns, stat.st_ino) for name, stat in found)
    return json_digest([_boot(), files])


def delete(path: Path) -> None:
    """Delete a file or a folder, as far as that is possible."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


@functools.cache
def _boot() -> str:
    """Names the time since this machine was started."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text()
    except OSError:  # no Linux
        import psutil

        return str(round(psutil.boot_time()))


def _last_change(folder: Path) -> float:
    times = [max(entry.stat().st_mtime, entry.stat().st_ctime) for entry in os.scandir(folder) if entry.name != MANIFEST]
    return max(times, default=0.0)


def _sizes(folder: Path) -> Iterator[int]:
    if folder.is_dir():
        yield from (entry.stat().st_size for entry in os.scandir(folder))


def _take_place(folder: Path, target: Path) -> bool:
    """Rename, unless the target is taken."""
    try:
        folder.rename(target)
    except OSError as error:
        taken = error.errno in (errno.ENOTEMPTY, errno.EEXIST)  # or was: it may be gone again by now
        if not taken and not (error.errno == errno.ENOTDIR and os.path.lexists(target)):
            raise
        return False
    return True
