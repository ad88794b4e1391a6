"""The artifact store: whole or not at all, by content, and never wrong bytes."""

import errno
import json
import shutil
import threading
from pathlib import Path

import pytest

from exporters.errors import CorruptArtifact, StoreError
from exporters.store import MANIFEST, Store, write_whole


def put(store: Store, **files: str) -> str:
    folder = store.scratch()
    for name, text in files.items():
        (folder / name).write_text(text)
    return store.put(folder)


@pytest.fixture(params=["local", "memory"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    return Store(tmp_path / "store") if request.param == "local" else Store(f"memory://{tmp_path.name}", cache=tmp_path / "cache")


def object_folder(store: Store, digest: str) -> Path:
    return Path(store.path(digest))


def test_what_was_put_is_got(store: Store) -> None:
    digest = put(store, a="1", b="2")
    folder = store.get(digest)
    assert {path.name: path.read_text() for path in folder.iterdir() if path.name != MANIFEST} == {"a": "1", "b": "2"}


def test_the_digest_depends_on_names_and_bytes_only(tmp_path: Path) -> None:
    first, second = Store(tmp_path / "one"), Store(tmp_path / "two")
    assert put(first, a="1", b="2") == put(second, b="2", a="1")
    assert put(first, a="1") != put(first, a="2")
    assert put(first, a="1") != put(first, b="1")


def test_putting_the_same_twice_leaves_one_object(store: Store) -> None:
    assert put(store, a="1") == put(store, a="1")
    assert store.get(put(store, a="1"))


def test_scratch_is_gone_after_put(tmp_path: Path) -> None:
    store = Store(tmp_path)
    put(store, a="1")
    assert list((tmp_path / "tmp").iterdir()) == []


@pytest.mark.parametrize("damage", ["truncated", "changed", "deleted", "manifest deleted", "manifest changed"])
def test_damage_is_noticed_and_the_object_set_aside(tmp_path: Path, damage: str) -> None:
    store = Store(tmp_path)
    digest = put(store, a="some bytes", b="others")
    folder = object_folder(store, digest)
    match damage:
        case "truncated":
            (folder / "a").write_text("some")
        case "changed":
            (folder / "a").write_text("same bytes")
        case "deleted":
            (folder / "a").unlink()
        case "manifest deleted":
            (folder / MANIFEST).unlink()
        case "manifest changed":
            files = json.loads((folder / MANIFEST).read_text())
            files["a"] = files["b"]
            (folder / MANIFEST).write_text(json.dumps(files))
    with pytest.raises(CorruptArtifact):
        store.get(digest)
    assert not folder.exists()
    assert put(store, a="some bytes", b="others") == digest
    assert store.get(digest)


def test_a_damaged_object_is_replaced_by_putting_it_again(tmp_path: Path) -> None:
    store = Store(tmp_path)
    digest = put(store, a="1")
    (object_folder(store, digest) / "a").write_text("2")
    assert put(store, a="1") == digest
    assert (store.get(digest) / "a").read_text() == "1"


def test_a_missing_object_is_corrupt(store: Store) -> None:
    with pytest.raises((CorruptArtifact, FileNotFoundError)):
        store.get("sha256:" + "0" * 64)


def test_writers_of_the_same_artifact_all_succeed(tmp_path: Path) -> None:
    digests: list[str] = []
    threads = [threading.Thread(target=lambda: digests.append(put(Store(tmp_path), a="1" * 100_000))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(digests) == 8
    assert len(set(digests)) == 1
    assert Store(tmp_path).get(digests[0])


def test_a_full_disk_is_a_store_error_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store(tmp_path)
    folder = store.scratch()
    (folder / "a").write_text("1")

    def full(self: Path, target: Path) -> Path:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "rename", full)
    with pytest.raises(StoreError, match="No space left"):
        store.put(folder)
    monkeypatch.undo()
    assert not folder.exists()
    assert not any(path.is_file() for path in (tmp_path / "objects").rglob("*"))


def test_an_unwritable_store_is_a_store_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="can't write"):
        Store(tmp_path / "file").scratch()


def test_references_are_replaced_whole(store: Store) -> None:
    store.write_ref("onnx", "lowered_onnx", "onnx", "Model@decode", content={"digest": "a"})
    store.write_ref("onnx", "lowered_onnx", "onnx", "Model@decode", content={"digest": "b"})
    assert store.read_ref("onnx", "lowered_onnx", "onnx", "Model@decode") == {"digest": "b"}
    assert store.read_ref("onnx", "lowered_onnx", "onnx", "Other") is None


def test_a_reference_that_cannot_be_read_counts_as_none(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.write_ref("onnx", "x", content={"digest": "a"})
    (tmp_path / "refs" / "onnx" / "x.json").write_text('{"digest": ')
    assert store.read_ref("onnx", "x") is None


def test_a_write_that_fails_keeps_the_old_content(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = tmp_path / "x.json"
    write_whole(target, "old")

    def full(self: Path, target: Path) -> Path:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(OSError, match="No space"):
        write_whole(target, "new")
    assert target.read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["x.json"]


def test_a_lost_object_behind_a_reference_is_noticed(tmp_path: Path) -> None:
    store = Store(tmp_path)
    digest = put(store, a="1")
    shutil.rmtree(object_folder(store, digest))
    assert not store.has(digest)
    with pytest.raises(CorruptArtifact):
        store.get(digest)
