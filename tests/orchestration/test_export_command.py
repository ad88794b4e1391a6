"""`zooport export` around the chain: what it asks for, what it prints, how it ends. The chain itself is replaced."""

import json
import subprocess
import sys
from collections.abc import Callable

import pytest
from typer.testing import CliRunner

from exporters import chain
from exporters.errors import StoreError
from exporters.report import ErrorReport, Outcome, Parity, Report, StageReport, Started
from orchestration.cli import app

OnEvent = Callable[[chain.Event], None] | None


class FakeChain:
    """Stands for `exporters.chain.run`: keeps the requests, tells two stages and ends with the outcome it was given."""

    def __init__(self, outcome: Outcome = "verified") -> None:
        self.outcome = outcome
        self.requests: list[chain.Request] = []

    def __call__(self, request: chain.Request, on_event: OnEvent = None) -> Report:
        self.requests.append(request)
        print("a library prints this")
        stages = [
            StageReport(stage="traced_program", seconds=1.25, peak_rss_mb=512, bytes=2_000_000, fired=["dynamo:_patch_x"]),
            StageReport(stage="decomposed_graph", cached=True),
        ]
        parity = [Parity(inputs="sample", ok=True, max_abs_diff=2e-7)]
        report = Report(
            model=request.model, backend=request.backend, outcome=self.outcome, stages=stages, parity=parity, artifact="/a/model.onnx"
        )
        if self.outcome == "failed":
            report.error = ErrorReport(stage="lowered_onnx", type="DispatchError", message="no translation", next="write one")
        if on_event is not None:
            for event in (Started(stage="traced_program"), *stages, *parity, report):
                on_event(event)
        return report


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> FakeChain:
    fake = FakeChain()
    monkeypatch.setattr(chain, "run", fake)
    return fake


def test_a_row_a_stage_then_parity_outcome_and_artifact(fake: FakeChain) -> None:
    result = CliRunner().invoke(app, ["export", "ViTForImageClassification"])
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert lines[0] == "ViTForImageClassification to onnx"
    assert lines[2].split() == ["traced_program", "1.25", "512", "MB", "2.0", "MB", "-", "dynamo:_patch_x"]
    assert lines[3].split()[0] == "decomposed_graph"
    assert lines[3].split()[-2:] == ["yes", "-"]
    assert [line.split()[0] for line in lines[4:]] == ["parity", "outcome", "artifact"]


def test_json_is_one_report_and_nothing_else(fake: FakeChain) -> None:
    result = CliRunner().invoke(app, ["export", "ViTForImageClassification", "--json"])
    assert json.loads(result.stdout)["outcome"] == "verified"
    assert set(json.loads(result.stdout)) >= {"model", "backend", "shapes", "outcome", "stages", "parity", "artifact", "error"}
    assert "a library prints this" in result.stderr


def test_options_reach_the_chain(fake: FakeChain) -> None:
    CliRunner().invoke(
        app, ["export", "M", "--static", "--pack", "--out", "x", "--max", "a=2", "--max", "b=30", "--opset", "20", "--no-verify"]
    )
    (request,) = fake.requests
    assert (request.dynamic, request.pack, request.max_sizes, request.opset, request.verify) == (False, True, {"a": 2, "b": 30}, 20, False)
    assert request.out is not None
    assert request.out.endswith("/x")
    assert request.backend == "onnx"


def test_every_model_goes_to_every_backend(fake: FakeChain) -> None:
    result = CliRunner().invoke(app, ["export", "A", "B", "--backend", "onnx,executorch.xnnpack", "--backend", "dynamo", "--json"])
    made = [(row["model"], row["backend"]) for row in map(json.loads, result.stdout.splitlines())]
    assert made == [(model, backend) for model in "AB" for backend in ("onnx", "executorch.xnnpack", "dynamo")]


@pytest.mark.parametrize(
    ("outcome", "options", "status"),
    [
        ("verified", [], 0),
        ("matched", [], 1),
        ("matched", ["--static"], 0),
        ("ran", ["--static"], 1),
        ("exported", ["--no-verify"], 0),
        ("exported", ["--static"], 1),
        ("failed", ["--no-verify"], 1),
        ("skipped", [], 1),
    ],
)
def test_the_exit_status_says_whether_what_was_asked_is_reached(fake: FakeChain, outcome: Outcome, options: list[str], status: int) -> None:
    fake.outcome = outcome
    assert CliRunner().invoke(app, ["export", "M", *options]).exit_code == status


def test_a_failure_tells_stage_cause_and_what_next(fake: FakeChain) -> None:
    fake.outcome = "failed"
    said = CliRunner().invoke(app, ["export", "M"]).stdout
    assert "lowered_onnx: DispatchError: no translation" in said
    assert "write one" in said


def test_what_the_chain_refuses_is_two_lines_and_the_next_model_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = FakeChain()

    def refuse(request: chain.Request, on_event: OnEvent = None) -> Report:
        if request.model == "A":
            raise StoreError("can't write to /x: No space left on device", next="free some space")
        return fake(request, on_event)

    monkeypatch.setattr(chain, "run", refuse)
    result = CliRunner().invoke(app, ["export", "A", "B"])
    assert result.exit_code == 1
    assert "error: can't write to /x: No space left on device\nnext: free some space" in result.stderr
    assert [request.model for request in fake.requests] == ["B"]


def test_ctrl_c_is_status_130_without_a_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(request: chain.Request, on_event: OnEvent = None) -> Report:
        raise KeyboardInterrupt

    monkeypatch.setattr(chain, "run", interrupted)
    result = CliRunner().invoke(app, ["export", "M"])
    assert result.exit_code == 130
    assert "Traceback" not in result.output


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["BertForSequenceClasification"], "did you mean BertForSequenceClassification"),
        (["./nowhere"], "error:"),
        (["ViTForImageClassification", "--opset", "99"], "opset 99"),
    ],
)
def test_bad_input_is_met_without_importing_torch(arguments: list[str], said: str) -> None:
    code = f"""
import sys
from orchestration.cli import app
try:
    app(["export", *{arguments!r}])
except SystemExit as end:
    print(end.code, "torch" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout.splitlines()[-1] == "2 False"
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_native_prints_do_not_reach_a_json_reader() -> None:
    code = """
import os
from orchestration.streams import reserved_stdout
with reserved_stdout() as stdout:
    os.system("echo native")
    print("python")
    print("answer", file=stdout)
print("after")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.splitlines() == ["answer", "after"]
    assert sorted(done.stderr.splitlines()) == ["native", "python"]
