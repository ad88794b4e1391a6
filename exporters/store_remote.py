"""Artifacts on a file system that fsspec knows: an artifact counts once its manifest, written last, is there.

Listings are never cached: another process may have written since. What is damaged isn't deleted by those who read it, who may be wrong (a
network that fails) or late (it is being written anew): whoever makes the artifact again overwrites it, byte by byte the same.
"""

import contextlib
import datetime
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from upath import UPath

from exporters import manifest
from exporters.errors import CorruptArtifact
from exporters.manifest import MANIFEST, is_digest
from exporters.store_local import StoredObject

# how file systems call the time of the last write in what they tell about a file
_TIME_FIELDS = ("LastModified", "mtime", "last_modified", "updated", "modified", "created")


class RemoteObjects:
    """Artifacts under a URL. Raises whatever its file system raises."""

    def __init__(self, root: UPath) -> None:
        self._fs: Any = root.fs
        self._root = root.path.rstrip("/")

    def folder(self, digest: str) -> str:
        """Where an artifact lies, as the file system names it."""
        name = digest.removeprefix("sha256:")
        return f"{self._root}/objects/{name[:2]}/{name}"

    def where(self, digest: str) -> str:
        """The same as a URL, for people."""
        return str(self._fs.unstrip_protocol(self.folder(digest)))

    def upload(self, folder: Path, digest: str) -> None:
        """Write an artifact's files, the manifest last, over what may be there."""
        for path in sorted(folder.iterdir(), key=lambda path: path.name == MANIFEST):
            self.write(f"{self.folder(digest)}/{path.name}", path)

    def write(self, target: str, source: Path | bytes) -> None:
        """Write a file, as one request where the file system knows that: an S3 shows a file whole or not at all."""
        try:
            self._send(target, source)
        except FileNotFoundError:
            # real folders have to be made; never the root, or a typing error would create a bucket
            if not self._fs.isdir(self._root):
                raise
            self._fs.makedirs(target.rpartition("/")[0], exist_ok=True)
            self._send(target, source)

    def read(self, path: str) -> bytes:
        """A small file's bytes, in one request: asked for all of a file, s3fs would first ask for its size."""
        try:
            return bytes(self._fs.cat_file(path, start=0))
        except FileNotFoundError:
            raise
        except OSError:  # an empty file has no byte 0
            return bytes(self._fs.cat_file(path))

    def _send(self, target: str, source: Path | bytes) -> None:
        if isinstance(source, bytes):
            self._fs.pipe_file(target, source)
        else:
            self._fs.put_file(str(source), target)

    def fetch(self, digest: str, into: Path) -> None:
        """Copy an artifact's files into an empty folder, the manifest included.

        Raises:
            CorruptArtifact: it isn't there, or is damaged.
        """
        text, files = self._manifest(digest)
        for name in files:
            with self._present(digest, name):
                self._fs.get_file(f"{self.folder(digest)}/{name}", str(into / name))
        (into / MANIFEST).write_bytes(text)
        manifest.check(into, digest, bytes_too=True)

    def check(self, digest: str) -> None:
        """Read all of an artifact's bytes.

        Raises:
            CorruptArtifact: it isn't there, or is damaged.
        """
        for name, expected in self._manifest(digest)[1].items():
            with self._present(digest, name), self._fs.open(f"{self.folder(digest)}/{name}", "rb") as stream:
                found = manifest.stream_digest(stream)
            if found != expected["sha256"]:
                raise manifest.corrupt(self.where(digest), f"{name} is damaged: its bytes have another sha256")

    def has(self, digest: str) -> bool:
        return bool(self._fs.exists(f"{self.folder(digest)}/{MANIFEST}"))

    def there(self, digest: str) -> bool:
        """Whether there is anything of an artifact."""
        return bool(self._fs.find(self.folder(digest)))

    def stored(self) -> Iterator[StoredObject]:
        """Every artifact, and every part of one."""
        found: dict[str, dict[str, dict[str, Any]]] = defaultdict(dict)
        for path, info in self._fs.find(f"{self._root}/objects", detail=True).items():
            *_, name, file = path.split("/")
            if is_digest(f"sha256:{name}"):
                found[f"sha256:{name}"][file] = info
        for digest, files in sorted(found.items()):
            size = sum(info["size"] for info in files.values())
            yield StoredObject(digest, size, max(map(_written_at, files.values())), MANIFEST in files)

    def remove(self, digest: str, unused_since: float | None = None) -> bool:
        """Remove an artifact, if nobody wrote it after `unused_since`; whether it is gone."""
        files = self._fs.find(self.folder(digest), detail=True)
        if unused_since is not None and any(_written_at(info) > unused_since for info in files.values()):
            return False
        # the manifest first: what is left is no artifact
        for path in sorted(files, key=lambda path: not path.endswith(f"/{MANIFEST}")):
            self._fs.rm_file(path)
        return True

    def remove_damaged(self, digest: str) -> CorruptArtifact | None:
        """Remove an artifact, if it is still damaged: somebody may have replaced it meanwhile. What is wrong with it."""
        try:
            self.check(digest)
        except CorruptArtifact as problem:
            self.remove(digest)
            return problem
        return None

    def _manifest(self, digest: str) -> tuple[bytes, manifest.Files]:
        with self._present(digest, MANIFEST):
            text = self.read(f"{self.folder(digest)}/{MANIFEST}")
        return text, manifest.parse(text, digest, self.where(digest))

    @contextlib.contextmanager
    def _present(self, digest: str, name: str) -> Iterator[None]:
        try:
            yield
        except FileNotFoundError as error:
            raise manifest.corrupt(self.where(digest), f"{name} is missing") from error


def _written_at(info: dict[str, Any]) -> float:
    """When a file was last written; now, which is never too old, where its file system doesn't say."""
    for field in _TIME_FIELDS:
        match info.get(field):
            case datetime.datetime() as moment:
                return moment.timestamp()
            case int() | float() as seconds:
                return float(seconds)
    return time.time()
