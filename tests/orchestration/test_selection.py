"""Which partitions a fleet is made of."""

import pytest

from exporters.errors import UnknownBackend, UnknownModel, UsageError
from exporters.report import Outcome, Report
from exporters.staleness import PartitionState, StageState
from exporters.zoo import catalogue
from orchestration import selection
from orchestration.selection import Scope


def report(outcome: Outcome) -> Report:
    return Report(model="A", backend="onnx", outcome=outcome)


def test_everything_is_every_model_for_every_backend_that_was_named() -> None:
    partitions = Scope(backends=["dynamo", "onnx"]).partitions()
    assert len(partitions) == 2 * len(catalogue.names())
    assert partitions[0][0] == "dynamo"
    assert partitions[-1][0] == "onnx"


def test_named_models_come_in_the_order_they_were_named_and_once() -> None:
    names = ["ViTModel", "BertModel", "ViTModel"]
    assert Scope(names).partitions() == [("onnx", "ViTModel"), ("onnx", "BertModel")]


def test_a_family_is_its_models() -> None:
    models = {model for _, model in Scope(families=["time-series"]).partitions()}
    assert models == {name for name in catalogue.names() if catalogue.entry(name).family == "time-series"}


def test_what_there_is_not_is_said() -> None:
    with pytest.raises(UnknownModel):
        Scope(["BertModle"]).partitions()
    with pytest.raises(UnknownBackend):
        Scope(["BertModel"], ["onxx"]).partitions()
    with pytest.raises(UsageError, match="no family"):
        Scope(families=["texts"]).partitions()


def test_a_sample_is_spread_evenly_and_the_same_every_time() -> None:
    partitions = Scope(backends=["dynamo", "onnx"]).partitions()
    chosen = selection.sampled(partitions, 50)
    assert chosen == selection.sampled(partitions, 50)
    assert len(chosen) == 100
    assert len({model for _, model in chosen}) == 50
    assert len({model[0] for _, model in chosen}) > 10  # from the whole alphabet
    assert selection.sampled(partitions[:3], 50) == partitions[:3]


def test_failed_is_what_did_not_end_well_and_what_was_never_made() -> None:
    partitions = [("onnx", name) for name in "ABCDE"]
    outcomes: dict[str, Outcome] = {"A": "verified", "B": "failed", "C": "matched", "D": "skipped"}
    reports = {("onnx", name): report(outcome) for name, outcome in outcomes.items()}
    assert selection.failed(partitions, reports, {("onnx", "E")}) == [("onnx", "B"), ("onnx", "C"), ("onnx", "E")]
    assert selection.failed(partitions[:1], reports, set()) == []


def test_stale_is_what_has_a_stage_that_would_come_out_differently() -> None:
    fresh, changed, behind = (StageState("traced_program", state) for state in ("fresh", "stale", "missing"))
    states = [PartitionState(name, name, "onnx", (stage,)) for name, stage in (("A", fresh), ("B", changed), ("C", behind), ("D", changed))]
    assert selection.stale([("onnx", "A"), ("onnx", "B"), ("onnx", "C")], states, {}, {}) == [("onnx", "B")]


def test_what_failed_is_stale_once_its_environment_has_changed() -> None:
    reports = {("onnx", name): report(outcome) for name, outcome in (("A", "failed"), ("B", "failed"), ("C", "verified"))}
    for name, environment in (("A", "now"), ("B", "before"), ("C", "before")):
        reports["onnx", name].environment = environment
    partitions = list(reports)
    assert selection.stale(partitions, [], reports, {"onnx": "now"}) == [("onnx", "B")]
