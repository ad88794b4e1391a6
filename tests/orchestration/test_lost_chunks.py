"""What is left of a lost run, by its events, and how it is requested. That a real one is noticed, tests/deploy shows."""

from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, field

import dagster as dg
import pytest

from assets.chains import build_chain
from assets.partitions import partition_key, run_tags, tagged_partitions
from exporters.report import ErrorReport, Report, StageReport, Started
from orchestration.lost_chunks import ATTEMPT_TAG, ATTEMPTS, REMAINDER_TAG, chunk_of, lost_chunks, request

MODELS = ["A", "B", "C", "D"]
KEYS = [f"dynamo|{model}" for model in MODELS]
STAGES = ("traced_program", "decomposed_graph")


@dataclass
class Dies:
    """A runner whose process dies as it begins `before`; partitions in `failing` fail in their second stage."""

    before: str = ""
    failing: Sequence[str] = ()
    skipping: Sequence[str] = ()
    seen: list[str] = field(default_factory=list)

    def run(
        self, partitions: Sequence[tuple[str, str]], *, until: str | None = None, run_id: str = ""
    ) -> Generator[tuple[tuple[str, str], Started | StageReport | Report], None, None]:
        for backend, model in partitions:
            self.seen.append(model)
            if model in self.skipping:
                yield (backend, model), Report(model=model, backend=backend, outcome="skipped", reason="no")
                continue
            for stage in STAGES[: STAGES.index(until) + 1] if until else STAGES:
                yield (backend, model), Started(stage=stage)
                if model == self.before:
                    raise RuntimeError("the worker is gone")
                if model in self.failing and stage == STAGES[1]:
                    error = ErrorReport(stage=stage, type="ValueError", message="no")
                    yield (backend, model), Report(model=model, backend=backend, outcome="failed", error=error)
                    break
                yield (backend, model), StageReport(stage=stage, digest=f"sha256:{model}{stage}")
            else:
                yield (backend, model), Report(model=model, backend=backend, outcome="exported" if until else "verified")


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    with dg.DagsterInstance.ephemeral() as ephemeral:
        yield ephemeral


chain = build_chain("dynamo", MODELS)


def run(instance: dg.DagsterInstance, runner: Dies, *, selection: Sequence[str] = (), tags: dict[str, str] | None = None) -> dg.DagsterRun:
    wanted = dg.AssetSelection.assets(*(["dynamo", stage] for stage in selection)) if selection else dg.AssetSelection.assets(chain)
    job = dg.define_asset_job("export_dynamo", wanted.without_checks() if selection else wanted)
    definitions = dg.Definitions(assets=[chain], jobs=[job], resources={"runner": runner}, executor=dg.in_process_executor)
    tags = tags or run_tags([("dynamo", model) for model in MODELS])
    result = definitions.resolve_job_def("export_dynamo").execute_in_process(instance=instance, tags=tags, raise_on_error=False)
    found = instance.get_run_by_id(result.run_id)
    assert found is not None
    return found


def left(instance: dg.DagsterInstance, lost: dg.DagsterRun) -> list[str]:
    chunk = chunk_of(instance, lost, chain)
    assert chunk is not None
    return chunk.remaining


def test_what_had_ended_is_not_left_whether_it_ended_well_or_not(instance: dg.DagsterInstance) -> None:
    assert left(instance, run(instance, Dies(before="C", failing=["A"]))) == KEYS[2:]


def test_nothing_is_left_of_a_run_that_tried_all(instance: dg.DagsterInstance) -> None:
    assert left(instance, run(instance, Dies(failing=["D"]))) == []


def test_one_that_is_skipped_is_not_left_once_all_had_their_turn(instance: dg.DagsterInstance) -> None:
    assert left(instance, run(instance, Dies(failing=["A"], skipping=["B"]))) == []


def test_all_is_left_of_a_run_that_never_began(instance: dg.DagsterInstance) -> None:
    assert left(instance, run(instance, Dies(before="A"))) == KEYS


def test_what_is_left_of_a_range(instance: dg.DagsterInstance) -> None:
    tags = {"dagster/asset_partition_range_start": KEYS[0], "dagster/asset_partition_range_end": KEYS[2]}
    assert left(instance, run(instance, Dies(before="B"), tags=tags)) == KEYS[1:3]


def test_where_no_check_is_selected_the_last_selected_asset_tells(instance: dg.DagsterInstance) -> None:
    lost = run(instance, Dies(before="C"), selection=["traced_program"])
    chunk = chunk_of(instance, lost, chain)
    assert chunk is not None
    assert (chunk.checked, chunk.remaining) == (False, KEYS[2:])
    assert [asset.path[-1] for asset in chunk.assets] == ["traced_program"]


def test_a_chain_that_was_not_asked_for_has_no_chunk(instance: dg.DagsterInstance) -> None:
    assert chunk_of(instance, run(instance, Dies(before="C")), build_chain("onnx", MODELS)) is None


def test_the_rest_is_requested_once_and_not_for_ever(instance: dg.DagsterInstance) -> None:
    tags = {**run_tags([("dynamo", model) for model in MODELS]), "zooport/fleet": "nightly", "dagster/backfill": "b", "other": "x"}
    for attempt in range(2, ATTEMPTS + 1):
        lost = run(instance, Dies(before="B"), tags=tags)
        chunk = chunk_of(instance, lost, chain)
        assert chunk is not None
        asked = request(lost, chunk, chain, "export_dynamo")
        assert isinstance(asked, dg.RunRequest)
        assert asked.run_key == lost.run_id
        assert tagged_partitions(asked.tags) == chunk.remaining
        assert {name: asked.tags[name] for name in ("zooport/fleet", ATTEMPT_TAG, REMAINDER_TAG)} == {
            "zooport/fleet": "nightly",
            ATTEMPT_TAG: str(attempt),
            REMAINDER_TAG: lost.run_id,
        }
        assert not {"other", "dagster/backfill"} & set(asked.tags)
        tags = dict(asked.tags)
    lost = run(instance, Dies(before="B"), tags=tags)
    chunk = chunk_of(instance, lost, chain)
    assert chunk is not None
    refused = request(lost, chunk, chain, "export_dynamo")
    assert isinstance(refused, dg.SkipReason)
    assert KEYS[1] in (refused.skip_message or "")


def test_the_remainder_runs_what_was_left_and_nothing_else(instance: dg.DagsterInstance) -> None:
    lost = run(instance, Dies(before="C"))
    chunk = chunk_of(instance, lost, chain)
    assert chunk is not None
    asked = request(lost, chunk, chain, "export_dynamo")
    assert isinstance(asked, dg.RunRequest)
    again = Dies()
    run(instance, again, tags=dict(asked.tags))
    assert again.seen == ["C", "D"]
    assert instance.get_materialized_partitions(dg.AssetKey(["dynamo", "decomposed_graph"])) == {
        str(partition_key("dynamo", model)) for model in MODELS
    }


def test_the_sensor_leaves_alone_a_run_whose_partitions_failed(instance: dg.DagsterInstance) -> None:
    """Those have their outcome. That it requests what is left of a run without a worker, tests/deploy shows."""
    job = dg.define_asset_job("export_dynamo", dg.AssetSelection.assets(chain))
    definitions = dg.Definitions(assets=[chain], jobs=[job], resources={"runner": Dies(failing=["B"])}, executor=dg.in_process_executor)
    resolved = definitions.resolve_job_def("export_dynamo")
    result = resolved.execute_in_process(instance=instance, tags=run_tags([("dynamo", "B")]), raise_on_error=False)
    context = dg.build_run_status_sensor_context(
        "lost_chunks",
        dagster_event=result.get_run_failure_event(),
        dagster_instance=instance,
        dagster_run=instance.get_run_by_id(result.run_id),
    ).for_run_failure()
    (skipped,) = list(lost_chunks([chain], [job])(context))
    assert isinstance(skipped, dg.SkipReason)
