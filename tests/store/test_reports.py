"""The last reports lie in the store: every machine that shares it sees them, whatever a model is called. On a local folder and on S3."""

import math

import pytest
from store_place import Place
from store_stage import run

from exporters.errors import StoreError
from exporters.report import ErrorReport, Parity, Report, StageReport
from exporters.reports import last_reports, remember
from exporters.store import Store

NAMES = [
    "BertModel",
    "LlamaForCausalLM@decode",
    "models/tickets",
    "./models/tickets/",
    "organization/name",
    "a name|with: 100 % of *it*",
    "ä" * 300,
    "..",
    "",
]


def report(model: str, backend: str = "onnx", **fields: object) -> Report:
    return Report(model=model, backend=backend, **fields)


def test_another_machine_reads_what_one_remembers(place: Place) -> None:
    failed = report(
        "BertModel",
        outcome="ran",
        stages=[StageReport(stage="traced_program", operators={"aten.mm.default": 2}, details={"made": {"at": 1.5}})],
        parity=[Parity(inputs="sample", ok=False, max_abs_diff=0.5)],
        error=ErrorReport(stage="verification", type="Mismatch", message="differs", active_workarounds=["onnx:_patch_where"]),
        at=1e9,
        run="r1",
    )
    remember(place.store(), failed)
    assert last_reports(place.elsewhere()) == {("onnx", "BertModel"): failed}
    verified = report("BertModel", outcome="verified", at=2e9)
    remember(place.elsewhere(), verified)
    assert last_reports(place.store()) == {("onnx", "BertModel"): verified}


def test_any_name_of_a_model_has_a_report_of_its_own(place: Place) -> None:
    for name in NAMES:
        remember(place.store(), report(name, reason=name))
        remember(place.store(), report(name, "dynamo"))
    found = last_reports(place.store())
    assert found.keys() == {(backend, name) for name in NAMES for backend in ("onnx", "dynamo")}
    assert all(found["onnx", name].reason == name for name in NAMES)


def test_numbers_that_json_does_not_know_come_back(place: Place) -> None:
    remember(place.store(), report("BertModel", parity=[Parity(inputs="sample", ok=False, max_abs_diff=math.inf)]))
    (found,) = last_reports(place.store()).values()
    assert found.parity[0].max_abs_diff == math.inf


def test_one_that_is_damaged_counts_as_none(place: Place) -> None:
    remember(place.store(), report("BertModel"))
    remember(place.store(), report("ViTModel"))
    place.ref("reports", "onnx", "BertModel").write_text('{"half a rep')
    assert last_reports(place.store()).keys() == {("onnx", "ViTModel")}
    place.store().write_ref("reports", "onnx", "BertModel", content={"of": "another version"})
    assert last_reports(place.store()).keys() == {("onnx", "ViTModel")}


def test_upkeep_leaves_reports_alone(place: Place) -> None:
    digest = run(place.store(), "text").digest
    remember(place.store(), report("BertModel"))
    assert place.damage() == []
    from test_store_upkeep import gc

    assert gc(place).artifacts == []
    assert place.store().has(digest)
    assert last_reports(place.store()).keys() == {("onnx", "BertModel")}


def test_only_the_part_that_is_asked_for_is_read(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    run(place.store(), "text")
    remember(place.store(), report("BertModel"))
    store = place.store()
    read: list[str] = []
    cat = store.root.fs.cat
    monkeypatch.setattr(store.root.fs, "cat", lambda paths, **options: read.extend(paths) or cat(paths, **options))
    assert len(last_reports(store)) == 1
    assert [path.partition("/refs/")[2] for path in read] == ["reports/onnx/BertModel.json"]


def test_nothing_remembered_is_no_report(place: Place) -> None:
    assert last_reports(place.store()) == {}


def test_a_store_that_cannot_be_written_says_so(tmp_path_factory: pytest.TempPathFactory) -> None:
    file = tmp_path_factory.mktemp("full") / "file"
    file.write_text("in the way")
    with pytest.raises(StoreError):
        remember(Store(file / "store"), report("BertModel"))
