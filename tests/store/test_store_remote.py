"""What only a remote store has: requests, copies of what it holds, listings, a network that fails."""

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from aiobotocore.httpsession import AIOHTTPSession
from store_place import Place
from store_stage import REF, run
from upath import UPath

from exporters.errors import CorruptArtifact, UsageError
from exporters.store import Store
from exporters.store_remote import RemoteObjects


@pytest.fixture
def requests(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The requests that are sent, as `GET path`."""
    sent: list[str] = []
    send = AIOHTTPSession.send

    async def counted(self: AIOHTTPSession, request: Any) -> Any:
        sent.append(f"{request.method} {request.url.partition('/prefix/')[2]}")
        return await send(self, request)

    monkeypatch.setattr(AIOHTTPSession, "send", counted)
    return sent


@pytest.fixture
def remote(s3: str, tmp_path: Path) -> Place:
    return Place("s3", f"{s3}/prefix", tmp_path / "cache", tmp_path / "home")


def test_a_hit_is_one_request(remote: Place, requests: list[str]) -> None:
    digest = run(remote.store(), "text").digest
    for store in (remote.store(), remote.elsewhere()):
        run(store, "text")  # makes the copy, where there is none
        requests.clear()
        assert run(store, "text").cached
        assert requests == ["GET refs/onnx/traced_program/onnx/Model%40decode.json"]
    assert len({digest, run(remote.store(), "text").digest}) == 1


def test_making_a_stage_downloads_nothing_that_was_just_uploaded(remote: Place, requests: list[str]) -> None:
    digest = run(remote.store(), "text").digest.removeprefix("sha256:")
    uploaded = [f"PUT objects/{digest[:2]}/{digest}/{name}" for name in ("a", "b", "manifest.json")]
    ref = "refs/onnx/traced_program/onnx/Model%40decode.json"
    assert [sorted(requests[:1]), sorted(requests[1:4]), requests[4:]] == [[f"GET {ref}"], uploaded, [f"PUT {ref}"]]
    assert requests[3] == uploaded[-1]


def test_a_copy_serves_when_the_artifact_itself_is_out_of_reach(remote: Place) -> None:
    stage = run(remote.store(), "text")
    remote.store().objects.remove(stage.digest)
    assert run(remote.store(), "text").cached
    with pytest.raises(CorruptArtifact):
        remote.elsewhere().get(stage.digest)
    assert [finding.kind for finding in remote.damage()] == ["reference"]


def test_what_another_process_writes_is_seen_at_once(remote: Place) -> None:
    store = remote.store()
    assert (list(store.objects.stored()), list(store.refs()), store.read_ref(*REF)) == ([], [], None)
    digest = remote.once("text")
    assert store.has(digest)
    assert [each.digest for each in store.objects.stored()] == [digest]
    assert [(parts, content and content["digest"]) for parts, content in store.refs()] == [(REF, digest)]
    again = remote.once("other text")
    assert {each.digest for each in store.objects.stored()} == {digest, again}
    reference = store.read_ref(*REF)
    assert reference is not None
    assert reference["digest"] == again


def test_two_processes_may_share_the_copies(remote: Place) -> None:
    maker = Store(remote.url, cache=remote.cache / "maker")
    digests = [run(maker, f"{number}" * 100_000, *REF[:3], f"{number}").digest for number in range(4)]
    code = (
        "import sys; from exporters.store import Store; from pathlib import Path\n"
        "for digest in sys.argv[3:]: Store(sys.argv[1], cache=Path(sys.argv[2])).get(digest)"
    )
    command = [sys.executable, "-c", code, remote.url, str(remote.cache / "shared"), *digests]
    readers = [subprocess.Popen(command, stderr=subprocess.PIPE, text=True) for _ in range(2)]
    for reader in readers:
        assert reader.wait(timeout=60) == 0, reader.communicate()[1]
        reader.communicate()
    shared = Store(remote.url, cache=remote.cache / "shared")
    assert shared.copies is not None
    assert sorted(each.digest for each in shared.copies.stored()) == sorted(digests)
    assert list(shared.copies.unfinished()) == []


def test_a_server_that_is_not_there_is_one_error(remote: Place, tmp_path: Path) -> None:
    environment = {**os.environ, "AWS_ENDPOINT_URL": "http://127.0.0.1:9", "AWS_MAX_ATTEMPTS": "1"}
    started = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-c", "from orchestration.cli import main; main()", "store", "verify"],
        env={**environment, "ZOOPORT_STORE": remote.url},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert done.stdout == ""
    lines = done.stderr.strip().splitlines()
    assert lines[0].startswith(f"error: can't read {remote.url}")
    assert "AWS_ENDPOINT_URL" in lines[1]
    assert len(lines) == 2
    assert time.monotonic() - started < 60


@pytest.mark.parametrize("url", ["foo://bar", "gs://bucket/prefix"])
def test_a_url_without_its_file_system_is_wrong_use(url: str) -> None:
    with pytest.raises(UsageError, match="fsspec"):
        Store(url)


def test_a_file_system_with_real_folders_gets_them_made_but_not_the_root(tmp_path: Path) -> None:
    """As of an SFTP server; here fsspec's own of this machine, which makes no folders by itself either."""
    objects = RemoteObjects(UPath(tmp_path / "root"))
    with pytest.raises(FileNotFoundError):
        objects.write(f"{tmp_path}/root/refs/a.json", b"{}")
    (tmp_path / "root").mkdir()
    objects.write(f"{tmp_path}/root/refs/a.json", b"{}")
    assert objects.read(f"{tmp_path}/root/refs/a.json") == b"{}"
