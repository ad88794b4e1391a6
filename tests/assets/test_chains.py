"""The chains as Dagster sees them: keys, partitions, and what a run leaves behind for each (asset, partition)."""

import subprocess
import sys
from collections.abc import Callable

import dagster as dg
import pytest
from dagster._core.definitions.data_version import CachingStaleStatusResolver, StaleStatus
from dagster._core.loader import LoadingContextForTest

from assets.chains import build_chain
from assets.partitions import parse_key, partition_key
from exporters.backends import BACKENDS, STAGES
from exporters.zoo import catalogue

Materialize = Callable[..., dg.ExecuteInProcessResult]
StatusOf = Callable[[str, str], StaleStatus]

LAST = dg.AssetKey(["onnx", "ir_fixed_model"])


def records(instance: dg.DagsterInstance, stage: str, model: str) -> list[dg.AssetMaterialization]:
    found = instance.fetch_materializations(
        dg.AssetRecordsFilter(asset_key=dg.AssetKey(["onnx", stage]), asset_partitions=[partition_key("onnx", model)]), limit=10
    ).records
    return [record.asset_materialization for record in found if record.asset_materialization]


def check_evaluations(result: dg.ExecuteInProcessResult) -> dict[str | None, dg.AssetCheckEvaluation]:
    return {evaluation.partition: evaluation for evaluation in result.get_asset_check_evaluations()}


@pytest.fixture
def stale_status(fake_definitions: dg.Definitions, instance: dg.DagsterInstance) -> StatusOf:
    graph = fake_definitions.resolve_asset_graph()

    def status(stage: str, model: str) -> StaleStatus:
        resolver = CachingStaleStatusResolver(instance, graph, LoadingContextForTest(instance))
        return resolver.get_status(dg.AssetKey(["onnx", stage]), partition_key("onnx", model))

    return status


def failure_of(result: dg.ExecuteInProcessResult) -> str:
    return next(str(event.step_failure_data.user_failure_data.description) for event in result.all_events if event.is_step_failure)


# ── Shape ─────────────────────────────────────────────────────────────────────


def test_asset_keys() -> None:
    chains = [build_chain(family, catalogue.names()) for family in STAGES]
    keys = sorted(key.to_user_string() for chain in chains for key in chain.keys)
    assert keys == [
        "dynamo/decomposed_graph",
        "dynamo/traced_program",
        "executorch/decomposed_graph",
        "executorch/pte",
        "executorch/traced_program",
        "onnx/decomposed_graph",
        "onnx/ir_fixed_model",
        "onnx/lowered_onnx",
        "onnx/traced_program",
    ]


def test_check_keys() -> None:
    checks = sorted(str(key.to_user_string()) for family in STAGES for key in build_chain(family, ["A"]).check_keys)
    assert checks == ["dynamo/decomposed_graph:parity", "executorch/pte:parity", "onnx/ir_fixed_model:parity"]


@pytest.mark.parametrize("family", STAGES)
def test_partitions_are_backends_times_models(family: str) -> None:
    partitions = build_chain(family, catalogue.names()).partitions_def
    assert partitions is not None
    expected = {f"{backend}|{model}" for backend in BACKENDS[family] for model in catalogue.names()}
    assert set(partitions.get_partition_keys()) == expected


def test_a_key_is_read_back() -> None:
    key = parse_key(str(partition_key("executorch.xnnpack", "LlamaForCausalLM@decode")))
    assert key.keys_by_dimension == {"backend": "executorch.xnnpack", "model": "LlamaForCausalLM@decode"}


def test_each_stage_depends_on_the_one_before_it_and_on_its_recipe() -> None:
    chain = build_chain("onnx", ["A"])
    assert chain.asset_deps[LAST] == {dg.AssetKey(["onnx", "lowered_onnx"]), dg.AssetKey(["onnx", "ir_fixed_model_recipe"])}
    assert chain.asset_deps[dg.AssetKey(["onnx", "traced_program"])] == {dg.AssetKey(["onnx", "traced_program_recipe"])}


def test_assets_import_neither_torch_nor_orchestration() -> None:
    code = "import sys, assets.chains; sys.exit(bool({'torch', 'transformers', 'orchestration'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], timeout=60).returncode == 0


# ── One partition ─────────────────────────────────────────────────────────────


def test_one_partition(materialize: Materialize, stale_status: StatusOf) -> None:
    result = materialize("A")
    assert result.success
    events = result.get_asset_materialization_events()
    assert [event.asset_key.path[-1] for event in events] == list(STAGES["onnx"])
    assert {event.partition for event in events} == {"onnx|A"}
    for stage in STAGES["onnx"]:
        assert stale_status(stage, "A") == StaleStatus.FRESH


def test_metadata_tell_cost_content_and_workarounds(materialize: Materialize, instance: dg.DagsterInstance) -> None:
    materialize("A")
    (traced,) = records(instance, "traced_program", "A")
    figures = {"seconds": 0.5, "cpu_seconds": 0.4, "peak_rss_mb": 100.0, "bytes": 1234, "nodes": 3}
    assert {name: traced.metadata[name].value for name in figures} == figures
    assert "`aten.mm.default` | 2" in str(traced.metadata["operators"].value)
    assert traced.metadata["workarounds"].value == "- `dynamo:_patch_fake`"
    assert "outcome" not in traced.metadata


def test_the_last_asset_tells_outcome_and_parity(materialize: Materialize, instance: dg.DagsterInstance) -> None:
    materialize("A")
    (last,) = records(instance, "ir_fixed_model", "A")
    assert last.metadata["outcome"].value == "verified"
    assert "| sample | yes | 3.0e-07 |" in str(last.metadata["parity"].value)


def test_tags_carry_the_digest_and_the_lineage(materialize: Materialize, instance: dg.DagsterInstance) -> None:
    materialize("A")
    (traced,), (decomposed,) = records(instance, "traced_program", "A"), records(instance, "decomposed_graph", "A")
    assert traced.tags is not None
    assert decomposed.tags is not None
    assert traced.tags["dagster/data_version"] == traced.metadata["digest"].value
    assert decomposed.tags["dagster/input_data_version/onnx/traced_program"] == traced.metadata["digest"].value
    assert decomposed.tags["dagster/input_event_pointer/onnx/traced_program"].isdigit()
    assert decomposed.tags["dagster/partition/model"] == "A"


def test_other_bytes_upstream_make_downstream_stale(
    materialize: Materialize, stale_status: StatusOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    materialize("A")
    materialize("A", stages=["traced_program"])
    assert stale_status("decomposed_graph", "A") == StaleStatus.FRESH
    monkeypatch.setenv("FAKE_SALT", "other bytes")
    materialize("A", stages=["traced_program"])
    assert stale_status("decomposed_graph", "A") == StaleStatus.STALE


def test_parity_is_checked_on_the_materialization_of_this_run(materialize: Materialize, instance: dg.DagsterInstance) -> None:
    result = materialize("A")
    (evaluation,) = check_evaluations(result).values()
    assert evaluation.passed
    assert evaluation.partition == "onnx|A"
    assert evaluation.asset_key == LAST
    assert evaluation.target_materialization_data is not None
    assert evaluation.target_materialization_data.run_id == result.run_id


def test_a_subset_ends_at_its_last_stage(materialize: Materialize, instance: dg.DagsterInstance) -> None:
    result = materialize("A", stages=["decomposed_graph"])
    assert result.success
    assert [event.asset_key.path[-1] for event in result.get_asset_materialization_events()] == ["decomposed_graph"]
    assert not result.get_asset_check_evaluations()


# ── Failures ──────────────────────────────────────────────────────────────────


def test_unequal_numbers_fail_the_check_and_the_run(materialize: Materialize, instance: dg.DagsterInstance) -> None:
    result = materialize("Differs")
    assert not result.success
    (evaluation,) = check_evaluations(result).values()
    assert not evaluation.passed
    assert evaluation.severity == dg.AssetCheckSeverity.ERROR
    (last,) = records(instance, "ir_fixed_model", "Differs")  # the artifact exists, and says what it is worth
    assert last.metadata["outcome"].value == "ran"


def test_a_failed_stage_is_named_by_check_and_run(materialize: Materialize, instance: dg.DagsterInstance) -> None:
    result = materialize("Raises")
    assert not result.success
    assert [event.asset_key.path[-1] for event in result.get_asset_materialization_events()] == ["traced_program"]
    evaluation = check_evaluations(result)["onnx|Raises"]
    assert evaluation.description == "failed: decomposed_graph: no such operator"
    assert evaluation.target_materialization_data is None
    assert "decomposed_graph: no such operator" in failure_of(result)
    assert "next: write one" in failure_of(result)


def test_a_segfault_is_the_partition_s_outcome(materialize: Materialize) -> None:
    result = materialize("Segfaults")
    assert not result.success
    assert "SIGSEGV" in failure_of(result)


def test_death_in_verification_leaves_the_artifact_and_fails_the_check(materialize: Materialize, instance: dg.DagsterInstance) -> None:
    result = materialize("DiesVerifying")
    assert not result.success
    (last,) = records(instance, "ir_fixed_model", "DiesVerifying")
    assert last.metadata["outcome"].value == "exported"
    assert not check_evaluations(result)["onnx|DiesVerifying"].passed


def test_in_a_range_failures_leave_their_neighbours_fresh(
    materialize: Materialize, instance: dg.DagsterInstance, stale_status: StatusOf
) -> None:
    result = materialize("A", "Z")
    assert not result.success
    passed = {partition: evaluation.passed for partition, evaluation in check_evaluations(result).items()}
    assert passed == {
        f"onnx|{model}": model in ("A", "B", "Z") for model in ("A", "B", "Raises", "Segfaults", "Differs", "DiesVerifying", "Z")
    }
    for model in ("A", "B", "Z"):
        assert stale_status("ir_fixed_model", model) == StaleStatus.FRESH
        assert len(records(instance, "ir_fixed_model", model)) == 1
    for model in ("Raises", "Segfaults"):
        assert stale_status("ir_fixed_model", model) == StaleStatus.MISSING
        assert len(records(instance, "traced_program", model)) == 1
    for model in ("Raises", "Segfaults", "Differs", "DiesVerifying"):
        assert f"onnx|{model}" in failure_of(result)
    assert "onnx|B" not in failure_of(result)


def test_a_skipped_partition_fails_no_run_and_leaves_nothing_behind(materialize: Materialize, instance: dg.DagsterInstance) -> None:
    result = materialize("Skipped")
    assert result.success
    assert all(records(instance, stage, "Skipped") == [] for stage in STAGES["onnx"])
    assert check_evaluations(result) == {}
