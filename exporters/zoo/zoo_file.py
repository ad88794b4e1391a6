"""Checkpoints under names of their own: `zoo.toml`, in the project and in zooport's home. Imports neither torch nor transformers.

[checkpoints.support-tickets]
path = "models/tickets"          # a folder, from this file's, or: hub = "organization/name"
task = "text-classification"     # optional: the head; the class that its config names by default
revision = "v2"                  # optional, of a hub id: branch, tag or commit
"""

import json
import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from exporters import hub
from exporters.errors import StoreError, UsageError
from exporters.home import home
from exporters.store import write_whole
from exporters.zoo import catalogue
from exporters.zoo.checkpoint_info import describe
from exporters.zoo.tasks import TASKS

NAME = "zoo.toml"
TABLE = "checkpoints"
# what a file, a partition key of Dagster and a shell take as it is; a slash would be a folder or a hub id, an @ a variant
_NAME = re.compile(r"[A-Za-z0-9][\w.-]*", re.ASCII)
_BARE = re.compile(r"[\w-]+", re.ASCII)
_FIELDS = ("path", "hub", "task", "revision")


@dataclass(frozen=True)
class NamedCheckpoint:
    """One entry of a `zoo.toml`: either `path` or `hub` is set, and what isn't set is empty.

    Attributes:
        file: where it is written.
        path: as written there; a relative one starts at the file's folder.
    """

    name: str
    file: Path
    path: str = ""
    hub: str = ""
    task: str = ""
    revision: str = ""

    @property
    def folder(self) -> Path:
        """The checkpoint's folder. Of a hub id that isn't cached, it is fetched.

        Raises:
            CheckpointError: it isn't cached and the hub can't be reached, or doesn't have it.
        """
        return hub.snapshot(self.hub, self.revision or None) if self.hub else self.file.parent / Path(self.path).expanduser()

    @property
    def where(self) -> str:
        """Path, or hub id with its revision, for people to read."""
        return self.path or (f"{self.hub}@{self.revision}" if self.revision else self.hub)


# ── Reading ───────────────────────────────────────────────────────────────────


def files() -> list[Path]:
    """The files that are there: the nearest from the current folder upwards, then the one in zooport's home."""
    here = Path.cwd()
    found = next((file for folder in (here, *here.parents) if (file := folder / NAME).is_file()), None)
    at_home = home() / NAME
    return list(dict.fromkeys(file for file in (found, at_home) if file is not None and file.is_file()))


def read() -> dict[str, NamedCheckpoint]:
    """Every named checkpoint; what the project names goes before what is named at home.

    Raises:
        UsageError: a file isn't TOML, or says what can't be.
    """
    named: dict[str, NamedCheckpoint] = {}
    for file in files():
        for entry in _entries(file):
            named.setdefault(entry.name, entry)
    return named


def _entries(file: Path) -> Iterator[NamedCheckpoint]:
    content = _parse(file, _text(file))
    if strange := sorted(content.keys() - {TABLE}):
        raise UsageError(f"{file} has {strange[0]!r}, which says nothing to zooport", next=f"name checkpoints under [{TABLE}.NAME]")
    tables = content.get(TABLE, {})
    if not isinstance(tables, dict):
        raise UsageError(f"{file}: {TABLE} is no table", next=f"write a table [{TABLE}.NAME] for each")
    for name, fields in tables.items():
        yield _entry(file, name, fields)


def _entry(file: Path, name: str, fields: Any) -> NamedCheckpoint:
    if catalogue.has(name):
        raise UsageError(f"{file}: {name} is a class of the zoo", next="give the checkpoint another name")
    if not _NAME.fullmatch(name):
        raise UsageError(f"{file}: {name!r} can't be a name", next="take letters, digits, dots, dashes and underscores")
    if not isinstance(fields, dict) or not all(isinstance(value, str) for value in fields.values()):
        raise UsageError(f"{file}: {name} is no table of strings", next=f"write a table [{TABLE}.{name}] with {' or '.join(_FIELDS[:2])}")
    if strange := sorted(fields.keys() - set(_FIELDS)):
        raise UsageError(f"{file}: {name} has {strange[0]!r}", next=f"the fields are {', '.join(_FIELDS)}")
    entry = NamedCheckpoint(name, file, **fields)
    if bool(entry.path) == bool(entry.hub):
        raise UsageError(f"{file}: {name} has to have either path or hub", next="path is a folder, hub is organization/name")
    if entry.hub and not hub.is_hub_id(entry.hub):
        raise UsageError(f"{file}: {name}: {entry.hub!r} is no hub id", next="write it as organization/name, and a folder as path")
    if entry.revision and not entry.hub:
        raise UsageError(f"{file}: {name}: a folder has no revision", next="leave the revision out, or name a hub id")
    if entry.task and entry.task not in TASKS.values():
        raise UsageError(f"{file}: {name}: no task called {entry.task!r}", next=f"the tasks are {', '.join(sorted(set(TASKS.values())))}")
    return entry


def _text(file: Path) -> str:
    try:
        return file.read_bytes().decode()  # line ends as they are
    except (OSError, ValueError) as error:
        raise StoreError(f"{file} can't be read: {error}", next="mend the file, or move it away") from error


def _parse(file: Path, text: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{file} is no TOML: {error}", next="mend that line") from error


# ── Writing ───────────────────────────────────────────────────────────────────


def add(name: str, where: str, *, task: str = "", revision: str = "", replace: bool = False) -> NamedCheckpoint:
    """Write an entry for a folder or a hub id into the project's `zoo.toml`, or where there is none into that of zooport's home.

    The rest of the file stays as it is, byte by byte. A folder is looked at; a hub id is taken as given, and fetched when it is exported.

    Raises:
        UsageError: the name or the task can't be, the name is taken, or `where` is neither a checkpoint folder nor a hub id.
        StoreError: the file can't be written, or has the entry in a form that can't be replaced by machine.
    """
    taken = read().get(name)
    if taken is not None and not replace:
        raise UsageError(f"{taken.file} already has {name}: {taken.where}", next="give another name, or --replace")
    file = taken.file if taken is not None else next(iter(files()), home() / NAME)
    folder = Path(where).expanduser().absolute()
    if folder.exists() or not hub.is_hub_id(where):
        describe(folder)
        inside = folder.is_relative_to(file.parent)
        fields = {"path": str(folder.relative_to(file.parent) if inside else folder)}
    else:
        fields = {"hub": where}
    fields |= {key: value for key, value in (("task", task), ("revision", revision)) if value}
    entry = _entry(file, name, fields)
    before = _text(file) if file.is_file() else ""
    after = _with_table(before, name, fields)
    wanted = _parse(file, before)
    wanted.setdefault(TABLE, {})[name] = fields
    if not _is_toml_of(after, wanted):
        raise StoreError(
            f"{file} has its checkpoints in a form that only a person can change", next=f"write [{TABLE}.{name}] there by hand"
        )
    try:
        write_whole(file, after)
    except OSError as error:
        raise StoreError(f"{file} can't be written: {error.strerror or error}", next="check the folder's permissions") from error
    return entry


def _with_table(text: str, name: str, fields: dict[str, str]) -> str:
    """`text` with the table of `name` put in its old one's place, or at the end."""
    key = name if _BARE.fullmatch(name) else json.dumps(name)
    header = f"[{TABLE}.{key}]"
    table = "".join([f"{header}\n", *(f"{field} = {json.dumps(value, ensure_ascii=False)}\n" for field, value in fields.items())])
    lines = re.split(r"(?<=\n)", text)
    headers = [index for index, line in enumerate(lines) if line.lstrip().startswith("[")]
    start = next((index for index in headers if lines[index].partition("#")[0].strip() == header), None)
    if start is None:
        return text + ("" if text.endswith("\n") or not text else "\n") + ("\n" if text else "") + table
    end = next((index for index in headers if index > start), len(lines))
    while not lines[end - 1].strip() or lines[end - 1].lstrip().startswith("#"):  # what stands before the next table is about that one
        end -= 1
    return "".join([*lines[:start], table, *lines[end:]])


def _is_toml_of(text: str, content: dict[str, Any]) -> bool:
    try:
        return tomllib.loads(text) == content
    except tomllib.TOMLDecodeError:
        return False
