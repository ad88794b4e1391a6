"""The survey of a store: judged from references alone, with the cause of every stage that is out of date."""

import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from exporters import keys, source
from exporters.backends import STAGES, family_of
from exporters.code_index import CodeIndex, Workaround
from exporters.keys import Options, SampleReference, baked_weights, sample_parts, stage_parts
from exporters.ledger import Record, Reference, recipe
from exporters.report import Deeds, StageReport
from exporters.staleness import PartitionState, survey
from exporters.store import Store
from exporters.zoo import catalogue

MODEL = "BertForSequenceClassification"
CORE = {"dynamo": "d", "onnx": "o", "executorch": "e", "sample": "s", "verification": "v"}
IR_FIX = Workaround("onnx:_fix_ir_x", "ir_fix", "onnx", ("TopK",), "1", "exporters/x.py", 1)
INDEX = CodeIndex((IR_FIX,), CORE)


def fill(
    store: Store, model: str = MODEL, backend: str = "onnx", *, index: CodeIndex = INDEX, operators: tuple[str, ...] = ("TopK",)
) -> None:
    """References of a partition as an export would leave them, without the export."""
    origin = source.resolve(model)
    sample = SampleReference("sample", "weights", sample_parts(origin, index), {}, selects=False)
    store.write_ref("samples", model, content=asdict(sample))
    options = Options(backend, True, {}, 18, True)
    digest = sample.digest
    for stage in STAGES[family_of(backend)]:
        parts = stage_parts(stage, options, digest, baked_weights(stage, origin, sample), index)
        read = {"ir_fix onnx": list(operators)} if stage == "ir_fixed_model" else {}
        record = Record(deeds=Deeds(), read=read)
        digest = f"sha256:{stage}"
        rows = recipe(record, index, backend, stage)
        content = Reference(
            digest=digest, model=model, parts=parts, recipe=rows, record=record, report=StageReport(stage=stage), made_at=0
        ).model_dump()
        store.write_ref(family_of(backend), stage, backend, model, content=content)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path)


def states(store: Store, index: CodeIndex = INDEX) -> dict[str, PartitionState]:
    return {state.model: state for state in survey(store, index)}


def told(state: PartitionState) -> list[tuple[str, str, tuple[str, ...]]]:
    return [(stage.stage, stage.state, stage.causes) for stage in state.stages if stage.state != "fresh"]


def test_what_was_just_exported_is_fresh(store: Store) -> None:
    for backend in ("dynamo", "onnx", "executorch.xnnpack"):
        fill(store, backend=backend)
    found = list(survey(store, INDEX))
    assert [state.backend for state in found] == ["dynamo", "executorch.xnnpack", "onnx"]
    assert all(state.fresh and state.first_stale is None for state in found)


def test_a_changed_ir_fix_makes_the_last_stage_stale_where_the_graph_has_its_operator(store: Store) -> None:
    fill(store)
    fill(store, "ViTForImageClassification", operators=("Conv",))
    changed = CodeIndex((replace(IR_FIX, fingerprint="2"),), CORE)
    found = states(store, changed)
    assert told(found[MODEL]) == [("ir_fixed_model", "stale", ("workaround onnx:_fix_ir_x: changed",))]
    assert found["ViTForImageClassification"].fresh


def test_an_upgraded_package_makes_every_stage_that_runs_it_stale(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(store)
    versions: Callable[..., dict[str, str]] = source.versions
    monkeypatch.setattr(keys, "versions", lambda names: {**versions(names), **({"onnxscript": "9"} if "onnxscript" in names else {})})
    (state,) = survey(store, INDEX)
    assert [stage.state for stage in state.stages] == ["stale"] * 4
    assert state.stages[0].causes == (f"packages: onnxscript {source.versions(('onnxscript',))['onnxscript']} -> 9",)


def test_code_that_builds_samples_makes_the_trace_stale_and_leaves_the_rest_behind_it(store: Store) -> None:
    fill(store)
    found = states(store, CodeIndex((IR_FIX,), {**CORE, "sample": "another"}))
    assert told(found[MODEL]) == [
        ("traced_program", "stale", ("the sample: code",)),
        *((stage, "behind", ()) for stage in STAGES["onnx"][1:]),
    ]


def test_a_stage_that_was_never_made_is_missing_and_what_follows_is_behind(store: Store) -> None:
    fill(store)
    store.remove_ref("onnx", "decomposed_graph", "onnx", MODEL)
    assert [(name, state) for name, state, _ in told(states(store)[MODEL])] == [
        ("decomposed_graph", "missing"),
        ("lowered_onnx", "behind"),
        ("ir_fixed_model", "behind"),
    ]


def test_a_model_that_is_gone_says_so(store: Store, tmp_path: Path) -> None:
    fill(store)
    for stage in STAGES["onnx"]:
        content = store.read_ref("onnx", stage, "onnx", MODEL)
        assert content is not None
        store.write_ref("onnx", stage, "onnx", MODEL, content={**content, "model": str(tmp_path / "gone")})
    (state,) = survey(store, INDEX)
    assert state.first_stale is not None
    assert "gone" in state.first_stale.causes[0]


def test_references_of_another_version_are_missing_and_break_nothing(store: Store) -> None:
    fill(store)
    store.write_ref("onnx", "lowered_onnx", "onnx", MODEL, content={"key": "of an older zooport"})
    (store.root / "refs" / "onnx" / "traced_program" / "onnx" / "Garbage.json").write_text("{")
    (state,) = survey(store, INDEX)
    assert [stage.state for stage in state.stages] == ["fresh", "fresh", "missing", "behind"]


def test_a_recipe_changes_with_what_matters_and_not_with_the_input(store: Store) -> None:
    fill(store)
    before = states(store)[MODEL].stages
    after = states(store, CodeIndex((replace(IR_FIX, fingerprint="2"),), CORE))[MODEL].stages
    assert [old.recipe == new.recipe for old, new in zip(before, after, strict=True)] == [True, True, True, False]


def test_two_thousand_partitions_are_judged_in_seconds_and_without_torch(tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    names = [name for name in catalogue.names() if "@" not in name][:500]
    for name in names:
        fill(store, name)
    program = (
        "import sys, time\nfrom exporters.code_index import CodeIndex\nfrom exporters.staleness import survey\n"
        "from exporters.store import Store\n"
        f"started = time.process_time()\nfound = list(survey(Store({str(tmp_path / 'store')!r}), CodeIndex((), {CORE!r})))\n"
        "assert 'torch' not in sys.modules\nprint(len(found), time.process_time() - started)"
    )
    started = time.perf_counter()
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    number, seconds = done.stdout.split()
    assert int(number) == len(names)
    # CPU of a quarter of the zoo; the wall clock of a loaded machine says nothing
    assert float(seconds) < 5, time.perf_counter() - started
