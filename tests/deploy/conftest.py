"""An S3 that speaks HTTP on this machine, and an environment that leads to nothing else."""

from collections.abc import Iterator

import pytest
from moto.server import ThreadedMotoServer


@pytest.fixture
def s3_environment(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, str]]:
    """What a process needs to know of an S3 with no bucket in it; set here too."""
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    environment = {
        "AWS_ENDPOINT_URL": f"http://{host}:{port}",
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_EC2_METADATA_DISABLED": "true",
    }
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    for name in ("AWS_PROFILE", "AWS_SESSION_TOKEN", "ZOOPORT_STORE", "ZOOPORT_HOME", "DAGSTER_HOME"):
        monkeypatch.delenv(name, raising=False)
    yield environment
    server.stop()
