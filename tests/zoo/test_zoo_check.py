"""The runner: what a child may do without taking the run with it, and that a run goes on where it was."""

import json
import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from exporters.zoo import check, probe


@pytest.fixture
def child(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Replace what a child does."""
    return lambda function: monkeypatch.setattr(probe, "probe", function)


def test_a_result_comes_back_with_what_it_cost(child: Any) -> None:
    child(lambda name: {"name": name, "outcome": "ok", "stage": "", "reason": "", "pid": os.getpid()})
    result = check.try_in_child("X")
    assert result["outcome"] == "ok"
    assert result["pid"] != os.getpid()
    assert result["seconds"] > 0
    assert result["peak_rss_mb"] > 0


def test_a_child_that_hangs_is_ended(child: Any) -> None:
    child(lambda name: time.sleep(60))
    began = time.monotonic()
    result = check.try_in_child("X", seconds=0.5)
    assert time.monotonic() - began < 10
    assert (result["outcome"], result["stage"]) == ("failed", "limit")
    assert "0 s" in result["reason"]


def test_a_child_that_dies_is_a_result(child: Any) -> None:
    child(lambda name: os.kill(os.getpid(), signal.SIGKILL))
    result = check.try_in_child("X")
    assert (result["outcome"], result["reason"]) == ("failed", "the child ended with SIGKILL")


def test_memory_is_bounded(child: Any, capfd: pytest.CaptureFixture[str]) -> None:
    def greedy(name: str) -> dict[str, Any]:
        return {"name": name, "outcome": "ok", "size": len(bytearray(3 << 30))}

    child(greedy)
    with capfd.disabled():  # or pytest would have the child's last words
        result = check.try_in_child("X", memory=2 << 30)
    assert (result["outcome"], result["stage"]) == ("failed", "limit")
    assert "MemoryError" in result["reason"]


def test_an_error_is_told_with_its_place() -> None:
    result = probe.probe("Sam2VideoModel")
    assert (result["outcome"], result["stage"]) == ("failed", "forward")
    assert "inference_session" in result["reason"]


def test_a_class_that_needs_an_absent_package_is_skipped() -> None:
    result = probe.probe("HiggsAudioV2TokenizerModel")
    if result["outcome"] == "ok":
        pytest.skip("torchaudio is installed here")
    assert result["outcome"] == "skipped"
    assert "torchaudio" in result["reason"]


# ── Going on ──────────────────────────────────────────────────────────────────


def test_results_are_appended_and_only_the_rest_is_open(child: Any, tmp_path: Path) -> None:
    child(lambda name: {"name": name, "outcome": "ok" if name != "B" else "failed", "stage": "", "reason": ""})
    file = tmp_path / "zoo" / "forward.jsonl"
    assert [result["name"] for result in check.run(["A", "B"], file)] == ["A", "B"]
    known = check.read_results(file)
    assert check.open_names(["A", "B", "C"], known, failed_only=False) == ["C"]
    assert check.open_names(["A", "B", "C"], known, failed_only=True) == ["B", "C"]


def test_an_interrupted_run_keeps_what_it_has(child: Any, tmp_path: Path) -> None:
    child(lambda name: {"name": name, "outcome": "ok", "stage": "", "reason": ""})
    file = tmp_path / "forward.jsonl"

    def stop(result: check.Result) -> None:
        if result["name"] == "B":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        list(check.run(["A", "B", "C"], file, stop))
    assert list(check.read_results(file)) == ["A", "B"]


def test_a_half_written_line_is_passed_over(tmp_path: Path) -> None:
    file = tmp_path / "forward.jsonl"
    file.write_text(json.dumps({"name": "A", "outcome": "ok"}) + '\n{"name": "B", "outc')
    assert list(check.read_results(file)) == ["A"]


def test_results_of_other_code_are_open_again(tmp_path: Path) -> None:
    known = {"A": {"name": "A", "outcome": "ok", "code": "of yesterday"}}
    assert check.open_names(["A"], known, failed_only=False) == ["A"]


# ── Counting ──────────────────────────────────────────────────────────────────


def test_what_is_skipped_is_in_no_share() -> None:
    names = ["BertModel", "BertForMaskedLM", "DinatModel", "LlamaForCausalLM", "LlamaForCausalLM@decode"]
    results = {name: {"name": name, "outcome": "ok", "cpu_seconds": 1.0} for name in names}
    results["BertForMaskedLM"]["outcome"] = "failed"
    results["DinatModel"]["outcome"] = "skipped"
    counts = check.summary(results, names)
    assert counts["classes"]["share"] == pytest.approx(2 / 3, abs=1e-4)
    assert counts["decode"]["share"] == 1.0
    assert (counts["model_types"]["ok"], counts["model_types"]["every_class_ok"], counts["model_types"]["skipped"]) == (2, 1, 1)
    assert counts["cpu_seconds"] == 5
