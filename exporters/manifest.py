"""What an artifact consists of: `manifest.json` names its files with sizes and sha256; the digest of the manifest names the artifact."""

import hashlib
import json
import os
import re
from pathlib import Path
from typing import Any, BinaryIO

from exporters.errors import CorruptArtifact

MANIFEST = "manifest.json"
_CHUNK = 1 << 20
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")

# of each file, by name: {"size": bytes, "sha256": hexadecimal}
Files = dict[str, dict[str, Any]]


def stream_digest(stream: BinaryIO) -> str:
    """sha256 of what is left of a stream, hexadecimal."""
    digest = hashlib.sha256()
    while chunk := stream.read(_CHUNK):
        digest.update(chunk)
    return digest.hexdigest()


def file_digest(path: Path) -> str:
    """sha256 of a file's bytes, hexadecimal."""
    with path.open("rb") as file:
        return stream_digest(file)


def json_digest(value: Any) -> str:
    """sha256 of a value's canonical JSON, hexadecimal."""
    return hashlib.sha256(json.dumps(value, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def is_digest(value: object) -> bool:
    """Whether this is how artifacts are named: `sha256:…`."""
    return isinstance(value, str) and _DIGEST.fullmatch(value) is not None


def corrupt(where: object, problem: str) -> CorruptArtifact:
    """The error that says what is wrong with an artifact."""
    return CorruptArtifact(f"{where}: {problem}", next="run the export again: the artifact will be made anew")


def write(folder: Path) -> str:
    """Describe a folder's files (it has no subfolders) in its manifest; the artifact's digest."""
    files = {path.name: {"size": path.stat().st_size, "sha256": file_digest(path)} for path in sorted(folder.iterdir())}
    (folder / MANIFEST).write_text(json.dumps(files, sort_keys=True, indent=1))
    return f"sha256:{json_digest(files)}"


def parse(text: bytes, digest: str, where: object) -> Files:
    """The files that a manifest names.

    Raises:
        CorruptArtifact: it isn't the manifest of this artifact.
    """
    try:
        files = json.loads(text)
    except ValueError as error:
        raise corrupt(where, f"the manifest can't be read: {error}") from error
    if f"sha256:{json_digest(files)}" != digest:
        raise corrupt(where, "the manifest isn't the one that the digest names")
    assert isinstance(files, dict)  # a digest is only ever made of one
    return files


def check(folder: Path, digest: str, *, bytes_too: bool) -> None:
    """Compare an artifact's local files with its manifest, and the manifest with its digest.

    Args:
        bytes_too: False compares names and sizes only.

    Raises:
        CorruptArtifact: they differ.
    """
    try:
        files = parse((folder / MANIFEST).read_bytes(), digest, folder)
        strangers = set(os.listdir(folder)) - files.keys() - {MANIFEST}
        if strangers:
            raise corrupt(folder, f"{min(strangers)} doesn't belong to it")
        for name, expected in files.items():
            path = folder / name
            size = path.stat().st_size
            if size != expected["size"]:
                raise corrupt(folder, f"{name} is damaged: {size} bytes of {expected['size']}")
            if bytes_too and file_digest(path) != expected["sha256"]:
                raise corrupt(folder, f"{name} is damaged: its bytes have another sha256")
    except (FileNotFoundError, NotADirectoryError) as error:
        raise corrupt(folder, f"{Path(str(error.filename)).name} is missing") from error
