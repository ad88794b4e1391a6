"""`zooport store`: what it prints, what it deletes, how it ends."""

import json
import os
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from exporters.store import Store
from orchestration.cli import app


def zooport(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["store", *arguments])


def put(store: Store, text: str) -> str:
    folder = store.scratch()
    (folder / "model.onnx").write_text(text)
    return store.put(folder)


@pytest.fixture
def store(zooport_home: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    """A store with one artifact that is referred to, and an old one that isn't."""
    monkeypatch.delenv("ZOOPORT_STORE", raising=False)
    store = Store(zooport_home / "store")
    store.write_ref("onnx", "lowered_onnx", "onnx", "Model", content={"digest": put(store, "kept")})
    old = store.get(put(store, "old"))
    os.utime(old, (time.time() - 200_000,) * 2)
    return store


def test_gc_deletes_what_nothing_refers_to(store: Store) -> None:
    result = zooport("gc")
    assert result.exit_code == 0
    deleted, summary, kept = result.stdout.splitlines()
    assert deleted.startswith(f"deleted artifact {store.root}/objects/")
    assert summary.startswith("deleted: artifacts 1, copies 0, leftovers 0; ")
    assert kept == "kept: artifacts 1, without a reference but used lately 0"
    assert len(list(store.objects.stored())) == 1


@pytest.mark.parametrize(("arguments", "deleted"), [(["--keep-days", "3"], 0), (["--keep-days", "0.5"], 1), (["--dry-run"], 1)])
def test_gc_as_json(store: Store, arguments: list[str], deleted: int) -> None:
    result = zooport("gc", "--json", *arguments)
    printed = json.loads(result.stdout)
    assert len(printed["artifacts"]) == deleted
    assert (printed["store"], printed["dry_run"]) == (str(store.root), "--dry-run" in arguments)
    assert len(list(store.objects.stored())) == (1 if deleted and "--dry-run" not in arguments else 2)
    assert zooport("gc", "--keep-days", "-1").exit_code == 2


def test_verify_of_a_whole_store(store: Store) -> None:
    result = zooport("verify")
    assert result.exit_code == 0
    assert result.stdout.splitlines()[-1] == "nothing is damaged"
    assert "artifacts 2, without a reference 1, references 1; " in result.stdout


def test_verify_names_the_damage_and_what_to_do(store: Store) -> None:
    (digest,) = [content["digest"] for _, content in store.refs() if content]
    (store.get(digest) / "model.onnx").write_text("damaged")
    for arguments in ([], ["--json"]):
        result = zooport("verify", *arguments)
        assert result.exit_code == 1
        assert "model.onnx is damaged: 7 bytes of 4" in result.stdout
        assert "zooport store verify --repair" in result.stdout
    assert [finding["kind"] for finding in json.loads(result.stdout)["findings"]] == ["artifact", "reference"]
    repaired = zooport("verify", "--repair")
    assert repaired.exit_code == 1
    assert "damaged, and deleted now: 2" in repaired.stdout
    assert zooport("verify").exit_code == 0


def test_a_store_without_its_file_system_is_wrong_use(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ZOOPORT_STORE", "foo://bar")
    result = zooport("gc")
    assert result.exit_code == 2
    assert "fsspec" in result.stderr
    assert result.stdout == ""


def test_an_empty_store_is_whole_and_has_no_garbage(zooport_home: Path) -> None:
    assert zooport("verify").exit_code == 0
    assert zooport("gc").exit_code == 0
    assert not zooport_home.exists()
