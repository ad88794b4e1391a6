"""Which workarounds matter to a stage, by what its last run showed."""

from typing import Any

import pytest

from exporters import ledger
from exporters.code_index import CodeIndex, Workaround
from exporters.ledger import Record, Reference, differences, matters, recipe
from exporters.report import Deeds, StageReport
from exporters.utils import patch_identity

MODELING = "transformers.models.bert.modeling_bert.BertModel.forward"


def workaround(
    kind: str = "patch", name: str = "dynamo:_patch_x", targets: tuple[str, ...] = ("torch.where",), body: str = "1"
) -> Workaround:
    return Workaround(name, kind, name.partition(":")[0], targets, body, "exporters/x.py", 1)


def index(*workarounds: Workaround) -> CodeIndex:
    return CodeIndex(workarounds, {})


def in_reach(*patches: Workaround) -> list[str]:
    return [patch_identity(each.name, each.targets) for each in patches]


# ── Patches ───────────────────────────────────────────────────────────────────


def test_a_patch_that_was_called_matters_and_one_in_reach_that_was_not_does_not() -> None:
    called, idle = workaround(), workaround(name="dynamo:_patch_y")
    record = Record(deeds=Deeds(called={called.name: 3}), patches=in_reach(called, idle))
    assert matters(called, record)
    assert not matters(idle, record)


def test_a_patch_of_something_else_than_before_may_be_called() -> None:
    before, after = workaround(), workaround(targets=("torch.sort",))
    assert matters(after, Record(patches=in_reach(before)))


def test_a_new_patch_matters_where_its_target_can_occur() -> None:
    record = Record(patches=[], modules=["transformers.models.gpt2.modeling_gpt2"])
    assert matters(workaround(), record)
    assert not matters(workaround(targets=(MODELING,)), record)
    assert matters(workaround(targets=(MODELING, "torch.where")), record)
    assert matters(workaround(targets=(MODELING,)), Record(patches=[], modules=["transformers.models.bert.modeling_bert"]))


def test_a_stage_that_applies_no_patches_depends_on_none() -> None:
    assert not matters(workaround(), Record())


# ── Fixes and translations ────────────────────────────────────────────────────


@pytest.mark.parametrize("kind", ["fx_node_fix", "translation", "ir_fix"])
def test_what_declares_operators_matters_where_a_graph_that_it_read_has_one(kind: str) -> None:
    fix = workaround(kind, "onnx:_fix_x", ("TopK", "Sort"))
    assert matters(fix, Record(read={f"{kind} onnx": ["Add", "Sort"]}))
    assert not matters(fix, Record(read={f"{kind} onnx": ["Add"]}))


def test_a_fix_that_declares_no_operators_matters_wherever_it_ran() -> None:
    for kind in ("fx_node_fix", "fx_program_fix"):
        fix = workaround(kind, "onnx:_fix_x", ())
        assert matters(fix, Record(read={f"{kind} onnx": []}))
        assert not matters(fix, Record(read={f"{kind} dynamo": []}))


def test_a_pass_that_did_not_run_in_a_stage_reads_nothing_there() -> None:
    assert not matters(workaround("ir_fix", "onnx:_fix_x", ("TopK",)), Record(read={"translation onnx": ["TopK"]}))


# ── Recipes ───────────────────────────────────────────────────────────────────


def test_a_recipe_holds_the_scopes_of_its_backend_only() -> None:
    both = index(workaround(), workaround(name="executorch.xnnpack:_patch_y"), workaround(name="executorch.cuda:_patch_z"))
    record = Record(deeds=Deeds(called=dict.fromkeys((each.name for each in both.workarounds), 1)), patches=in_reach(*both.workarounds))
    assert [name for name, _ in recipe(record, both, "executorch.xnnpack", "pte")] == ["dynamo:_patch_x", "executorch.xnnpack:_patch_y"]
    assert [name for name, _ in recipe(record, both, "onnx", "traced_program")] == ["dynamo:_patch_x"]


def test_what_is_translated_decides_what_is_decomposed_and_how_does_not() -> None:
    before = index(workaround("translation", "onnx:_aten_x", ("aten.sort.stable",)))
    rewritten = index(workaround("translation", "onnx:_aten_x", ("aten.sort.stable",), body="2"))
    another = index(*before.workarounds, workaround("translation", "onnx:_aten_y", ("aten.cummax.default",)))
    found = [recipe(Record(), each, "onnx", "decomposed_graph") for each in (before, rewritten, another)]
    assert found[0] == found[1] != found[2]
    assert recipe(Record(), before, "onnx", "lowered_onnx") == []


# ── Differences ───────────────────────────────────────────────────────────────


def reference(**parts: Any) -> Reference:
    rows = [("dynamo:_patch_x", "1"), ("dynamo:_patch_y", "2")]
    return Reference(digest="", model="", parts=parts, recipe=rows, record=Record(), report=StageReport(stage=""), made_at=0)


def test_nothing_changed_is_no_difference() -> None:
    known = reference(packages={"torch": "1"})
    assert differences(known, known.parts, known.recipe) == []


def test_every_kind_of_change_is_told() -> None:
    known = reference(input="a", packages={"torch": "1", "onnx": "1"}, config={"dynamic": True})
    after = {"input": "b", "packages": {"torch": "2", "onnx": "1"}, "config": {"dynamic": True}}
    assert differences(known, after, known.recipe) == ["input", "packages: torch 1 -> 2"]
    changed = differences(known, known.parts, [("dynamo:_patch_x", "9"), ("dynamo:_patch_z", "3")])
    assert changed == ["workaround dynamo:_patch_x: changed", "workaround dynamo:_patch_y: removed", "workaround dynamo:_patch_z: new"]


def test_another_order_of_the_same_workarounds_is_a_difference() -> None:
    known = reference()
    assert differences(known, known.parts, known.recipe[::-1]) == ["the order of workarounds"]


def test_a_reference_survives_the_store(tmp_path: Any) -> None:
    from exporters.store import Store

    store = Store(tmp_path)
    known = reference(input="a", packages={"torch": "1"}, max_sizes={"batch": 4})
    store.write_ref("onnx", "traced_program", "onnx", "x", content=known.model_dump())
    again = Reference.model_validate(store.read_ref("onnx", "traced_program", "onnx", "x"))
    assert ledger.differences(again, known.parts, known.recipe) == []
