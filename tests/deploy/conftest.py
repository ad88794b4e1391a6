"""An S3 that speaks HTTP on this machine, and an environment that leads to nothing else."""

from collections.abc import Iterator

import pytest
from s3_server import s3_server


@pytest.fixture
def s3_environment(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, str]]:
    """What a process needs to know of an S3 with no bucket in it; set here too."""
    with s3_server() as environment:
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        for name in ("AWS_PROFILE", "AWS_SESSION_TOKEN", "ZOOPORT_STORE", "ZOOPORT_HOME", "DAGSTER_HOME"):
            monkeypatch.delenv(name, raising=False)
        yield environment
