"""The asset `fleet_report`: below all chains, without partitions, with the numbers and the changes as metadata; an alert fails alone."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import dagster as dg
import pytest

from assets.chains import build_chain
from assets.fleet_report import build_fleet_report, changes_table
from assets.runner import ReportMade, ReportMaker
from exporters.backends import STAGES
from exporters.report import ErrorReport, Report
from exporters.reports import remember
from exporters.store import Store
from orchestration.definitions import build
from orchestration.report.history import History
from orchestration.reporter import StoreReporter
from orchestration.resources import PoolRunner

KEY = dg.AssetKey("fleet_report")


class FakeReporter(ReportMaker):
    alert: str = "off: no webhook is configured"

    def make(self) -> ReportMade:
        changes = [("broken", "onnx lowered_onnx", 2, "A, B", "a cause | of\ntwo lines")]
        return ReportMade("20300101T000000Z-0.json.gz", "/home/fleet.html", {"exports": 3, "broken": 2}, 1.8e9, changes, self.alert)


def run(reporter: ReportMaker) -> dg.ExecuteInProcessResult:
    return dg.materialize([build_fleet_report()], resources={"reporter": reporter}, raise_on_error=False)


def metadata(result: dg.ExecuteInProcessResult) -> dict[str, object]:
    (event,) = result.asset_materializations_for_node("fleet_report")
    return {name: value.value for name, value in event.metadata.items()}


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ZOOPORT_HOME", str(tmp_path / "home"))
    for name in ("ZOOPORT_STORE", "ZOOPORT_WEBHOOK"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path / "home"


@pytest.fixture
def webhook(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, list[dict[str, object]], list[int]]]:
    """A server's URL, what it gets, and the statuses that it answers (the last one again and again)."""
    got: list[dict[str, object]] = []
    answers = [200]

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            got.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(answers[0])
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/hook", got, answers
    server.shutdown()
    server.server_close()
    thread.join()


def leave(home: Path, model: str, *, ok: bool) -> None:
    error = None if ok else ErrorReport(stage="lowered_onnx", type="DispatchError", message="no function")
    remember(Store(home / "store"), Report(model=model, backend="onnx", outcome="verified" if ok else "failed", error=error))


# ── In the graph ──────────────────────────────────────────────────────────────


def test_it_lies_below_the_last_stage_of_every_chain_and_has_no_partitions() -> None:
    definitions = build(PoolRunner(chain="fake_chain:serve"))
    asset = definitions.get_assets_def(KEY)
    assert asset.partitions_def is None
    assert {key.path[0]: key.path[1] for key in asset.asset_deps[KEY]} == {family: stages[-1] for family, stages in STAGES.items()}
    assert asset.group_names_by_key[KEY] == "fleet"
    assert definitions.resolve_job_def("report_fleet").asset_layer.executable_asset_keys == {KEY}


def test_it_is_made_of_whatever_partitions_there_are() -> None:
    """Of the thousands above it none has been materialized, and none has to be."""
    chains = [build_chain(family, ["A", "B"]) for family in STAGES]
    resources = {"reporter": FakeReporter(), "runner": PoolRunner(chain="fake_chain:serve")}
    assert dg.materialize([*chains, build_fleet_report()], selection=[KEY], resources=resources).success


def test_the_job_of_the_real_definitions_makes_it(home: Path) -> None:
    leave(home, "BertModel", ok=True)
    with dg.DagsterInstance.ephemeral() as instance:
        job = build(PoolRunner(chain="fake_chain:serve")).resolve_job_def("report_fleet")
        assert job.execute_in_process(instance=instance).success
        event = instance.get_latest_materialization_event(KEY)
        assert event is not None
        assert event.asset_materialization is not None
        assert event.asset_materialization.metadata["verified"].value == 1


# ── What it tells ─────────────────────────────────────────────────────────────


def test_the_numbers_and_the_changes_are_metadata() -> None:
    told = metadata(run(FakeReporter()))
    assert (told["exports"], told["broken"], told["since"]) == (3, 2, 1.8e9)
    assert told["page"] == "/home/fleet.html"
    assert "| broken | onnx lowered_onnx | 2 | A, B | a cause \\| of two lines |" in str(told["changes"])


def test_the_table_is_cut_and_says_so() -> None:
    table = changes_table([("new", "onnx", 1, f"M{number}", "") for number in range(100)])
    assert table.count("\n") == 43
    assert table.endswith("and 60 more rows on the page")
    assert changes_table([]) == "nothing changed"


def test_a_failed_alert_fails_nothing_and_is_told() -> None:
    result = run(FakeReporter(alert="failed: example: it answered 500, twice"))
    assert result.success
    assert metadata(result)["alert"] == "failed: example: it answered 500, twice"


# ── On a real store ───────────────────────────────────────────────────────────


def test_it_keeps_a_snapshot_and_writes_the_page(home: Path) -> None:
    leave(home, "BertModel", ok=True)
    first = metadata(run(StoreReporter()))
    assert (first["exports"], first["verified"]) == (1, 1)
    assert "since" not in first
    leave(home, "BertModel", ok=False)
    second = metadata(run(StoreReporter()))
    assert (second["broken"], second["failed"]) == (1, 1)
    assert "| broken | onnx lowered_onnx | 1 | BertModel | DispatchError: no function |" in str(second["changes"])
    assert History(Store(home / "store")).names() == [first["snapshot"], second["snapshot"]]
    page = Path(str(second["page"])).read_bytes()
    assert b"BertModel" in page
    assert Store(home / "store").read_file("reports", "fleet.html") == page


def test_the_alert_goes_to_the_webhook_of_the_environment(
    home: Path, webhook: tuple[str, list[dict[str, object]], list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    url, got, _ = webhook
    monkeypatch.setenv("ZOOPORT_WEBHOOK", url)
    leave(home, "BertModel", ok=True)
    assert metadata(run(StoreReporter()))["alert"] == "not posted: nothing has changed"
    leave(home, "BertModel", ok=False)
    assert metadata(run(StoreReporter()))["alert"] == "posted to 127.0.0.1"
    assert metadata(run(StoreReporter()))["alert"] == "not posted: nothing has changed"
    assert len(got) == 1
    assert "broken, onnx lowered_onnx, 1 (BertModel)" in str(got[0]["text"])


def test_the_resource_s_own_webhook_goes_first_and_can_be_told_to_post_always(
    home: Path, webhook: tuple[str, list[dict[str, object]], list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    url, got, _ = webhook
    monkeypatch.setenv("ZOOPORT_WEBHOOK", "http://127.0.0.1:1/nobody")
    leave(home, "BertModel", ok=True)
    assert metadata(run(StoreReporter(webhook=url, always=True)))["alert"] == "posted to 127.0.0.1"
    assert len(got) == 1


def test_a_server_that_refuses_fails_nothing(home: Path, webhook: tuple[str, list[dict[str, object]], list[int]]) -> None:
    url, got, answers = webhook
    answers[0] = 500
    leave(home, "BertModel", ok=True)
    result = run(StoreReporter(webhook=url, always=True))
    assert result.success
    assert metadata(result)["alert"] == "failed: 127.0.0.1: it answered 500, twice"
    assert len(got) == 2
