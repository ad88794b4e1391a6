"""The artifact store: folders by content, and one small reference for each (stage, backend, model).

    objects/<2>/<digest>/   the files of one artifact and `manifest.json`, which names each with its size and sha256
    refs/<family>/<stage>/<backend>/<model>.json    and, of other kinds, under `samples`, `verification` and `reports`

An artifact's digest is the sha256 of its manifest. Nothing is ever half there: a local object is written aside and renamed, a remote
one counts once its manifest, written last, is there; references are replaced whole. Two writers of the same artifact both succeed.
"""

import contextlib
import json
import shutil
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from upath import UPath

from exporters import manifest
from exporters.errors import CorruptArtifact, StoreError, UsageError, ZooportError
from exporters.home import home
from exporters.manifest import MANIFEST, file_digest, json_digest
from exporters.store_local import LocalObjects, StoredObject, fingerprint
from exporters.store_remote import RemoteObjects

__all__ = ["MANIFEST", "Store", "StoredObject", "file_digest", "json_digest", "write_whole"]

_LOCAL_PROTOCOLS = ("", "file", "local")
# in a reference's file, beside what it says: sha256 of that
_CHECKSUM = "checksum"
_AT_ONCE = 256  # references read in parallel from a remote store


class Store:
    """Artifacts under `root`: a local folder, or any URL that fsspec knows (`s3://bucket/prefix`, `memory://`).

    What is read from a remote store is copied into `cache` once; since artifacts go by content, a copy never goes stale, and a hit is one
    request, for the reference.

    Args:
        cache: by default a folder in zooport's home. Stores and processes may share it.

    Attributes:
        objects: the artifacts, where the store is.
        copies: this machine's, of a remote store.

    Raises:
        UsageError: there is no file system for this URL.
        StoreError: from every method, if the place can't be read or written.
    """

    def __init__(self, root: str | Path | UPath, *, cache: Path | None = None) -> None:
        self.root = _open(root)
        self.objects: LocalObjects | RemoteObjects
        self.copies: LocalObjects | None = None
        if self.root.protocol in _LOCAL_PROTOCOLS:
            self.objects = self._local = LocalObjects(Path(self.root.path))
        else:
            self.objects = RemoteObjects(self.root)
            self.copies = self._local = LocalObjects(cache or home() / "cache" / "artifacts")

    # ── Objects ───────────────────────────────────────────────────────────────

    def scratch(self) -> Path:
        """A new empty local folder to write an artifact into; on the file system where it will lie.

        `put` consumes it; whoever fails before removes it.
        """
        with self.reporting("write to"):
            return self._local.scratch()

    def put(self, folder: Path) -> str:
        """Take a folder's files (no subfolders) as an artifact; its digest, `sha256:…`. The folder is gone afterwards."""
        try:
            with self.reporting("write to"):
                seen = fingerprint(folder)
                digest = manifest.write(folder)
                if isinstance(self.objects, RemoteObjects):
                    self.objects.upload(folder, digest)
                self._local.publish(folder, digest, seen)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        return digest

    def get(self, digest: str) -> Path:
        """A local folder with the artifact's files, checked against the manifest, the manifest against the digest.

        Raises:
            CorruptArtifact: a file is missing or damaged, or this is no digest; whoever makes the artifact again mends it.
        """
        if not manifest.is_digest(digest):
            raise manifest.corrupt(self.root, f"{digest!r} is no artifact's digest")
        with self.reporting("read"):
            if isinstance(self.objects, LocalObjects):
                return self.objects.open(digest)
            with contextlib.suppress(CorruptArtifact):  # no copy here, or a damaged one, which is gone now
                return self._local.open(digest)
            folder = self._local.scratch()
            try:
                self.objects.fetch(digest, folder)
                self._local.publish(folder, digest, fingerprint(folder))
            finally:
                shutil.rmtree(folder, ignore_errors=True)
            return self._local.open(digest)

    def has(self, digest: str) -> bool:
        """Whether the artifact is there, by its manifest; its bytes are checked when it is read."""
        with self.reporting("read"):
            return self.objects.has(digest)

    def discard(self, digest: str) -> None:
        """Remove an artifact, and this machine's copy of it."""
        with self.reporting("delete from"):
            self.objects.remove(digest)
            self._local.remove(digest)

    def path(self, digest: str) -> str:
        """Where an artifact lies, for people."""
        name = digest.removeprefix("sha256:")
        return str(self.root / "objects" / name[:2] / name)

    # ── References ────────────────────────────────────────────────────────────

    def read_ref(self, *parts: str) -> dict[str, Any] | None:
        """The reference at `refs/<parts…>.json`, or None where there is none or it isn't what was written: then it is made again."""
        target = self._ref(parts)
        with self.reporting("read"):
            try:
                if isinstance(self.objects, RemoteObjects):
                    return _parse_ref(self.objects.read(target.path))
                return _parse_ref(Path(target.path).read_bytes())
            except (FileNotFoundError, NotADirectoryError):
                return None

    def write_ref(self, *parts: str, content: dict[str, Any]) -> None:
        """Replace a reference whole."""
        target = self._ref(parts)
        plain = json.loads(json.dumps(content))
        text = json.dumps({**plain, _CHECKSUM: json_digest(plain)}, sort_keys=True, indent=1)
        with self.reporting("write to"):
            if isinstance(self.objects, RemoteObjects):
                self.objects.write(target.path, text.encode())
            else:
                write_whole(Path(target.path), text)

    def remove_ref(self, *parts: str) -> None:
        """Forget a reference."""
        target = self._ref(parts)
        with self.reporting("delete from"), contextlib.suppress(FileNotFoundError):
            target.unlink()

    def refs(self, *parts: str) -> Iterator[tuple[tuple[str, ...], dict[str, Any] | None]]:
        """Every reference's parts and content, None where it isn't what was written.

        Args:
            parts: only those that begin with these; the others aren't even listed.
        """
        above = self.root / "refs"
        folder = above.joinpath(*parts)
        with self.reporting("read"):
            files = [path for path in sorted(folder.fs.find(folder.path)) if path.endswith(".json")]
            for start in range(0, len(files), _AT_ONCE):
                for path, text in folder.fs.cat(files[start : start + _AT_ONCE], on_error="return").items():
                    if isinstance(text, FileNotFoundError):
                        continue  # removed meanwhile
                    if isinstance(text, Exception):
                        raise text
                    yield tuple(path.removeprefix(f"{above.path}/").removesuffix(".json").split("/")), _parse_ref(text)

    # ── Other files ───────────────────────────────────────────────────────────
    # kept beside the artifacts by whoever has something to keep, and never collected

    def read_file(self, *parts: str) -> bytes | None:
        """The file at `<parts…>`, or None where there is none."""
        target = self.root.joinpath(*parts)
        with self.reporting("read"), contextlib.suppress(FileNotFoundError, NotADirectoryError):
            return self.objects.read(target.path) if isinstance(self.objects, RemoteObjects) else Path(target.path).read_bytes()
        return None

    def write_file(self, *parts: str, content: bytes) -> str:
        """Write a file whole; where it lies, for people."""
        target = self.root.joinpath(*parts)
        with self.reporting("write to"):
            if isinstance(self.objects, RemoteObjects):
                self.objects.write(target.path, content)
            else:
                write_whole(Path(target.path), content)
        return str(target)

    def files(self, folder: str) -> list[str]:
        """Names of the files in a folder, sorted."""
        place = self.root / folder
        with self.reporting("read"):
            names = [path.rpartition("/")[2] for path in place.fs.find(place.path, maxdepth=1)]
        return sorted(name for name in names if not name.startswith("."))  # those are being written

    def _ref(self, parts: tuple[str, ...]) -> UPath:
        *folders, name = parts
        return self.root.joinpath("refs", *folders, f"{name}.json")

    # ── Errors ────────────────────────────────────────────────────────────────

    @contextlib.contextmanager
    def reporting(self, doing: str) -> Iterator[None]:
        """For the block, turn what the place raises into a StoreError."""
        try:
            yield
        except ZooportError:
            raise
        except OSError as error:
            raise self._error(doing, error.strerror or str(error)) from error
        except Exception as error:  # each remote file system has kinds of its own for what is an OSError here
            if self.copies is None:
                raise
            raise self._error(doing, f"{type(error).__name__}: {error}") from error

    def _error(self, doing: str, reason: str) -> StoreError:
        advice = "free some space, or set ZOOPORT_HOME elsewhere"
        if self.copies is not None:
            advice = f"check the URL, its credentials and endpoint (AWS_ENDPOINT_URL), and that {self.copies.root} can be written"
        return StoreError(f"can't {doing} {self.root}: {reason}", next=advice)


def _open(root: str | Path | UPath) -> UPath:
    """A store's root, whose file system never answers from listings that it kept."""
    try:
        path = UPath(root)
        if path.protocol not in _LOCAL_PROTOCOLS:
            path = UPath(path, use_listings_cache=False)
        path.fs  # noqa: B018 (imports the file system's package)
    except (ValueError, ImportError) as error:
        raise UsageError(
            f"can't open the store {root}: {error}", next="give a folder or a URL that fsspec knows, its package installed (s3fs for s3://)"
        ) from error
    return path


def _parse_ref(text: bytes) -> dict[str, Any] | None:
    """What a reference says, or None if it isn't what `write_ref` wrote."""
    try:
        content = json.loads(text)
    except ValueError:
        return None
    if not isinstance(content, dict):
        return None
    checksum = content.pop(_CHECKSUM, None)
    return content if checksum == json_digest(content) else None


def write_whole(target: Path, content: str | bytes) -> None:
    """Write a local file aside and rename it, so that a reader sees the old or the new one and never a part; its folders are made."""
    target.parent.mkdir(parents=True, exist_ok=True)
    aside = target.with_name(f".{target.name}.{uuid.uuid4().hex}")
    try:
        aside.write_bytes(content.encode() if isinstance(content, str) else content)
        aside.replace(target)
    finally:
        aside.unlink(missing_ok=True)
