"""The verdicts of an ablation: the rules on made-up reports, and three workarounds, each with a verdict of its own, on a real export."""

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from exporters import ablation_run
from exporters.ablation import NOT_MEASURED, Overall, Partition, Verdict, conclude, find_workaround, judge, partitions, touched
from exporters.ablation_report import document, stage_of
from exporters.ablation_run import NoRun, Plan, Runner
from exporters.backends import STAGES
from exporters.code_index import CodeIndex, Workaround, code_index
from exporters.errors import UsageError
from exporters.isolation import Ended, run_forked
from exporters.ledger import Record, Reference
from exporters.report import Deeds, ErrorReport, Outcome, Parity, Report, StageReport
from exporters.source import resolve
from exporters.staleness import PartitionState, StageState
from exporters.store import Store

ROOT = Path(__file__).parents[1]
MODEL = "GPT2LMHeadModel"
SMALL = "ViTForImageClassification"


def workaround(name: str = "onnx:_fix", **fields: str) -> Workaround:
    return Workaround(name, "fx_node_fix", name.partition(":")[0], (), "f" * 8, "exporters/exporter_onnx.py", 150, fields)


def report(outcome: Outcome = "verified", *, digest: str = "sha256:a", difference: float = 1e-7, cpu: float = 1.0, **last: Any) -> Report:
    """A run from the translation on."""
    stages = [
        StageReport(stage="lowered_onnx", digest="sha256:l", bytes=1000, nodes=100),
        StageReport(stage="ir_fixed_model", **{"digest": digest, "bytes": 1000, "nodes": 100, **last}),
    ]
    parity = [Parity(inputs="sample", ok=outcome in ("matched", "verified"), max_abs_diff=difference)]
    return Report(model=MODEL, backend="onnx", outcome=outcome, stages=stages, parity=parity, cpu_seconds=cpu)


def failed(stages: int) -> Report:
    made = report().stages[:stages]
    error = ErrorReport(stage="ir_fixed_model", type="ValueError", message="no kernel")
    return Report(model=MODEL, backend="onnx", outcome="failed", stages=made, error=error)


# ── The rules ─────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("with_it", "without_it", "verdict", "says"),
    [
        (report(), failed(1), "needed", "no kernel"),
        (report(), report("ran"), "needed", "ran without it, verified with it"),
        (report("ran"), report(), "harmful", "verified without it, ran with it"),
        (failed(1), report(), "harmful", "verified without it"),
        (failed(1), failed(0), "needed", "no kernel"),
        (failed(0), failed(1), "harmful", "no kernel"),
        (failed(1), failed(1), "unclear", "with it and without it"),
        (report(), report(), "harmless", "byte for byte"),
        (report(), report(cpu=2.0), "harmless", "byte for byte"),
        (report(), report(digest="sha256:b"), "harmless", "verified without it too"),
        (report(), report(digest="sha256:b", nodes=102), "harmless", "verified without it too"),
        (report(), report(digest="sha256:b", nodes=103), "needed", "nodes: 103, with it 100"),
        (report(), report(digest="sha256:b", bytes=1100), "needed", "bytes: 1100, with it 1000"),
        (report(), report(digest="sha256:b", nodes=50, bytes=500), "harmless", "verified without it too"),
        (report(), report(digest="sha256:b", details={"not_delegated_operators": 3}), "needed", "not delegated: 3, with it 0"),
        (report(), report(digest="sha256:b", difference=9e-6), "harmless", "verified without it too"),
        (report(), report(digest="sha256:b", difference=2e-5), "needed", "difference to eager"),
        (report(difference=2e-5), report(digest="sha256:b"), "harmful", "difference to eager"),
        (report(difference=2e-5), report(digest="sha256:b", difference=3e-6), "harmless", "verified without it too"),
    ],
)
def test_the_first_rule_that_matches_decides(with_it: Report, without_it: Report, verdict: Verdict, says: str) -> None:
    result = judge(workaround(), "lowered_onnx", with_it, without_it)
    assert (result.verdict, result.outcomes) == (verdict, (with_it.outcome, without_it.outcome))
    assert says in result.why


@pytest.mark.parametrize("digest", ["sha256:a", "sha256:b"])
@pytest.mark.parametrize(("cpu", "verdict"), [(1.04, "harmless"), (1.06, "needed"), (0.5, "harmless")])
def test_what_exists_for_time_is_judged_by_time(digest: str, cpu: float, verdict: Verdict) -> None:
    saves_time = workaround(Cost="none; the program is the same, but for its numbering.")
    result = judge(saves_time, "lowered_onnx", report(), report(digest=digest, cpu=cpu))
    assert (result.verdict, result.identical) == (verdict, digest == report().stages[-1].digest)
    assert f"in {cpu:.1f} s of CPU, with it in 1.0 s" in result.why


def test_what_exists_for_time_and_costs_more_is_no_matter_of_time() -> None:
    saves_time = workaround(Cost="none; the program is the same.")
    assert "nodes: 103" in judge(saves_time, "lowered_onnx", report(), report(digest="sha256:b", nodes=103)).why


def test_a_wrong_input_set_more_is_less() -> None:
    worse = report("matched")
    worse.parity.append(Parity(inputs="other", ok=False))
    better = report("matched")
    better.parity.append(Parity(inputs="other", ok=True))
    assert judge(workaround(), "lowered_onnx", better, worse).verdict == "needed"


def test_what_differs_is_told() -> None:
    result = judge(workaround(), "lowered_onnx", report(), report(digest="sha256:b", nodes=90, difference=2e-7))
    assert [str(each) for each in result.differences] == ["max abs diff 1.0e-07 -> 2.0e-07", "ir_fixed_model: nodes 100 -> 90"]
    result = judge(workaround(), "lowered_onnx", report(), failed(1))
    assert [str(each) for each in result.differences] == ["outcome verified -> failed"]


@pytest.mark.parametrize(
    ("others", "all_tried", "verdict"),
    [
        ([report()], True, "obsolete"),
        ([report(), report()], True, "obsolete"),
        ([report()], False, "harmless"),
        ([report(), failed(1)], True, "needed"),
        ([report(), None], True, "harmless"),
        ([None], True, "unclear"),
        ([], True, "untouched"),
    ],
)
def test_the_verdict_over_all_partitions(others: list[Report | None], all_tried: bool, verdict: Overall) -> None:
    pairs = [(report(), other) if other else (failed(1), failed(1)) for other in others]  # None: fails either way
    results = [judge(workaround(), "lowered_onnx", *pair) for pair in pairs]
    assert conclude(workaround(), results, all_tried=all_tried).verdict == verdict


def test_one_harmful_partition_decides() -> None:
    results = [judge(workaround(), "lowered_onnx", report(), failed(1)), judge(workaround(), "lowered_onnx", report("ran"), report())]
    assert conclude(workaround(), results).verdict == "harmful"


def test_what_it_was_seen_in_and_was_not_tried_is_named() -> None:
    seen = workaround(**{"Seen in": f"{MODEL}, BertModel, cases/case_14.py and every model"})
    tried = conclude(seen, [judge(seen, "lowered_onnx", report(), report())])
    assert tried.untried == ["BertModel", "cases/case_14.py"]
    assert "BertModel, cases/case_14.py" in tried.next
    file = judge(seen, "lowered_onnx", report(), report()).model_copy(update={"model": "../shared/cases/case_14.py"})
    assert conclude(seen, [file]).untried == [MODEL, "BertModel"]
    vague = workaround(**{"Seen in": "`max_pool2d(x, 2)` in any module"})
    assert conclude(vague, [judge(vague, "lowered_onnx", report(), report())]).untried == ["`max_pool2d(x, 2)` in any module"]
    assert conclude(workaround(**{"Seen in": "every model"}), []).untried == []
    assert conclude(seen, []).next == f"export what it was seen in: zooport export {MODEL} --backend onnx"


# ── Names ─────────────────────────────────────────────────────────────────────


@pytest.fixture(scope="module")
def index() -> CodeIndex:
    return code_index()


@pytest.mark.parametrize("name", ["onnx:_aten_sort_stable", "_aten_sort_stable"])
def test_a_workaround_is_found_by_name(index: CodeIndex, name: str) -> None:
    assert find_workaround(name, index).name == "onnx:_aten_sort_stable"


def test_a_name_in_two_scopes_needs_its_scope() -> None:
    twice = CodeIndex((workaround("onnx:_fix"), workaround("dynamo:_fix")), {})
    with pytest.raises(UsageError, match="onnx:_fix, dynamo:_fix"):
        find_workaround("_fix", twice)


@pytest.mark.parametrize("name", ["onnx:_aten_sort_stabel", "_aten_sort_stabel", "onnx:_sort_stable"])
def test_an_unknown_name_is_refused_with_near_matches(index: CodeIndex, name: str) -> None:
    with pytest.raises(UsageError, match="did you mean onnx:_aten_sort_stable"):
        find_workaround(name, index)


# ── Partitions ────────────────────────────────────────────────────────────────


def write_reference(store: Store, stage: str, *, called: str = "", model: str = MODEL, **config: Any) -> None:
    reference = Reference(
        model=model,
        digest=f"sha256:{stage}",
        parts={"input": "sha256:before", "config": config, "weights": ""},
        recipe=[],
        record=Record(deeds=Deeds(called={called: 1} if called else {})),
        report=StageReport(stage=stage),
        made_at=0.0,
    )
    store.write_ref("onnx", stage, "onnx", model, content=reference.model_dump())


def test_a_rerun_starts_at_the_first_stage_that_names_the_workaround(tmp_path: Path) -> None:
    store = Store(tmp_path)
    write_reference(store, "traced_program", dynamic=True, max_sizes={"batch": 4})
    write_reference(store, "decomposed_graph", called="onnx:_fix", dynamic=True, opset=20)
    write_reference(store, "lowered_onnx", called="onnx:_fix", dynamic=True, opset=20)
    write_reference(store, "traced_program", model="BertModel", dynamic=True)
    store.write_ref("verification", "onnx", MODEL, content={"key": "k", "report": report().model_dump()})
    found, passed_over = partitions(store)
    (partition,) = touched(workaround(), found)
    assert passed_over == []
    assert (partition.model, partition.first_stage("onnx:_fix")) == (MODEL, "decomposed_graph")
    assert partition.upstream("decomposed_graph") == "sha256:before"
    assert partition.upstream("traced_program") is None
    assert partition.options() == {"dynamic": True, "max_sizes": {"batch": 4}, "opset": 20}
    assert partition.verified is not None
    assert touched(workaround(), found, ["BertModel"]) == []


def test_a_stored_export_is_a_run_from_any_stage(tmp_path: Path) -> None:
    store = Store(tmp_path)
    for stage in STAGES["onnx"]:
        write_reference(store, stage)
    stages = [StageReport(stage=stage, digest=f"sha256:{stage}") for stage in STAGES["onnx"]]
    whole = report().model_copy(update={"stages": stages})
    for known, expected in ((whole, ["lowered_onnx", "ir_fixed_model"]), (report(), None)):  # the second is of other artifacts
        store.write_ref("verification", "onnx", MODEL, content={"report": known.model_dump()})
        ((partition,), _) = partitions(store)
        found = partition.report_from("lowered_onnx")
        assert (found and [stage.stage for stage in found.stages]) == expected


def test_references_of_another_version_are_passed_over_with_a_word(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.write_ref("onnx", "traced_program", "onnx", MODEL, content={"key": "old", "digest": "sha256:0"})
    store.write_ref("onnx", "old_stage", "onnx", MODEL, content={})
    assert partitions(store) == ([], [f"onnx, {MODEL}, traced_program: another version of zooport made it; export it again"])


# ── Runs ──────────────────────────────────────────────────────────────────────


def ended(*lines: dict[str, Any], how: str = "") -> Ended:
    return Ended(lines=list(lines), how=how, seconds=1.0, cpu_seconds=1.0, peak_rss_mb=1, tail="MemoryError\n")


def plan() -> Plan:
    return Plan(resolve(MODEL), MODEL, "onnx", "lowered_onnx", None, {"dynamic": True}, ("", ""))


@pytest.mark.parametrize(("how", "says"), [("SIGXCPU", "more than 5 s of CPU"), ("SIGKILL", r"\(SIGKILL\): MemoryError")])
def test_a_child_that_ends_without_a_report_failed_in_its_stage(how: str, says: str) -> None:
    made = {"made": report().stages[0].model_dump()}
    found = ablation_run._report_of(plan(), ended({"stage": "lowered_onnx"}, made, {"stage": "ir_fixed_model"}, how=how), 5)
    assert (found.outcome, [stage.stage for stage in found.stages]) == ("failed", ["lowered_onnx"])
    assert found.error is not None
    assert found.error.stage == "ir_fixed_model"
    assert re.search(says, found.error.message)


def test_a_child_that_never_began_says_nothing_of_the_workaround() -> None:
    with pytest.raises(NoRun, match="before the first stage"):
        ablation_run._report_of(plan(), ended(how="SIGKILL"), 5)
    with pytest.raises(NoRun, match="its sample has changed"):
        ablation_run._report_of(plan(), ended({"no_run": "its sample has changed"}), 5)


def test_a_busy_machine_is_no_verdict() -> None:
    with pytest.raises(NoRun, match="quieter machine"):
        ablation_run._report_of(plan(), ended({"stage": "lowered_onnx"}, how="timeout"), 5)


def test_a_run_is_limited_in_cpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def spin(*arguments: Any) -> Any:
        arguments[-1]({"stage": "lowered_onnx"})
        while True:
            pass

    monkeypatch.setattr(ablation_run, "_Chain", spin)
    last = run_forked(lambda say: ablation_run._work(plan(), tmp_path, tmp_path, 1, say), seconds=60, memory=4 << 30)
    assert last.how == "SIGXCPU"
    late = ablation_run._report_of(plan(), last, 1)
    assert late.error is not None
    assert late.error.message == "took more than 1 s of CPU"


@pytest.fixture
def runner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, index: CodeIndex) -> Callable[[list[float]], list[str]]:
    """Compares a partition with runs that take the given CPU seconds; what was run."""
    store = Store(tmp_path / "store")
    write_reference(store, "traced_program", called="onnx:_fix", dynamic=True)
    store.write_ref("samples", MODEL, content={"digest": "d", "weights": "w"})

    def compare(cpu: list[float]) -> list[str]:
        ran: list[str] = []
        runs = iter(cpu)
        monkeypatch.setattr(ablation_run, "warm_up", lambda family: None)
        monkeypatch.setattr(ablation_run, "run_forked", lambda *args, **limits: ended({"report": report(cpu=next(runs)).model_dump()}))
        (partition,), _ = partitions(store)
        saves_time = workaround(Cost="none; the program is the same, byte for byte.")
        result = Runner(tmp_path, store, index, on_run=ran.append).compare(saves_time, partition)
        return [*(each.rpartition(", ")[2] for each in ran), result.verdict]

    return compare


def test_a_close_difference_in_time_is_measured_once_more(runner: Callable[[list[float]], list[str]]) -> None:
    pair = ["with everything", "without onnx:_fix"]
    assert runner([1.0, 1.1, 0.8, 0.9]) == [*pair, *pair, "needed"]


def test_a_clear_difference_in_time_is_not(runner: Callable[[list[float]], list[str]]) -> None:
    assert runner([1.0, 2.0]) == ["with everything", "without onnx:_fix", "needed"]
    assert runner([]) == ["needed"]  # what was measured before is kept


def test_without_runs_there_is_what_was_measured_before(tmp_path: Path, index: CodeIndex) -> None:
    store = Store(tmp_path / "store")
    write_reference(store, "traced_program", called="onnx:_fix", dynamic=True)
    ((partition,), _) = partitions(store)
    result = Runner(tmp_path, store, index, runs=False).compare(workaround(), partition)
    assert (result.verdict, result.why) == ("unclear", "not measured yet")


def test_what_is_stored_and_fresh_is_not_made_again(runner: Callable[[list[float]], list[str]], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Partition, "report_from", lambda self, stage: report(cpu=9.0))
    monkeypatch.setattr(ablation_run, "exists_for_time", lambda workaround: False)
    fresh = PartitionState(MODEL, MODEL, "onnx", (StageState("traced_program", "fresh"),))
    monkeypatch.setattr(ablation_run, "survey", lambda store, index: [fresh])
    assert runner([1.0]) == ["without onnx:_fix", "harmless"]


# ── The document ──────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("name", "stage"),
    [
        ("onnx:_aten_sort_stable", "Stage 4: ONNX translations"),
        ("executorch:_fix_constant_leaves", "Stage 4: FX program fixes"),
        ("dynamo:_fix_view_of_attention", ""),
    ],
)
def test_a_stage_is_said_by_the_banner_above(index: CodeIndex, name: str, stage: str) -> None:
    assert stage_of(find_workaround(name, index)) == stage


def test_what_was_seen_and_what_was_quick_is_tried_first() -> None:
    def partition(name: str, seconds: float, outcome: str = "verified") -> Partition:
        made = StageReport(stage="lowered_onnx", cpu_seconds=seconds)
        record = Record(deeds=Deeds(used={"onnx:_fix": 1}))
        parts = {"input": "", "config": {}}
        reference = Reference(model=name, digest="sha256:0", parts=parts, recipe=[], record=record, report=made, made_at=0.0)
        return Partition("onnx", name, {"lowered_onnx": reference}, report(outcome))

    slow, quick, seen, wrong = partition("A", 9.0), partition("B", 1.0), partition("C", 20.0), partition("D", 0.5, "ran")
    tried = sorted([slow, quick, seen, wrong], key=lambda each: each.promise(workaround(**{"Seen in": "C"})))
    assert [each.name for each in tried] == ["C", "B", "A", "D"]


def test_the_document_counts_what_was_not_measured(index: CodeIndex) -> None:
    chosen = index.workarounds[0]
    needed = judge(chosen, "lowered_onnx", report(), failed(1))
    others = [needed.model_copy(update={"model": name, "verdict": "unclear", "why": NOT_MEASURED}) for name in ("A", "B")]
    lines = document([conclude(chosen, [needed, *others])], index).splitlines()
    assert any(line.endswith("| needed (1 needed, 2 not measured) |") for line in lines)
    assert "- A (onnx), B (onnx): not measured" in lines


def test_the_document_has_a_row_a_workaround_and_what_differs(index: CodeIndex) -> None:
    chosen = index.workarounds[:3]
    spared = judge(chosen[1], "lowered_onnx", report(), report(digest="sha256:b", nodes=90))
    ablations = [
        conclude(chosen[0], [judge(chosen[0], "lowered_onnx", report(), failed(1))]),
        conclude(chosen[1], [spared]),
        conclude(chosen[2], []),
    ]
    lines = document(ablations, index).splitlines()
    rows = {line.split(" | ")[0].strip("| `"): line for line in lines if line.startswith("| `")}
    assert list(rows) == [each.name.partition(":")[2] for each in chosen]
    assert [row.rpartition(" | ")[2] for row in rows.values()] == ["needed |", "**obsolete** |", "**untouched** |"]
    assert f"- {MODEL} (onnx): harmless: verified without it too (ir_fixed_model: nodes 100 -> 90)" in lines


# ── A real export ─────────────────────────────────────────────────────────────

PLANTED = """

_layer_norm = torch.nn.functional.layer_norm


def _upstream_bug(*args, **kwargs):
    if torch.compiler.is_exporting():
        raise NotImplementedError("layer_norm can't be traced")
    return _layer_norm(*args, **kwargs)


torch.nn.functional.layer_norm = _upstream_bug


@register_patch("dynamo", "torch.nn.functional.layer_norm")
def _patch_needed(original):
    return _layer_norm


@register_patch("dynamo", "torch.nn.functional.linear")
def _patch_useless(original):
    return lambda *args, **kwargs: original(*args, **kwargs)


@register_patch("dynamo", "torch.nn.functional.linear")
def _patch_wrong(original):
    return lambda *args, **kwargs: original(*args, **kwargs) * 1.5
"""


def zooport(package: Path, home: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", "from orchestration.cli import main; main()", *arguments],
        capture_output=True,
        text=True,
        check=False,
        cwd=package,
        env={**os.environ, "PYTHONPATH": str(package), "ZOOPORT_HOME": str(home)},
    )


def contents(home: Path) -> dict[str, str]:
    """Every file of the store, of the reports and of the exports."""
    files = [path for folder in ("store", "reports", "exports", "weights") for path in (home / folder).rglob("*") if path.is_file()]
    return {str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


@pytest.mark.e2e
@pytest.mark.slow
def test_useless_wrong_and_needed_ones_are_told_apart_and_the_store_stays_as_it_was(tmp_path: Path) -> None:
    package, home = tmp_path / "package", tmp_path / "home"
    for name in ("exporters", "orchestration"):
        shutil.copytree(ROOT / name, package / name, ignore=shutil.ignore_patterns("__pycache__"))
    with (package / "exporters" / "models" / "pooling.py").open("a") as file:
        file.write(PLANTED)
    exported = json.loads(zooport(package, home, "export", SMALL, "--backend", "dynamo", "--json").stdout)
    assert exported["outcome"] == "ran"
    before = contents(home)
    command = ("ablate", "_patch_useless", "_patch_wrong", "_patch_needed", "--json")
    done = zooport(package, home, *command)
    assert done.returncode == 0, done.stderr[-2000:]
    found = {row["workaround"]: row for row in map(json.loads, done.stdout.splitlines())}
    assert {name: row["verdict"] for name, row in found.items()} == {
        "dynamo:_patch_useless": "obsolete",
        "dynamo:_patch_wrong": "harmful",
        "dynamo:_patch_needed": "needed",
    }
    assert {name: row["partitions"][0]["outcomes"] for name, row in found.items()} == {
        "dynamo:_patch_useless": ["ran", "ran"],
        "dynamo:_patch_wrong": ["ran", "verified"],
        "dynamo:_patch_needed": ["ran", "failed"],
    }
    assert "layer_norm can't be traced" in found["dynamo:_patch_needed"]["partitions"][0]["why"]
    assert contents(home) == before

    runs = (home / "ablation.jsonl").read_text()
    again = zooport(package, home, *command)
    assert again.stdout == done.stdout
    assert (home / "ablation.jsonl").read_text() == runs
