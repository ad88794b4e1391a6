"""Chains over a few models of the fake chain, on an instance of their own."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import dagster as dg
import pytest
from fake_recipes import FakeRecipes

from assets.chains import build_chain
from assets.partitions import partition_key, partitions_of
from assets.recipes import build_recipes
from orchestration.resources import PoolRunner


@pytest.fixture(scope="session")
def fake_definitions() -> dg.Definitions:
    """The ONNX chain over models that the fake child knows."""
    runner = PoolRunner(chain="fake_chain:serve", timeout_seconds=30, workers=1)
    models = ["A", "B", "Raises", "Segfaults", "Differs", "DiesVerifying", "Skipped", "Z"]
    recipes = build_recipes("onnx", partitions_of("onnx", models))
    return dg.Definitions(assets=[build_chain("onnx", models), *recipes], resources={"runner": runner, "recipes": FakeRecipes()})


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    with dg.DagsterInstance.ephemeral() as made:
        yield made


@pytest.fixture
def materialize(
    fake_definitions: dg.Definitions, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Callable[..., dg.ExecuteInProcessResult]:
    """Run the chain for one model, or for a range of them given as (first, last)."""
    monkeypatch.setenv("ZOOPORT_HOME", str(tmp_path / "home"))
    job = fake_definitions.resolve_implicit_global_asset_job_def()

    def run(first: str, last: str | None = None, stages: Sequence[str] | None = None) -> dg.ExecuteInProcessResult:
        selection = [dg.AssetKey(["onnx", stage]) for stage in stages] if stages else None
        if last is None:
            return job.execute_in_process(
                instance=instance, asset_selection=selection, raise_on_error=False, partition_key=partition_key("onnx", first)
            )
        tags = {
            "dagster/asset_partition_range_start": partition_key("onnx", first),
            "dagster/asset_partition_range_end": partition_key("onnx", last),
        }
        return job.execute_in_process(instance=instance, asset_selection=selection, raise_on_error=False, tags=tags)

    return run
