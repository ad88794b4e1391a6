"""How a fleet looks while it runs."""

import io

import pytest
from rich.console import Console

from exporters.report import ErrorReport, Parity, Report, StageReport, Started
from orchestration.fleet_view import FleetView, why

A, B, C = ("onnx", "A"), ("onnx", "B"), ("dynamo", "C")


def report(outcome: str = "verified", *, cached: bool = False, **fields: object) -> Report:
    stages = [StageReport(stage="traced_program", cached=cached)]
    return Report.model_validate({"model": "A", "backend": "onnx", "outcome": outcome, "stages": stages, **fields})


def test_elsewhere_than_on_a_terminal_each_end_is_a_line() -> None:
    file = io.StringIO()
    with FleetView(Console(file=file, width=200), [A, B, C], 2) as view:
        view.show(A, Started(stage="traced_program"))
        view.show(A, report())
        view.show(B, report(cached=True))
        view.show(C, report("failed", error=ErrorReport(stage="decomposed_graph", type="ValueError", message="no\nmore")))
    lines = file.getvalue().splitlines()
    assert lines[0] == "1/3 verified A onnx 0.0 s"
    assert lines[1] == "2/3 verified B onnx cached"
    assert lines[2] == "3/3 failed C dynamo decomposed_graph: ValueError: no"


def test_on_a_terminal_counts_and_what_is_in_progress_are_shown_and_failures_stay() -> None:
    file = io.StringIO()
    console = Console(file=file, width=80, force_terminal=True, color_system=None)
    with FleetView(console, [A, B, C], 2) as view:
        view.show(A, Started(stage="traced_program"))
        view.show(B, report("failed", error=ErrorReport(stage="pte", type="Timeout", message="was stopped")))
        shown = io.StringIO()
        Console(file=shown, width=80).print(view._render())
    text = shown.getvalue()
    assert "1 of 3: verified 0, not verified 1, cached 0" in text
    assert "in progress 1" in text
    assert "A  onnx  traced_program" in text
    assert "failed B onnx pte: Timeout: was stopped" in file.getvalue()


def test_what_is_left_is_told_from_the_pace_of_the_last_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr("orchestration.fleet_view.time.monotonic", lambda: now[0])
    view = FleetView(Console(file=io.StringIO()), [("onnx", str(number)) for number in range(10)], 1)
    for number in range(4):
        now[0] += 30
        view.show(("onnx", str(number)), report())
    assert view._left(4) == "about 2 min 15 s left"  # 90 s for four, by their ends; six are left


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (report("failed", error=ErrorReport(stage="pte", type="ValueError", message="first\nsecond")), "pte: ValueError: first"),
        (report("ran", parity=[Parity(inputs="other", ok=False, message="logits: off")]), "other: logits: off"),
        (report("matched", parity=[Parity(inputs="other", ok=False)]), "other: differs"),
        (report("exported", reason="ends here"), "ends here"),
    ],
)
def test_why(given: Report, said: str) -> None:
    assert why(given) == said
