"""A snapshot says what the last reports say, in little."""

import math

from report_samples import failed, ran, skipped, verified

from exporters.report import Parity, Report, StageReport
from orchestration.report.snapshot import Partition, take


def partition(report: Report) -> Partition:
    (found,) = take({(report.backend, report.model): report}, 0.0).partitions
    return found


def test_a_failure_has_its_stage_and_the_first_line_of_its_cause() -> None:
    found = partition(failed("BertModel", message="no function\nTraceback\n  much more"))
    assert (found.stage, found.kind, found.message) == ("lowered_onnx", "DispatchError", "no function")
    assert found.failing
    assert not found.good


def test_a_long_message_is_cut() -> None:
    assert len(partition(failed("BertModel", message="x" * 5000)).message) == 400


def test_a_skip_is_no_failure_and_says_why() -> None:
    found = partition(skipped("BertModel"))
    assert (found.failing, found.good, found.message) == (False, False, "not installed: timm")


def test_a_failure_that_says_nothing_is_one_all_the_same() -> None:
    found = partition(Report(model="BertModel", backend="onnx", outcome="failed"))
    assert (found.failing, found.stage) == (True, "unknown")


def test_at_one_shape_matched_is_all_that_can_be_had() -> None:
    assert partition(Report(model="BertModel", backend="onnx", outcome="matched", shapes="static")).good
    assert not partition(Report(model="BertModel", backend="onnx", outcome="matched")).good


def test_a_cached_stage_has_the_costs_of_the_run_that_made_it() -> None:
    made = {"cpu_seconds": 7.5, "peak_rss_mb": 900, "at": 1.0, "by": "r1"}
    stage = StageReport(stage="traced_program", cached=True, cpu_seconds=0.01, peak_rss_mb=50, bytes=10, details={"made": made})
    (facts,) = partition(Report(model="BertModel", backend="onnx", stages=[stage])).stages
    assert (facts.cached, facts.cpu_seconds, facts.peak_rss_mb, facts.bytes) == (True, 7.5, 900, 10)


def test_the_difference_is_the_worst_of_all_comparisons() -> None:
    rows = [Parity(inputs=name, ok=True, max_abs_diff=value) for name, value in (("sample", 1e-7), ("other", 3e-7))]
    assert partition(Report(model="BertModel", backend="onnx", parity=rows)).max_abs_diff == 3e-7
    rows.append(Parity(inputs="third", ok=False, max_abs_diff=math.nan))
    assert partition(Report(model="BertModel", backend="onnx", parity=rows)).max_abs_diff == math.inf


def test_when_and_cached_make_no_difference_and_everything_else_does() -> None:
    def of(report: Report) -> object:
        return take({("onnx", "BertModel"): report}, 1.0)

    before = of(verified("BertModel", at=1.0))
    again = verified("BertModel", at=9.0, run="r2")
    for stage in again.stages:
        stage.cached, stage.details = True, {"made": {"cpu_seconds": 2.0, "peak_rss_mb": 600}}
        stage.cpu_seconds = 0.0
    assert of(again).says_the_same(before)
    for other in (verified("BertModel", cpu=3.0), verified("BertModel", size=7), ran("BertModel"), failed("BertModel")):
        assert not of(other).says_the_same(before)
