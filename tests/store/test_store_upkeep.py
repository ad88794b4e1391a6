"""Upkeep: what nothing refers to goes, what somebody may still need stays, and what is damaged is found. On a local folder and on S3."""

import dataclasses
import os
import shutil
import subprocess
import time
from pathlib import Path

from store_place import Place
from store_stage import REF, run, write

from exporters.store import MANIFEST, Store
from exporters.store_local import fingerprint
from exporters.store_upkeep import Collected, Progress, collect

DAY = 86_400.0
OTHER = ("onnx", "traced_program", "onnx", "Other")


def nothing(what: str, done: int, total: int) -> None:
    pass


def gc(place: Place, keep_seconds: float = 0, *, dry_run: bool = False, on_progress: Progress = nothing) -> Collected:
    return collect(place.store(), home=place.home, keep_seconds=keep_seconds, dry_run=dry_run, on_progress=on_progress)


def digests(place: Place) -> set[str]:
    return {each.digest for each in place.store().objects.stored()}


def make_old(*paths: Path) -> None:
    for path in paths:
        for each in [path, *path.rglob("*")]:
            os.utime(each, (time.time() - 3 * DAY,) * 2)


# ── What goes and what stays ──────────────────────────────────────────────────


def test_what_no_reference_reaches_goes(place: Place) -> None:
    kept = run(place.store(), "kept").digest
    replaced = run(place.store(), "replaced", *OTHER).digest
    replacing = run(place.store(), "replacing", *OTHER).digest
    collected = gc(place)
    assert collected.artifacts == [replaced]
    assert collected.copies == ([replaced] if place.kind == "s3" else [])
    assert collected.freed_bytes > 0
    assert (collected.kept, collected.kept_for_now) == (2, 0)
    assert digests(place) == {kept, replacing}
    assert place.damage() == []
    assert run(place.store(), "kept").cached
    assert gc(place) == Collected(kept=2)


def test_what_was_just_written_has_no_reference_yet_and_stays(place: Place) -> None:
    digest = place.store().put(write(place.store(), "new"))
    collected = gc(place, DAY)
    assert (collected.artifacts, collected.kept, collected.kept_for_now) == ([], 1, 1)
    assert digests(place) == {digest}


def test_a_dry_run_deletes_nothing_and_says_the_same(place: Place) -> None:
    place.store().put(write(place.store(), "nobody's"))
    before = digests(place)
    said = gc(place, dry_run=True)
    assert digests(place) == before
    assert gc(place) == said
    assert digests(place) == set()


def test_half_an_artifact_goes_when_it_is_old(place: Place) -> None:
    digest = place.store().put(write(place.store(), "half"))
    (place.object(digest) / MANIFEST).unlink()
    assert gc(place, DAY).artifacts == []
    assert gc(place).artifacts == [digest]
    assert digests(place) == set()


def test_an_artifact_that_is_made_again_meanwhile_stays(place: Place) -> None:
    """Made again after it was listed as old and after the references were read: that moment, every time."""
    digest = run(place.store(), "again").digest
    place.ref(*REF).unlink()
    if place.kind == "local":
        make_old(Path(str(place.object(digest))))
    else:
        time.sleep(3)  # S3 tells times in whole seconds

    made: list[str] = []

    def make_again(what: str, done: int, total: int) -> None:
        if what == "deleting artifacts" and not made:
            made.append(run(place.store(), "again").digest)

    assert gc(place, 1, on_progress=make_again).artifacts == []
    assert made == [digest]
    assert run(place.store(), "again").cached
    assert place.damage() == []


def test_an_artifact_that_is_read_was_used(tmp_path: Path, place: Place) -> None:
    """Locally; a remote store isn't told when a copy is read, and the copy was used."""
    digest = place.store().put(write(place.store(), "read"))
    local = place.store().copies or place.store().objects
    make_old(Path(str(local.folder(digest))))
    place.store().get(digest)
    assert gc(place, DAY) == Collected(kept=1, kept_for_now=1)


def test_exports_run_while_garbage_is_collected(place: Place) -> None:
    """Two processes that replace their artifacts all the time, and never lose one that they still need."""
    count = "60" if place.kind == "local" else "8"
    processes = [place.start("anew", count, name) for name in ("first", "second")]
    collected = 0
    while any(process.poll() is None for process in processes):
        collected += len(gc(place, 2).artifacts)
        time.sleep(0.05)
    for process in processes:
        assert process.returncode == 0, process.communicate()[1]
        process.communicate()
    assert place.damage() == []
    if place.kind == "s3":
        time.sleep(1)
    time.sleep(2.1)
    assert collected + len(gc(place, 2).artifacts) == 2 * (int(count) - 3)
    assert len(digests(place)) == 6


def test_garbage_is_collected_on_a_full_disk(small_disk: Path, tmp_path: Path) -> None:
    """Of a local store, which has to write to delete: a lock, a new name."""
    place = Place("local", str(small_disk / "store"), tmp_path / "cache", tmp_path / "home")
    kept = run(place.store(), "kept").digest
    run(place.store(), "replaced" * 1000, *OTHER)
    run(place.store(), "replacing", *OTHER)
    (small_disk / "filler").write_bytes(b"0" * shutil.disk_usage(small_disk).free)
    assert len(gc(place).artifacts) == 1
    assert run(place.store(), "kept").digest == kept
    assert run(place.store(), "replaced", *OTHER).text == "replaced"


# ── Leftovers ─────────────────────────────────────────────────────────────────


def test_leftovers_go_when_they_are_old(place: Place) -> None:
    local = place.store().copies or place.store().objects
    unique = "0123456789abcdef" * 2
    left = [
        write(place.store(), "interrupted"),
        place.home / "exports" / "onnx" / f".Model.{unique}",
        place.home / "exports" / "onnx" / f".Model.{unique}.old",
        place.home / "exports" / "onnx" / f".Model.{unique}.pack",
        place.home / "weights" / f".Model.0123.safetensors.{unique}",
        place.home / "reports" / f".fleet.html.{unique}",
        local.root / "stamps" / f".{unique}.{unique}",
    ]
    stays = [place.home / "exports" / "onnx" / "Model" / ".hidden", place.home / "weights" / "Model.0123.safetensors", place.home / unique]
    if place.kind == "local":
        left.append(local.root / "refs" / "onnx" / f".Model.json.{unique}")
        left.append(local.root / "history" / f".snapshot.json.gz.{unique}")
        left.append(local.root / "reports" / f".fleet.html.{unique}")
    for path in [*left, *stays]:
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists():
            path.write_text("some text")
    assert gc(place, DAY).leftovers == []
    assert place.damage() == []
    make_old(*left, *stays)
    assert sorted(finding.path for finding in place.damage()) == sorted(map(str, left))
    collected = gc(place, DAY)
    assert sorted(collected.leftovers) == sorted(map(str, left))
    assert collected.freed_bytes >= 9 * (len(left) - 1)
    assert not [path for path in left if path.exists()]
    assert [path for path in stays if path.exists()] == stays
    assert place.damage() == []


# ── Damage ────────────────────────────────────────────────────────────────────


def test_every_damage_is_found_named_and_repaired(place: Place) -> None:
    names = ["whole", "truncated", "changed", "no manifest", "no artifact", "torn reference", "names nothing"]
    stages = {name: run(place.store(), name * 10, "onnx", "traced_program", "onnx", name) for name in names}
    (place.object(stages["truncated"].digest) / "a").write_bytes(b"trunc")
    changed = place.object(stages["changed"].digest) / "b"
    changed.write_bytes(changed.read_bytes()[::-1])
    (place.object(stages["no manifest"].digest) / MANIFEST).unlink()
    place.store().discard(stages["no artifact"].digest)
    place.ref("onnx", "traced_program", "onnx", "torn reference").write_bytes(b'{"digest": ')
    place.store().write_ref("onnx", "traced_program", "onnx", "names nothing", content={"key": "x"})
    place.store().write_ref("verification", "onnx", "Model", content={"key": "x"})

    found = {(finding.kind, finding.path.rpartition("/")[2]): finding for finding in place.damage()}
    damaged = ["truncated", "changed", "no manifest"]
    assert set(found) == {
        *(("artifact", stages[name].digest.removeprefix("sha256:")) for name in damaged),
        *(("reference", f"{name}.json") for name in [*damaged, "no artifact", "torn reference", "names nothing"]),
    }
    assert all(finding.problem and "--repair" in finding.next and not finding.repaired for finding in found.values())
    assert "b is damaged" in found["artifact", stages["changed"].digest.removeprefix("sha256:")].problem

    repaired = place.damage(repair=True)
    assert {dataclasses.replace(finding, repaired=False).path for finding in repaired} == {finding.path for finding in found.values()}
    assert all(finding.repaired for finding in repaired)
    assert place.damage() == []
    for name in names:
        stage = run(place.elsewhere(), name * 10, "onnx", "traced_program", "onnx", name)
        assert (stage.text, stage.cached) == (name * 10, name == "whole")
    assert place.damage() == []


def test_a_damage_that_the_times_of_files_hide_is_found_and_then_not_served(tmp_path: Path) -> None:
    """Of a local store, or the copies of a remote one: bytes that changed on the disk, with nobody writing them."""
    store = Store(tmp_path)
    stage = run(store, "rots")
    time.sleep(0.1)
    folder = store.get(stage.digest)
    stamp = next((tmp_path / "stamps").iterdir())
    (folder / "a").write_text("rot!")
    stamp.write_text(fingerprint(folder))
    assert (store.get(stage.digest) / "a").read_text() == "rot!"  # so this is what a stamp can't see
    place = Place("local", str(tmp_path), tmp_path / "cache", tmp_path / "home")
    assert [finding.kind for finding in place.damage()] == ["artifact", "reference"]
    again = run(store, "rots")
    assert (again.text, again.cached) == ("rots", False)
    assert place.damage() == []


def test_a_damaged_copy_is_found(s3: str, tmp_path: Path) -> None:
    place = Place("s3", s3, tmp_path / "cache", tmp_path / "home")
    stage = run(place.store(), "copied")
    (place.store().get(stage.digest) / "a").write_text("damaged")
    assert [finding.kind for finding in place.damage(repair=True)] == ["copy"]
    assert place.damage() == []
    assert run(place.store(), "copied") == dataclasses.replace(stage, cached=True)


def test_what_is_being_uploaded_is_no_damage(place: Place) -> None:
    process = place.start("publishing", "uploading")
    assert process.stdout is not None
    assert process.stdout.readline() == "halted\n"
    assert place.damage() == []
    assert gc(place, DAY) == Collected(kept=len(digests(place)), kept_for_now=len(digests(place)))
    try:
        process.communicate("", timeout=60)
    except subprocess.TimeoutExpired:
        process.kill()
        raise
    assert process.returncode == 0
    assert place.damage() == []
    assert run(place.store(), "uploading").cached
