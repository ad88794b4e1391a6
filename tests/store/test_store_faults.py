"""What can happen to a store: nothing wrong is ever served, and the next run mends it. On a local folder and on S3."""

import resource
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from store_place import Place
from store_stage import REF, run, write
from upath import UPath

from exporters.errors import CorruptArtifact, StoreError
from exporters.store import MANIFEST, Store

TEXT = "what the stage writes"


def mended(place: Place) -> None:
    """The next run makes the stage again, the one after finds it, and nothing is wrong with the store."""
    for cached in (False, True):
        stage = run(place.elsewhere(), TEXT)
        assert (stage.text, stage.cached) == (TEXT, cached)
    assert place.damage() == []


# ── An artifact ───────────────────────────────────────────────────────────────

DAMAGE = {
    "truncated": lambda path: path.write_bytes(path.read_bytes()[:7]),
    "emptied": lambda path: path.write_bytes(b""),
    "changed": lambda path: path.write_bytes(path.read_bytes().replace(b"a", b"e")),
    "deleted": lambda path: path.unlink(),
}


@pytest.mark.parametrize("damage", DAMAGE)
@pytest.mark.parametrize("file", ["a", MANIFEST])
def test_a_damaged_artifact_is_not_served(place: Place, file: str, damage: str) -> None:
    digest = run(place.store(), TEXT).digest
    DAMAGE[damage](place.object(digest) / file)
    with pytest.raises(CorruptArtifact, match="run the export again"):
        place.elsewhere().get(digest)
    mended(place)


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_artifact_is_mended_by_a_run_that_never_read_it(place: Place, damage: str) -> None:
    digest = run(place.store(), TEXT).digest
    DAMAGE[damage](place.object(digest) / "a")
    place.ref(*REF).unlink()
    mended(place)


def test_a_lost_artifact_is_made_again(place: Place) -> None:
    digest = run(place.store(), TEXT).digest
    place.object(digest).fs.rm(place.object(digest).path, recursive=True)
    assert not place.store().has(digest)
    mended(place)


def test_a_file_that_does_not_belong_to_an_artifact_is_not_served(place: Place) -> None:
    digest = run(place.store(), TEXT).digest
    (place.object(digest) / "stranger").write_bytes(b"")
    try:
        folder = place.elsewhere().get(digest)
    except CorruptArtifact:
        mended(place)
    else:  # a copy is made of what the manifest names
        assert sorted(path.name for path in folder.iterdir()) == ["a", "b", MANIFEST]


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_copy_is_fetched_again(s3: str, tmp_path: Path, damage: str) -> None:
    """Of a remote store only: a local one has no copies."""
    store = Store(s3, cache=tmp_path)
    stage = run(store, TEXT)
    DAMAGE[damage](store.get(stage.digest) / "a")
    again = run(store, TEXT)
    assert (again.text, again.cached) == (TEXT, True)


@pytest.mark.parametrize("digest", ["sha256:" + "0" * 64, "sha256:../../../etc", "", None, 7])
def test_what_names_no_artifact_is_corrupt(place: Place, digest: object) -> None:
    with pytest.raises(CorruptArtifact):
        place.store().get(digest)  # type: ignore[arg-type]
    assert place.damage() == []


# ── A reference ───────────────────────────────────────────────────────────────


def test_a_lost_reference_is_written_again(place: Place) -> None:
    run(place.store(), TEXT)
    place.ref(*REF).unlink()
    mended(place)


def _one_digit_changed(text: bytes) -> bytes:
    at = text.index(b"sha256:") + 7
    return text[:at] + (b"0" if text[at : at + 1] != b"0" else b"1") + text[at + 1 :]


TORN = {
    "half": lambda text: text[: len(text) // 2],
    "all but its end": lambda text: text[:-1],
    "empty": lambda text: b"",
    "zeros": lambda text: b"\0" * len(text),
    "no text": lambda text: b"\xff\xfe" + text,
    "other json": lambda text: b"[1, 2]",
    "no checksum": lambda text: b'{"key": "what the stage write", "digest": "sha256:' + b"0" * 64 + b'"}',
    "one digit": _one_digit_changed,
    "old and new": lambda text: text[:40] + text,
}


@pytest.mark.parametrize("torn", TORN)
def test_a_torn_reference_counts_as_none(place: Place, torn: str) -> None:
    run(place.store(), TEXT)
    ref = place.ref(*REF)
    ref.write_bytes(TORN[torn](ref.read_bytes()))
    assert place.store().read_ref(*REF) is None
    assert [finding.kind for finding in place.damage()] == ["reference"]
    mended(place)


# ── A full disk ───────────────────────────────────────────────────────────────
# a remote store's disk is somebody else's: what can be full is where this machine keeps its copies


def fill(disk: Path) -> Path:
    filler = disk / "filler"
    filler.write_bytes(b"0" * shutil.disk_usage(disk).free)
    return filler


def test_a_full_disk_is_said_and_harms_nothing(place: Place, small_disk: Path) -> None:
    store = Store(place.url if place.kind == "s3" else small_disk / "store", cache=small_disk / "cache")
    other = ("onnx", "x", "onnx", "Other")
    first = run(store, TEXT)
    folder = write(store, "another text")
    filler = fill(small_disk)
    with pytest.raises(StoreError, match="No space"):
        store.put(folder)
    assert not folder.exists()
    if place.kind == "local":  # references aren't kept on this disk otherwise
        with pytest.raises(StoreError, match="No space"):
            store.write_ref(*other, content={"key": "0" * 100_000})
        assert store.read_ref(*other) is None
    again = run(store, TEXT)
    assert (again.text, again.cached, again.digest) == (TEXT, True, first.digest)
    filler.unlink()
    assert run(store, "another text", *other).text == "another text"
    assert run(store, "another text", *other).cached


def test_a_full_disk_stops_what_is_read_from_afar(s3: str, tmp_path: Path, small_disk: Path) -> None:
    """Of a remote store only: what is read from a local one is not written."""
    digest = run(Store(s3, cache=tmp_path / "cache"), "long" * 100_000).digest
    here = Store(s3, cache=small_disk)
    filler = fill(small_disk)
    with pytest.raises(StoreError, match="No space") as caught:
        here.get(digest)
    assert str(small_disk) in caught.value.next
    assert not [path for path in small_disk.rglob("*") if path.is_file() and path.name != "filler"]
    filler.unlink()
    assert (here.get(digest) / "a").read_text() == "long" * 100_000


def test_a_file_that_gets_too_large_is_said_and_harms_nothing(place: Place) -> None:
    run(place.store(), TEXT)
    code = (
        "import resource, sys; sys.path.insert(0, sys.argv.pop()); from store_stage import main\n"
        f"resource.setrlimit(resource.RLIMIT_FSIZE, (150, resource.getrlimit({resource.RLIMIT_FSIZE})[1]))\n"
        "main(*sys.argv[1:])"
    )
    arguments = [place.url, str(place.cache), "once", "another text"]
    done = subprocess.run([sys.executable, "-c", code, *arguments, str(Path(__file__).parent)], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "StoreError: can't write to" in done.stderr
    assert "File too large" in done.stderr
    again = run(place.store(), TEXT)
    assert (again.text, again.cached) == (TEXT, True)
    assert place.damage() == []


# ── A kill ────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("moment", ["writing", "publishing", "no reference yet"])
def test_a_kill_leaves_nothing_that_counts(place: Place, moment: str) -> None:
    process = place.start(moment, TEXT)
    assert process.stdout is not None
    assert process.stdout.readline() == "halted\n"
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert process.returncode == -signal.SIGKILL
    assert place.store().read_ref(*REF) is None
    assert [each.whole for each in place.store().objects.stored() if each.whole] == [True] * (moment == "no reference yet")
    mended(place)


# ── Two at once ───────────────────────────────────────────────────────────────


def all_rounds(place: Place, rounds: int) -> list[str]:
    """The digests that two processes gave, making the same stages at the same moments."""
    processes = [place.start("rounds", str(rounds)) for _ in range(2)]
    printed = []
    for process in processes:
        out, errors = process.communicate(timeout=120)
        assert process.returncode == 0, errors
        printed.append(out.splitlines())
    assert printed[0] == printed[1]
    return printed[0]


def test_two_writers_of_the_same_artifacts_both_succeed(place: Place) -> None:
    digests = all_rounds(place, 6)
    assert len(set(digests)) == 6
    assert place.damage() == []
    for number, digest in enumerate(digests):
        assert (place.elsewhere().get(digest) / "a").read_text() == f"{number:20}" * 5_000


def test_two_writers_mend_the_same_artifacts_and_neither_loses_the_other_s(place: Place) -> None:
    rounds = 20 if place.kind == "local" else 3  # removing is what races, and only a local store does it
    digests = all_rounds(place, rounds)
    for digest in digests:
        DAMAGE["changed" if place.kind == "s3" else "truncated"](place.object(digest) / "a")
    assert all_rounds(place, rounds) == digests
    for number, digest in enumerate(digests):
        assert (place.elsewhere().get(digest) / "a").read_text() == f"{number:20}" * 5_000
    assert place.damage() == []


# ── A store that can't be written ─────────────────────────────────────────────


def test_a_store_that_cannot_be_written_is_said_and_then_works(place: Place, tmp_path: Path) -> None:
    if place.kind == "local":
        (tmp_path / "in the way").write_bytes(b"")
        store = Store(tmp_path / "in the way")
    else:
        store = Store("s3://zooport-no-such-bucket", cache=place.cache)
    for attempt in (lambda: store.put(write(store, TEXT)), lambda: store.write_ref(*REF, content={})):
        with pytest.raises(StoreError, match=r"can't write to") as caught:
            attempt()
        assert caught.value.next
    assert store.read_ref(*REF) is None
    if place.kind == "local":
        (tmp_path / "in the way").unlink()
    else:
        UPath("s3://zooport-no-such-bucket").mkdir()
    stage = run(store, TEXT)
    assert (stage.text, stage.cached) == (TEXT, False)
    assert run(store, TEXT).cached
