"""The alert reaches a real server, says what broke, and never costs the report anything whatever that server does."""

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from report_samples import failed, verified

from orchestration.report import alert
from orchestration.report.alert import announce, body
from orchestration.report.fleet import FleetReport

Make = Callable[..., FleetReport]


class Receiver:
    """What a webhook's server got. `answers` are the statuses that it gives, the last one again and again; 0 hangs."""

    def __init__(self, *answers: int) -> None:
        self.answers, self.got, self.headers = list(answers), [], []  # type: ignore[var-annotated]

    def answer(self) -> int:
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]


@contextmanager
def serving(receiver: Receiver) -> Iterator[str]:
    ended = threading.Event()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            receiver.got.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            receiver.headers.append(dict(self.headers))
            status = receiver.answer()
            if status == 0:
                ended.wait(30)
                return
            self.send_response(status)
            if status == 302:
                self.send_header("Location", "/elsewhere")
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/secret/token"
    finally:
        ended.set()
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.fixture(autouse=True)
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(alert, "_PAUSE_SECONDS", 0.01)


@pytest.fixture
def broken(make: Make) -> FleetReport:
    make(0, verified("BertModel"), failed("ViTModel"))
    return make(1, failed("BertModel"), verified("ViTModel"))


def test_it_says_what_broke_and_where_to_people_and_to_programs(broken: FleetReport) -> None:
    receiver = Receiver(200)
    with serving(receiver) as url:
        assert announce(broken, "/reports/fleet.html", url, always=False) == "posted to 127.0.0.1"
    (got,) = receiver.got
    assert receiver.headers[0]["Content-Type"] == "application/json"
    text = got["text"].splitlines()
    assert text[0] == "zooport: 1 broken, 1 fixed since 2027-01-15 08:00 UTC"
    assert text[1] == "1 of 2 exports verified, 1 failed, 0 not verified"
    assert "• broken, onnx lowered_onnx, 1 (BertModel): DispatchError: no function for aten.median" in text
    assert "• fixed, onnx, 1 (ViTModel)" in text
    assert text[-1] == "all of it: /reports/fleet.html"
    assert got["zooport"]["headline"]["broken"] == 1
    assert got["zooport"]["upgraded"] == ["nothing: the same packages and the same code of zooport"]
    assert got["zooport"]["groups"][0]["models"] == ["BertModel"]
    assert got["zooport"]["page"] == "/reports/fleet.html"


def test_it_stays_short_whatever_happens(make: Make) -> None:
    names = [f"M{number}" for number in range(300)]
    make(0, *(verified(name) for name in names))
    causes = ["it is " + word * 200 for word in "abcdefghij"]
    made = make(1, *(failed(name, message=causes[position % 10]) for position, name in enumerate(names)))
    sent = body(made, "page")
    assert len(sent["text"]) < 3_000  # Slack cuts at 40,000, people earlier
    assert "and 4 more places" in sent["text"]
    assert all(len(group["models"]) <= 50 for group in sent["zooport"]["groups"])


def test_it_is_off_by_default(broken: FleetReport) -> None:
    assert announce(broken, "page", "", always=True) == "off: no webhook is configured"


def test_nothing_is_posted_when_nothing_has_changed(make: Make, broken: FleetReport) -> None:
    receiver = Receiver(200)
    with serving(receiver) as url:
        again = make(2)
        assert announce(again, "page", url, always=False) == "not posted: nothing has changed"
        assert receiver.got == []
        assert announce(again, "page", url, always=True) == "posted to 127.0.0.1"


def test_the_first_report_has_nothing_to_alert_of(make: Make) -> None:
    receiver = Receiver(200)
    with serving(receiver) as url:
        made = make(0, failed("BertModel"))
        assert announce(made, "page", url, always=False).startswith("not posted")
        assert announce(made, "page", url, always=True).startswith("posted")
    assert receiver.got[0]["text"].startswith("zooport: the first report")


def test_one_failure_is_tried_again(broken: FleetReport) -> None:
    receiver = Receiver(500, 204)
    with serving(receiver) as url:
        assert announce(broken, "page", url, always=False) == "posted to 127.0.0.1"
    assert len(receiver.got) == 2


@pytest.mark.parametrize("status", [500, 404, 302])
def test_a_server_that_refuses_is_told_and_its_secret_is_not(broken: FleetReport, status: int) -> None:
    receiver = Receiver(status)
    with serving(receiver) as url:
        said = announce(broken, "page", url, always=False)
    assert said == f"failed: 127.0.0.1: it answered {status}, twice"
    assert len(receiver.got) == 2


def test_a_server_that_hangs_is_left(broken: FleetReport) -> None:
    with serving(Receiver(0)) as url:
        begin = time.monotonic()
        said = announce(broken, "page", url, always=False, timeout_seconds=0.4)
        assert time.monotonic() - begin < 3
    assert said.startswith("failed: 127.0.0.1: ")
    assert "timed out" in said or "no answer within 0.4 s" in said


def test_a_server_that_answers_a_byte_at_a_time_is_left_too(broken: FleetReport) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def drip() -> None:
            while True:
                try:
                    connection, _ = listening.accept()
                    with connection:
                        for _ in range(100):
                            connection.sendall(b"H")
                            time.sleep(0.1)
                except OSError:
                    return

        threading.Thread(target=drip, daemon=True).start()
        begin = time.monotonic()
        said = announce(broken, "page", f"http://127.0.0.1:{listening.getsockname()[1]}/", always=False, timeout_seconds=0.4)
        assert time.monotonic() - begin < 3
    assert said == "failed: 127.0.0.1: no answer within 0.4 s, twice"


def test_nobody_there_is_told(broken: FleetReport) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
    assert "refused" in announce(broken, "page", f"http://127.0.0.1:{port}/", always=False)


@pytest.mark.parametrize("url", ["file:///etc/passwd", "hooks.example", "http://", "ftp://host/x", "http://[", "http://host:port/"])
def test_what_is_no_webhook_is_told(broken: FleetReport, url: str) -> None:
    assert announce(broken, "page", url, always=False, timeout_seconds=1).startswith("failed")
