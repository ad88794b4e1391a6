"""Recipes: a changed one makes exactly its partition stale, and Dagster says because of what."""

from collections.abc import Callable, Iterator

import dagster as dg
import pytest
from dagster._core.definitions.data_version import CachingStaleStatusResolver, StaleStatus
from dagster._core.loader import LoadingContextForTest
from fake_recipes import FakeRecipes

from assets.partitions import partition_key
from assets.recipes import observed, recipe_key
from exporters.backends import STAGES

Statuses = Callable[[], dict[tuple[str, str], str]]
Materialize = Callable[..., dg.ExecuteInProcessResult]


@pytest.fixture(autouse=True)
def recipes() -> Iterator[dict[tuple[str, str], str]]:
    FakeRecipes.changed.clear()
    yield FakeRecipes.changed
    FakeRecipes.changed.clear()


@pytest.fixture
def observe(fake_definitions: dg.Definitions, instance: dg.DagsterInstance) -> Callable[[str], dg.ExecuteInProcessResult]:
    """Observe the recipe of one stage for every partition, as a schedule or the UI does."""

    def run(stage: str) -> dg.ExecuteInProcessResult:
        job = fake_definitions.resolve_implicit_global_asset_job_def()
        return job.execute_in_process(instance=instance, asset_selection=[recipe_key("onnx", stage)])

    return run


@pytest.fixture
def resolver(fake_definitions: dg.Definitions, instance: dg.DagsterInstance) -> Callable[[], CachingStaleStatusResolver]:
    graph = fake_definitions.resolve_asset_graph()
    return lambda: CachingStaleStatusResolver(instance, graph, LoadingContextForTest(instance))


@pytest.fixture
def statuses(resolver: Callable[[], CachingStaleStatusResolver]) -> Statuses:
    def read() -> dict[tuple[str, str], str]:
        known = resolver()
        return {
            (stage, model): known.get_status(dg.AssetKey(["onnx", stage]), partition_key("onnx", model)).value
            for stage in STAGES["onnx"]
            for model in ("A", "B")
        }

    return read


def stale(statuses: dict[tuple[str, str], str]) -> set[tuple[str, str]]:
    return {key for key, status in statuses.items() if status != StaleStatus.FRESH.value}


def test_what_was_made_is_fresh_and_stays_so_when_its_recipe_is_observed_unchanged(
    materialize: Materialize, observe: Callable[[str], dg.ExecuteInProcessResult], statuses: Statuses, instance: dg.DagsterInstance
) -> None:
    materialize("A", "B")
    assert stale(statuses()) == set()
    for stage in STAGES["onnx"]:
        result = observe(stage)
        assert not [event for event in result.all_events if event.is_asset_observation]
    assert stale(statuses()) == set()
    assert set(observed(instance, recipe_key("onnx", "lowered_onnx"))) == {"onnx|A", "onnx|B"}


def test_a_changed_recipe_makes_its_partition_stale_and_is_named_as_the_cause(
    materialize: Materialize,
    observe: Callable[[str], dg.ExecuteInProcessResult],
    statuses: Statuses,
    resolver: Callable[[], CachingStaleStatusResolver],
    recipes: dict[tuple[str, str], str],
) -> None:
    materialize("A", "B")
    recipes["lowered_onnx", "A"] = "another"
    result = observe("lowered_onnx")
    assert [event.partition for event in result.all_events if event.is_asset_observation] == ["onnx|A"]
    # those after it wait to see whether it comes out as another
    assert stale(statuses()) == {("lowered_onnx", "A")}
    causes = resolver().get_stale_causes(dg.AssetKey(["onnx", "lowered_onnx"]), partition_key("onnx", "A"))
    assert [cause.dependency.asset_key for cause in causes if cause.dependency] == [recipe_key("onnx", "lowered_onnx")]


def test_making_it_again_with_the_new_recipe_makes_it_fresh(
    materialize: Materialize,
    observe: Callable[[str], dg.ExecuteInProcessResult],
    statuses: Statuses,
    recipes: dict[tuple[str, str], str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    materialize("A", "B")
    for stage in STAGES["onnx"]:
        recipes[stage, "A"] = f"recipe of {stage} new"
        observe(stage)
    assert stale(statuses()) == {(stage, "A") for stage in STAGES["onnx"]}
    monkeypatch.setenv("FAKE_RECIPE", "new")
    materialize("A")
    assert stale(statuses()) == set()


def test_a_partition_that_there_is_no_longer_is_not_reported(
    observe: Callable[[str], dg.ExecuteInProcessResult], instance: dg.DagsterInstance
) -> None:
    """The store may know a checkpoint that its owner has taken out of `zoo.toml`."""
    observe("traced_program")
    assert set(observed(instance, recipe_key("onnx", "traced_program"))) == {"onnx|A", "onnx|B"}
