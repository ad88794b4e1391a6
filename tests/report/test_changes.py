"""What counts as a change, and what is noise."""

import pytest
from report_samples import failed, ran, skipped, verified

from exporters.report import Report
from orchestration.report.changes import KINDS, Change, changes, counts
from orchestration.report.snapshot import take


def between(before: Report | None, after: Report | None) -> list[Change]:
    return changes(*(take({} if each is None else {(each.backend, each.model): each}, 0.0) for each in (before, after)))


def kinds(before: Report | None, after: Report | None) -> list[str]:
    return [change.kind for change in between(before, after)]


M = "BertModel"
EXPORTED = Report(model=M, backend="onnx", outcome="exported")


@pytest.mark.parametrize(
    ("before", "after", "kind"),
    [
        (verified(M), failed(M), "broken"),
        (verified(M), skipped(M), "broken"),
        (failed(M), verified(M), "fixed"),
        (skipped(M), verified(M), "fixed"),
        (ran(M), failed(M), "worse"),
        (failed(M), ran(M), "better"),
        (None, verified(M), "new"),
        (None, failed(M), "new"),
        (verified(M), None, "gone"),
    ],
)
def test_turns(before: Report | None, after: Report | None, kind: str) -> None:
    assert kinds(before, after) == [kind]


def test_a_verified_export_that_only_runs_is_broken_and_has_not_drifted_besides() -> None:
    assert kinds(verified(M), ran(M)) == ["broken"]
    far = ran(M)
    far.parity[0].max_abs_diff = 9.0
    assert kinds(ran(M), far) == ["drifted"]  # not verified before either, and further off now


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (verified(M), verified(M)),
        (failed(M), failed(M, message="something else")),
        (failed(M), skipped(M)),
        (skipped(M), failed(M)),
        (verified(M), EXPORTED),  # exported without a look at its numbers
    ],
)
def test_what_is_no_turn(before: Report, after: Report) -> None:
    assert kinds(before, after) == []


def test_a_broken_one_says_where_and_why() -> None:
    (change,) = between(verified(M), failed(M))
    assert (change.stage, change.message, change.before, change.after) == (
        "lowered_onnx",
        "no function for aten.median",
        "verified",
        "failed",
    )


@pytest.mark.parametrize(
    ("before", "after", "found"),
    [(4.0, 6.1, True), (4.0, 5.9, False), (1.0, 2.9, False), (1.0, 3.1, True), (100.0, 140.0, False), (6.0, 4.0, False), (0.0, 5.0, False)],
)
def test_slower_needs_both_a_ratio_and_seconds(before: float, after: float, *, found: bool) -> None:
    assert kinds(verified(M, cpu=before), verified(M, cpu=after)) == (["slower"] if found else [])


@pytest.mark.parametrize(
    ("before", "after", "found"), [(1_000_000, 1_110_000, True), (1_000_000, 1_090_000, False), (1_000, 60_000, False)]
)
def test_bigger_needs_both_a_ratio_and_bytes(before: int, after: int, *, found: bool) -> None:
    assert kinds(verified(M, size=before), verified(M, size=after)) == (["bigger"] if found else [])


@pytest.mark.parametrize(
    ("before", "after", "found"),
    [(1e-6, 5e-6, True), (1e-6, 3.9e-6, False), (1e-8, 9e-7, False), (0.0, 2e-6, True), (1e-3, float("inf"), True), (5e-6, 1e-6, False)],
)
def test_drifted_needs_both_a_ratio_and_a_difference(before: float, after: float, *, found: bool) -> None:
    assert kinds(verified(M, diff=before), verified(M, diff=after)) == (["drifted"] if found else [])


def with_costs(first: float, second: float, *, cached: bool = False) -> Report:
    report = verified(M)
    report.stages[0].cpu_seconds, report.stages[1].cpu_seconds = first, second
    report.stages[0].cached = cached
    return report


@pytest.mark.parametrize(("before", "after", "found"), [(0.5, 4.8, False), (1.0, 8.9, False), (1.0, 9.1, True), (20.0, 31.0, True)])
def test_the_first_stage_that_is_made_may_import_everything_too(before: float, after: float, *, found: bool) -> None:
    expected = ["slower"] if found else []
    assert kinds(with_costs(before, 1.0), with_costs(after, 1.0)) == expected
    assert kinds(with_costs(1.0, before), with_costs(1.0, after, cached=True)) == expected


def test_of_several_slower_stages_the_one_with_most_seconds_is_named() -> None:
    after = verified(M, cpu=8.0)
    after.stages[1].cpu_seconds = 20.0
    (change,) = between(verified(M, cpu=2.0), after)
    assert (change.kind, change.stage, change.before, change.after) == ("slower", "ir_fixed_model", 2.0, 20.0)


def test_what_was_found_in_the_store_cannot_be_slower() -> None:
    after = verified(M, cpu=2.0)
    for stage in after.stages:
        stage.cached, stage.cpu_seconds, stage.details = True, 99.0, {"made": {"cpu_seconds": 2.0}}
    assert kinds(verified(M, cpu=2.0), after) == []


def test_the_gravest_come_first() -> None:
    def snapshot(*reports: Report) -> object:
        return take({(report.backend, report.model): report for report in reports}, 0.0)

    before = snapshot(verified("A", cpu=1), failed("B"), verified("C"), verified("D"))
    after = snapshot(verified("A", cpu=9), verified("B"), failed("C"), failed("D"), verified("E"))
    found = changes(before, after)
    assert [(change.kind, change.model) for change in found] == [
        ("broken", "C"),
        ("broken", "D"),
        ("fixed", "B"),
        ("slower", "A"),
        ("new", "E"),
    ]
    assert counts(found) == {**dict.fromkeys(KINDS, 0), "broken": 2, "fixed": 1, "slower": 1, "new": 1}
