"""Reading an artifact again costs next to nothing, and still no byte is served that isn't the artifact's."""

import json
import os
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from store_stage import run, write

from exporters import manifest, store_local
from exporters.errors import CorruptArtifact
from exporters.store import MANIFEST, Store


@pytest.fixture
def hashed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of files whose bytes are read to be hashed."""
    names: list[str] = []
    original = manifest.file_digest

    def counted(path: Path) -> str:
        names.append(path.name)
        return original(path)

    monkeypatch.setattr(manifest, "file_digest", counted)
    return names


@pytest.fixture
def stamped(tmp_path: Path) -> tuple[Store, str]:
    """A store with an artifact whose bytes are known to be right."""
    store = Store(tmp_path)
    digest = store.put(write(store, "text"))
    time.sleep(0.1)
    store.get(digest)
    return store, digest


def test_bytes_are_hashed_once(stamped: tuple[Store, str], tmp_path: Path, hashed: list[str]) -> None:
    _, digest = stamped
    for _ in range(3):
        Store(tmp_path).get(digest)
    assert hashed == []


def test_what_took_time_to_write_is_not_hashed_again_right_after(tmp_path: Path, hashed: list[str]) -> None:
    store = Store(tmp_path)
    folder = write(store, "text")
    time.sleep(0.1)
    store.get(store.put(folder))
    assert sorted(hashed) == ["a", "b"]


def test_what_was_written_this_moment_is_hashed_again(tmp_path: Path, hashed: list[str]) -> None:
    """A file may change twice within one tick of its file system's clock."""
    store = Store(tmp_path)
    folder = write(store, "text")
    now = time.time() + 10  # the clock isn't waited for
    for name in ("a", "b"):
        os.utime(folder / name, (now, now))
    store.get(store.put(folder))
    assert sorted(hashed) == ["a", "a", "b", "b"]


def test_a_hit_of_90_mb_takes_less_than_a_fifth_of_a_cpu_second(tmp_path: Path) -> None:
    store = Store(tmp_path)
    folder = store.scratch()
    (folder / "model.pte").write_bytes(os.urandom(1 << 20) * 90)
    digest = store.put(folder)
    store.get(digest)
    before = time.process_time()
    Store(tmp_path).get(digest)
    assert time.process_time() - before < 0.02  # hashing takes 0.08 to 0.4 where this was measured


def _same_size(file: Path) -> None:
    file.write_bytes(b"#" * file.stat().st_size)


def _same_size_and_time(file: Path) -> None:
    stat = file.stat()
    _same_size(file)
    os.utime(file, ns=(stat.st_atime_ns, stat.st_mtime_ns))


def _replaced_by_one_of_the_same_size_and_time(file: Path) -> None:
    other = file.parents[3] / "other"
    shutil.copy2(file, other)
    _same_size_and_time(other)
    other.replace(file)


def _other_manifest(file: Path) -> None:
    files = json.loads((file.parent / MANIFEST).read_text())
    files["a"] = files["b"]
    (file.parent / MANIFEST).write_text(json.dumps(files))


CHANGES: dict[str, Callable[[Path], object]] = {
    "truncated": lambda file: file.write_bytes(file.read_bytes()[:-1]),
    "same size": _same_size,
    "same size and time": _same_size_and_time,
    "replaced": _replaced_by_one_of_the_same_size_and_time,
    "deleted": lambda file: file.unlink(),
    "renamed": lambda file: file.rename(file.with_name("c")),
    "another file": lambda file: file.with_name("c").write_text(""),
    "a folder": lambda file: (file.unlink(), file.mkdir()),
    "manifest gone": lambda file: file.with_name(MANIFEST).unlink(),
    "manifest of others": _other_manifest,
    "no folder": lambda file: (shutil.rmtree(file.parent), file.parent.write_text("")),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_after_that_is_noticed_and_mended(stamped: tuple[Store, str], tmp_path: Path, change: str) -> None:
    store, digest = stamped
    CHANGES[change](store.get(digest) / "a")
    with pytest.raises(CorruptArtifact):
        Store(tmp_path).get(digest)
    assert not store.has(digest)
    assert run(store, "text").text == "text"
    assert run(store, "text").cached


@pytest.mark.parametrize("system", ["linux", "another"])
def test_bytes_are_hashed_again_after_the_machine_was_started_anew(
    stamped: tuple[Store, str], hashed: list[str], monkeypatch: pytest.MonkeyPatch, system: str
) -> None:
    """A power cut may have lost what wasn't on the disk yet, and left the files' sizes and times."""
    store, digest = stamped
    read_text = Path.read_text

    def boot_id(self: Path) -> str:
        if self != Path("/proc/sys/kernel/random/boot_id"):
            return read_text(self)
        if system == "linux":
            return "another boot"
        raise FileNotFoundError(self)

    monkeypatch.setattr(Path, "read_text", boot_id)
    monkeypatch.setattr(store_local, "_boot", store_local._boot.__wrapped__)
    for _ in range(2):
        store.get(digest)
    assert sorted(hashed) == ["a", "b"]


@pytest.mark.parametrize("content", [b"", b"\xff\xfe", b"sha256"])
def test_a_stamp_that_is_no_stamp_counts_as_none(stamped: tuple[Store, str], tmp_path: Path, hashed: list[str], content: bytes) -> None:
    store, digest = stamped
    next((tmp_path / "stamps").iterdir()).write_bytes(content)
    store.get(digest)
    assert sorted(hashed) == ["a", "b"]
    store.get(digest)
    assert sorted(hashed) == ["a", "b"]


def test_a_store_that_can_only_be_read_is_read(small_disk: Path) -> None:
    store = Store(small_disk / "store")
    good, bad = (store.put(write(store, text)) for text in ("good", "bad"))
    (store.get(bad) / "a").write_text("???")
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    assert (store.get(good) / "a").read_text() == "good"
    for _ in range(2):  # it can't be removed either
        with pytest.raises(CorruptArtifact, match="a is damaged"):
            store.get(bad)
