"""Stores of every kind that the tests are run on: a local folder, and an S3 that speaks HTTP on this machine."""

import os
import shutil
import subprocess
import uuid
from collections.abc import Iterator
from pathlib import Path

import boto3
import pytest
from s3_server import s3_server
from store_place import Place


@pytest.fixture(scope="session")
def s3_environment() -> Iterator[dict[str, str]]:
    with s3_server() as environment:
        yield environment


@pytest.fixture
def s3(s3_environment: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> str:
    """URL of an empty bucket, whose server the environment names."""
    for name, value in s3_environment.items():
        monkeypatch.setenv(name, value)
    for name in ("AWS_PROFILE", "AWS_SESSION_TOKEN", "ZOOPORT_STORE"):
        monkeypatch.delenv(name, raising=False)
    bucket = f"b{uuid.uuid4().hex}"
    boto3.client("s3").create_bucket(Bucket=bucket)
    return f"s3://{bucket}"


@pytest.fixture(autouse=True)
def zooport_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ZOOPORT_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, [str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH")])))
    return tmp_path / "home"


@pytest.fixture(params=["local", "s3"])
def place(request: pytest.FixtureRequest, tmp_path: Path, zooport_home: Path) -> Place:
    url = str(tmp_path / "store") if request.param == "local" else f"{request.getfixturevalue('s3')}/prefix"
    return Place(request.param, url, tmp_path / "cache", zooport_home)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of one MB."""
    folder = tmp_path / "small"
    folder.mkdir()
    command = shutil.which("mount")
    mounted = command and subprocess.run([command, "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)], capture_output=True, check=False)
    if not mounted or mounted.returncode:
        pytest.skip("this user or machine may mount nothing; the same fault is tried with a limit on file sizes")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)
