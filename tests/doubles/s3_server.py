"""An S3 that speaks HTTP on this machine."""

import contextlib
from collections.abc import Iterator

from moto.server import ThreadedMotoServer


@contextlib.contextmanager
def s3_server() -> Iterator[dict[str, str]]:
    """Start one with no bucket in it; yield what a process' environment has to say for it to be found, and no other."""
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield {
        "AWS_ENDPOINT_URL": f"http://{host}:{port}",
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_EC2_METADATA_DISABLED": "true",
    }
    server.stop()
