"""`zooport drift`: what it prints, its exit status, and that a crash of its child is told."""

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from exporters.drift_report import DriftNode, DriftReport, DriftStage, NodeName
from orchestration import drift_command
from orchestration.cli import app

INSIDE = DriftStage(stage="traced_program", ok=True, max_abs_diff=1e-7, max_rel_diff=2e-6)
OUTSIDE = DriftStage(stage="lowered_onnx", ok=False, max_abs_diff=0.25, max_rel_diff=1.5, message="logits: 3 of 4 values beyond the bound")
NODE = DriftNode(
    stage="lowered_onnx",
    name="gelu",
    operator="Mul",
    module="vit.layers.0.mlp",
    counterpart=NodeName(name="gelu", operator="aten.gelu.default"),
    max_abs_diff=0.19,
)


def zooport(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["drift", "ViTForImageClassification", *arguments])


@pytest.fixture
def child(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """What the child says and does, instead of the search."""

    def says(*stages: DriftStage, then: Callable[[Callable[[Any], None]], None]) -> None:
        def work(request: dict[str, Any], say: Callable[[Any], None]) -> None:
            for stage in stages:
                say({"stage": stage.model_dump()})
            then(say)

        monkeypatch.setattr(drift_command, "_work", work)

    return says


def reports(report: DriftReport) -> Callable[[Callable[[Any], None]], None]:
    return lambda say: say({"report": report.model_dump()})


def report_of(*stages: DriftStage, **found: Any) -> DriftReport:
    return DriftReport(model="ViTForImageClassification", backend="onnx", stages=list(stages), **found)


def test_within_the_bound_is_status_0(child: Callable[..., None]) -> None:
    child(INSIDE, then=reports(report_of(INSIDE)))
    result = zooport("--backend", "onnx")
    assert result.exit_code == 0
    assert "no stage leaves the bound" in result.stdout
    assert "1.0e-07" in result.stdout


def test_outside_is_status_1_and_a_sentence(child: Callable[..., None]) -> None:
    child(INSIDE, OUTSIDE, then=reports(report_of(INSIDE, OUTSIDE, first="lowered_onnx", good="traced_program", node=NODE)))
    result = zooport("--backend", "onnx")
    assert result.exit_code == 1
    assert "first leaves the bound at lowered_onnx, node gelu (op Mul), in vit.layers.0.mlp" in result.stdout
    assert "traced_program has gelu (op aten.gelu.default) there, off by 0.19" in result.stdout


def test_json_says_the_same(child: Callable[..., None]) -> None:
    report = report_of(INSIDE, OUTSIDE, first="lowered_onnx", good="traced_program", node=NODE)
    child(then=reports(report))
    result = zooport("--backend", "onnx", "--json")
    assert result.exit_code == 1
    assert DriftReport.model_validate(json.loads(result.stdout)) == report


def test_a_stage_that_cannot_be_run_is_status_1(child: Callable[..., None]) -> None:
    unrun = DriftStage(stage="runtime", ok=None, message="RuntimeError: no kernel")
    child(then=reports(report_of(INSIDE, unrun)))
    result = zooport("--backend", "onnx")
    assert result.exit_code == 1
    assert "but runtime couldn't be run" in result.stdout


def test_a_crash_of_the_child_is_told_with_what_was_known(child: Callable[..., None]) -> None:
    child(INSIDE, OUTSIDE, then=lambda say: os.kill(os.getpid(), signal.SIGSEGV))
    result = zooport("--backend", "onnx", "--json")
    assert result.exit_code == 1
    report = json.loads(result.stdout)
    assert [stage["stage"] for stage in report["stages"]] == ["traced_program", "lowered_onnx"]
    assert report["first"] == "lowered_onnx"
    assert report["error"]["type"] == "SIGSEGV"
    assert "after lowered_onnx" in report["error"]["message"]


def test_wrong_use_is_status_2(zooport_home: Path) -> None:
    result = zooport("--backend", "onx")
    assert result.exit_code == 2
    assert "did you mean onnx" in result.stderr
    result = CliRunner().invoke(app, ["drift", "ViTForImageClasification", "--backend", "onnx"])
    assert result.exit_code == 2
    assert "ViTForImageClassification" in result.stderr
    assert len(result.stderr.splitlines()) == 2
    assert not zooport_home.exists()


@pytest.mark.e2e
def test_a_real_model_stays_within_the_bound(zooport_home: Path) -> None:
    result = zooport("--backend", "dynamo", "--json")
    assert result.exit_code == 0
    report = json.loads(result.stdout)
    assert [(stage["stage"], stage["ok"]) for stage in report["stages"]] == [("traced_program", True), ("decomposed_graph", True)]
    assert report["node"] is None
