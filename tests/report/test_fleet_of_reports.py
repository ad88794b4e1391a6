"""The whole report: what it compares with, what it keeps, what it says of those that fail."""

from collections.abc import Callable
from pathlib import Path

from report_samples import DAY, NOW, failed, ran, skipped, verified

from exporters import known_issues
from exporters.report import Deeds, Report
from exporters.reports import remember
from exporters.store import Store
from orchestration.report import fleet
from orchestration.report.fleet import FleetReport
from orchestration.report.history import History
from orchestration.report.summary import all_of, grave, groups, sentence, some

Make = Callable[..., FleetReport]


# ── What is kept, and what it is compared with ────────────────────────────────


def test_the_first_report_is_kept_and_compared_with_nothing(make: Make, store: Store) -> None:
    made = make(0, verified("BertModel"), failed("ViTModel"))
    assert made.comparison is None
    assert made.is_new
    assert History(store).names() == [made.name]
    assert made.headline == {"exports": 2, "models": 2, "verified": 1, "unverified": 0, "failed": 1, "skipped": 0}
    assert sentence(made) == "the first report"
    assert groups(made) == []


def test_the_second_says_what_has_changed_since(make: Make) -> None:
    make(0, verified("BertModel"), failed("ViTModel"))
    made = make(1, failed("BertModel"), verified("ViTModel"))
    assert made.comparison is not None
    assert (made.comparison.label, made.comparison.at) == ("last report", NOW)
    assert [(change.kind, change.model) for change in made.comparison.changes] == [("broken", "BertModel"), ("fixed", "ViTModel")]
    assert sentence(made) == "1 broken, 1 fixed"


def test_looking_twice_does_not_hide_what_broke(make: Make, store: Store) -> None:
    make(0, verified("BertModel"))
    broken = make(1, failed("BertModel"))
    again = make(1.5)
    assert not again.is_new
    assert again.name == broken.name
    assert again.comparison is not None
    assert [change.kind for change in again.comparison.changes] == ["broken"]
    assert len(History(store).names()) == 2


def test_nothing_that_was_kept_is_ever_written_again(make: Make, store: Store) -> None:
    names, contents = [], {}
    for day in range(4):
        make(day, verified("BertModel") if day % 2 else failed("BertModel"))
        for name in History(store).names():
            content = store.read_file("history", name)
            assert contents.setdefault(name, content) == content
            names.append(name)
    assert len(set(names)) == 4


def test_a_week_and_four_weeks_are_told_beside_the_last_report(make: Make) -> None:
    for day in range(0, 35):
        made = make(day, verified("BertModel", cpu=10 + day / 100))
    assert [(each.label, (NOW + 34 * DAY - each.at) / DAY) for each in made.comparisons] == [
        ("last report", 1),
        ("1 week", 7),
        ("4 weeks", 28),
    ]


def test_a_week_old_history_has_no_four_weeks(make: Make) -> None:
    for day in range(0, 9):
        made = make(day, verified("BertModel", cpu=10 + day / 100))
    assert [each.label for each in made.comparisons] == ["last report", "1 week"]


def test_what_is_asked_for_comes_first(make: Make) -> None:
    make(0, verified("BertModel"))
    make(5, failed("BertModel"))
    make(10, verified("BertModel"))
    made = make(15, failed("BertModel"), since=NOW + 6 * DAY)
    assert [(each.label, (each.at - NOW) / DAY) for each in made.comparisons] == [("asked for", 5), ("last report", 10)]
    assert made.comparison is not None
    assert made.comparison.changes == []
    early = make(15, since=NOW - 100 * DAY)
    assert early.comparison is not None
    assert early.comparison.at == NOW
    assert [change.kind for change in early.comparison.changes] == ["broken"]


def test_a_damaged_snapshot_is_passed_over(make: Make, store: Store) -> None:
    name = make(0, verified("BertModel")).name
    store.write_file("history", name, content=b"damaged")
    made = make(1, failed("BertModel"))
    assert made.comparison is None
    assert [point.at for point in made.trend] == [NOW + DAY]


# ── What it says ──────────────────────────────────────────────────────────────


def test_of_a_failure_since_when(make: Make) -> None:
    make(0, verified("BertModel"), failed("ViTModel"))
    make(1, failed("BertModel"), verified("ViTModel"))
    make(2, ran("BertModel"), failed("ViTModel"))
    made = make(3, failed("BertModel", message="something else"))
    assert made.failing_since == {("onnx", "BertModel"): NOW + DAY, ("onnx", "ViTModel"): NOW + 2 * DAY}


def test_the_trend_has_a_point_a_snapshot_and_counts_by_backend(make: Make) -> None:
    make(0, verified("BertModel"), failed("ViTModel"))
    made = make(7, verified("ViTModel"), verified("BertModel", "dynamo"), skipped("T5Model", "dynamo"))
    assert [(point.at, point.verified, point.total) for point in made.trend] == [
        (NOW, {"onnx": 1}, {"onnx": 2}),
        (NOW + 7 * DAY, {"dynamo": 1, "onnx": 2}, {"dynamo": 2, "onnx": 2}),
    ]


def test_the_costs_are_distributions_by_stage(make: Make) -> None:
    made = make(0, *(verified(f"M{number}", cpu=number, size=10 * number) for number in range(1, 11)))
    assert [(cost.backend, cost.stage, cost.models) for cost in made.costs] == [
        ("onnx", "traced_program", 10),
        ("onnx", "ir_fixed_model", 10),
    ]
    cpu = made.costs[0].cpu_seconds
    assert (cpu.total, cpu.median, cpu.p90, cpu.largest) == (55, 5.5, 10, 10)
    assert made.costs[0].most == "M10"
    assert made.costs[0].bytes.total == 550


def test_workarounds_by_reach(make: Make, store: Store) -> None:
    bert, vit = verified("BertModel"), verified("ViTModel")
    bert.stages[0].deeds = Deeds(called={"onnx:_aten_sort_stable": 3})
    vit.stages[0].deeds = Deeds(used={"onnx:_aten_sort_stable": 2, "onnx:_gone_since": 1})
    rows = {row.name: row for row in make(0, bert, vit).reach}
    assert (rows["onnx:_aten_sort_stable"].models, rows["onnx:_aten_sort_stable"].times) == (2, 5)
    assert rows["onnx:_aten_sort_stable"].where.startswith("exporters/exporter_onnx.py:")
    assert (rows["onnx:_gone_since"].kind, rows["onnx:_gone_since"].models) == ("", 1)
    assert next(iter(rows)) == "onnx:_aten_sort_stable"
    assert [*rows][-1] == "onnx:_gone_since"
    assert sum(row.models == 0 for row in rows.values()) > 10  # the registered ones that did nothing are told too


def test_a_known_issue_that_passes_is_told(make: Make) -> None:
    listed, *_ = known_issues.EXPORT_SKIPS
    made = make(0, verified(listed), skipped(listed, "dynamo"), verified("BertModel"))
    assert [(row.backend, row.passes) for row in made.known] == [("onnx", True), ("dynamo", False)]


def test_models_have_their_type_whether_the_zoo_knows_them_or_not(make: Make) -> None:
    made = make(0, verified("BertModel"), verified("org/checkpoint"), verified("RemovedModel"))
    assert made.model_types["BertModel"] == ("bert", "text")
    assert made.model_types["org/checkpoint"][1] == "checkpoint"
    assert made.model_types["RemovedModel"] == ("not in the zoo", "")


def test_an_empty_store_is_a_report_too_of_which_nothing_is_kept(make: Make, store: Store) -> None:
    assert make(0).headline["exports"] == 0
    assert History(store).names() == []
    assert make(1, verified("BertModel")).comparison is None


# ── In few words ──────────────────────────────────────────────────────────────


def test_what_broke_for_one_cause_at_one_place_is_told_together(make: Make) -> None:
    names = [f"M{number}" for number in range(5)]
    make(0, *(verified(name, backend) for name in names for backend in ("dynamo", "onnx")))
    broken = [failed(name, message=f"no function for aten.median, node median_{position}") for position, name in enumerate(names)]
    made = make(1, *broken[:4], failed("M0", "dynamo", stage="traced_program"))
    assert [(row.kind, row.where, row.models) for row in groups(made)] == [
        ("broken", "onnx lowered_onnx", ("M0", "M1", "M2", "M3")),
        ("broken", "dynamo traced_program", ("M0",)),
    ]
    assert groups(made)[0].cause == "DispatchError: no function for aten.median, node median_N"
    assert groups(made)[0].example == "no function for aten.median, node median_0"
    assert groups(made, ("fixed",)) == []


def test_a_cause_that_was_there_is_told_from_one_that_has_come(make: Make) -> None:
    def median(name: str, position: int, backend: str = "onnx") -> Report:
        return failed(name, backend, message=f"no function for aten.median, node median_{position}")

    make(0, median("A", 1), median("A", 2, "dynamo"), median("B", 3), verified("C"), verified("D"), failed("E", message="something else"))
    made = make(1, median("C", 4), median("E", 5), failed("D", message="unheard of"))
    assert [(row.models, row.fresh, row.older) for row in groups(made, ("broken",))] == [(("C",), 2, 2), (("D",), 1, 0)]


def test_what_is_slower_bigger_or_off_is_named_with_its_figures(make: Make) -> None:
    make(0, verified("A", cpu=10, size=1_000_000, diff=1e-6))
    made = make(1, verified("A", cpu=25, size=2_000_000, diff=2e-5))
    assert [(row.kind, row.where, row.figures) for row in all_of(made)] == [
        ("slower", "onnx traced_program", ("10.0 s -> 25.0 s",)),
        ("bigger", "onnx traced_program", ("1.0 MB -> 2.0 MB",)),
        ("drifted", "onnx verification", ("1.0e-06 -> 2.0e-05",)),
    ]


def test_what_has_to_be_repaired_goes_first_and_nothing_is_left_out(make: Make) -> None:
    make(0, failed("A"), verified("B"), verified("C", cpu=10))
    made = make(1, verified("A"), failed("B"), verified("C", cpu=30), failed("D"), verified("E"))
    assert [(row.kind, row.models) for row in all_of(made)] == [
        ("broken", ("B",)),
        ("new", ("D",)),
        ("fixed", ("A",)),
        ("slower", ("C",)),
        ("new", ("E",)),
    ]
    assert [row.fails for row in all_of(made)] == [True, True, False, False, False]


def test_a_new_one_that_fails_is_grave_and_one_that_passes_is_not(make: Make) -> None:
    make(0, failed("A"))
    made = make(1, verified("A"), failed("B"), verified("C"))
    assert [(row.kind, row.where, row.models) for row in grave(made)] == [("new", "onnx lowered_onnx", ("B",)), ("fixed", "onnx", ("A",))]


def test_some_names_many() -> None:
    assert some(["A", "B", "C"], 3) == "A, B, C"
    assert some(["A", "B", "C"], 2) == "A, B and 1 more"


# ── Scale ─────────────────────────────────────────────────────────────────────


def test_most_of_the_history_is_not_read(zooport_home: Path) -> None:
    store = Store(zooport_home / "store")
    for day in range(120):
        remember(store, verified("BertModel", cpu=1 + day / 10))
        made = fleet.make(store, zooport_home, now=NOW + day * DAY)
    assert len(made.trend) == 52
    assert (made.trend[0].at, made.trend[-1].at) == (NOW, NOW + 119 * DAY)


def test_kinds_of_end_are_told_apart(make: Make) -> None:
    exported = Report(model="A", backend="onnx", outcome="exported")
    made = make(0, exported, verified("B"), ran("C"), skipped("D"))
    assert made.tally("onnx") == {"verified": 1, "unverified": 2, "failed": 0, "skipped": 1}
