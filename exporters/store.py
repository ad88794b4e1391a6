"""The artifact store: folders by content, and one small reference for each (stage, backend, model).

    objects/<2>/<digest>/   the files of one artifact and `manifest.json`, which names each with its size and sha256
    refs/<family>/<stage>/<backend>/<model>.json

An artifact's digest is the sha256 of its manifest. Nothing is ever half there: a local object is written aside and renamed, a remote
one counts once its manifest, written last, is there; references are replaced whole. Two writers of the same artifact both succeed.
"""

import contextlib
import hashlib
import json
import shutil
import tempfile
import uuid
from pathlib import Path
from typing import Any

from upath import UPath

from exporters.errors import CorruptArtifact, StoreError

MANIFEST = "manifest.json"
_CHUNK = 1 << 20


def file_digest(path: Path | UPath) -> str:
    """sha256 of a file's bytes, hexadecimal."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
    return digest.hexdigest()


def json_digest(value: Any) -> str:
    """sha256 of a value's canonical JSON, hexadecimal."""
    return hashlib.sha256(json.dumps(value, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


class Store:
    """Artifacts under `root`: a local folder, or any URL that fsspec knows (`s3://bucket/prefix`, `memory://`).

    Raises:
        StoreError: from every method, if the place can't be read or written.
    """

    def __init__(self, root: str | Path | UPath) -> None:
        self.root = UPath(root)
        self._is_local = self.root.protocol in ("", "file", "local")

    # ── Objects ───────────────────────────────────────────────────────────────

    def scratch(self) -> Path:
        """A new empty local folder to write an artifact into; on the store's own file system where that is local.

        `put` consumes it; whoever fails before removes it.
        """
        try:
            if self._is_local:
                base = Path(self.root.path) / "tmp"
                base.mkdir(parents=True, exist_ok=True)
            else:
                base = Path(_temporary_root())
            folder = base / uuid.uuid4().hex
            folder.mkdir()
        except OSError as error:
            raise StoreError(
                f"can't write to {self.root}: {error.strerror or error}", next="set ZOOPORT_HOME to a folder you can write to"
            ) from error
        return folder

    def put(self, folder: Path) -> str:
        """Take a folder's files (no subfolders) as an artifact; its digest, `sha256:…`. The folder is gone afterwards."""
        try:
            files = {path.name: {"size": path.stat().st_size, "sha256": file_digest(path)} for path in sorted(folder.iterdir())}
            digest = f"sha256:{json_digest(files)}"
            (folder / MANIFEST).write_text(json.dumps(files, sort_keys=True, indent=1))
            target = self._object(digest)
            if self._is_local:
                self._publish_local(folder, Path(target.path))
            else:
                self._publish_remote(folder, target)
        except OSError as error:
            raise StoreError(
                f"can't write to {self.root}: {error.strerror or error}", next="free some space, or set ZOOPORT_HOME elsewhere"
            ) from error
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        return digest

    def get(self, digest: str) -> Path:
        """A local folder with the artifact's files, each checked against the manifest, the manifest against the digest.

        Raises:
            CorruptArtifact: a file is missing, damaged or too many bytes short; the object is set aside so that it is made again.
        """
        target = self._object(digest)
        if self._is_local:
            folder = Path(target.path)
        else:
            folder = Path(_temporary_root()) / "cache" / target.name
            if not (folder / MANIFEST).exists():
                self._fetch(target, folder)
        problem = self._problem(folder, digest)
        if problem:
            self.discard(digest)
            if not self._is_local:
                shutil.rmtree(folder, ignore_errors=True)
            raise CorruptArtifact(f"{target}: {problem}", next="run the export again: the artifact will be made anew")
        return folder

    def has(self, digest: str) -> bool:
        """Whether the artifact is there, by its manifest; its bytes are checked when it is read."""
        return (self._object(digest) / MANIFEST).exists()

    def discard(self, digest: str) -> None:
        """Remove an artifact."""
        target = self._object(digest)
        if self._is_local:
            # renamed first: a reader never sees half of it
            aside = self.scratch()
            with contextlib.suppress(FileNotFoundError):
                Path(target.path).rename(aside / "discarded")
            shutil.rmtree(aside, ignore_errors=True)
        elif target.exists():
            target.fs.rm(target.path, recursive=True)

    def path(self, digest: str) -> str:
        """Where an artifact lies, for people."""
        return str(self._object(digest))

    def _object(self, digest: str) -> UPath:
        name = digest.removeprefix("sha256:")
        return self.root / "objects" / name[:2] / name

    def _publish_local(self, folder: Path, target: Path) -> None:
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            folder.rename(target)
        except OSError:
            # somebody published the same bytes first: theirs are ours, unless they are damaged
            if not target.is_dir():
                raise
            if self._problem(target, f"sha256:{target.name}"):
                self.discard(f"sha256:{target.name}")
                folder.rename(target)

    def _publish_remote(self, folder: Path, target: UPath) -> None:
        for path in sorted(folder.iterdir(), key=lambda path: path.name == MANIFEST):
            (target / path.name).write_bytes(path.read_bytes())

    def _fetch(self, target: UPath, folder: Path) -> None:
        """Copy a remote object into the local cache; nothing, if it isn't there."""
        if not (target / MANIFEST).exists():
            return
        partial = folder.with_name(f"{folder.name}.{uuid.uuid4().hex}")
        partial.mkdir(parents=True)
        for path in target.iterdir():
            (partial / path.name).write_bytes(path.read_bytes())
        try:
            partial.rename(folder)
        except OSError:
            shutil.rmtree(partial, ignore_errors=True)

    def _problem(self, folder: Path, digest: str) -> str:
        """What is wrong with an artifact's files, or an empty string."""
        try:
            files = json.loads((folder / MANIFEST).read_text())
            if f"sha256:{json_digest(files)}" != digest:
                return "the manifest isn't the one that the digest names"
            for name, expected in files.items():
                path = folder / name
                if path.stat().st_size != expected["size"] or file_digest(path) != expected["sha256"]:
                    return f"{name} is damaged"
        except FileNotFoundError as error:
            return f"{Path(error.filename).name} is missing"
        except (ValueError, KeyError, TypeError) as error:
            return f"the manifest can't be read: {error}"
        return ""

    # ── References ────────────────────────────────────────────────────────────

    def read_ref(self, *parts: str) -> dict[str, Any] | None:
        """The reference at `refs/<parts…>.json`, or None where there is none or it can't be read: then it is made again."""
        try:
            content = json.loads(self._ref(parts).read_text())
        except (FileNotFoundError, NotADirectoryError, ValueError):
            return None
        except OSError as error:
            raise StoreError(f"can't read {self._ref(parts)}: {error.strerror or error}") from error
        return content if isinstance(content, dict) else None

    def write_ref(self, *parts: str, content: dict[str, Any]) -> None:
        """Replace a reference whole."""
        target = self._ref(parts)
        try:
            write_whole(target, json.dumps(content, sort_keys=True, indent=1))
        except OSError as error:
            raise StoreError(
                f"can't write {target}: {error.strerror or error}", next="free some space, or set ZOOPORT_HOME elsewhere"
            ) from error

    def _ref(self, parts: tuple[str, ...]) -> UPath:
        *folders, name = parts
        return self.root.joinpath("refs", *folders, f"{name}.json")


def write_whole(target: Path | UPath, text: str) -> None:
    """Write a file aside and rename it, so that a reader sees the old or the new one and never a part; its folders are made."""
    target.parent.mkdir(parents=True, exist_ok=True)
    if isinstance(target, UPath) and target.protocol not in ("", "file", "local"):
        target.write_text(text)  # an object store replaces whole objects itself
        return
    local = Path(str(target.path if isinstance(target, UPath) else target))
    aside = local.with_name(f".{local.name}.{uuid.uuid4().hex}")
    try:
        aside.write_text(text)
        aside.replace(local)
    finally:
        aside.unlink(missing_ok=True)


def _temporary_root() -> str:
    folder = Path(tempfile.gettempdir()) / "zooport"
    folder.mkdir(exist_ok=True)
    return str(folder)
