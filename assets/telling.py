"""What becomes of the partitions of one run, told to Dagster as it happens: each thing as the events that it is for Dagster."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import dagster as dg

from assets.checks import parity_evaluation
from assets.events import latest, materialization, observation, plan
from assets.lineage import Lineage
from assets.metadata import outcome_metadata, stage_metadata
from assets.recipes import recipe_key
from exporters.report import Parity, Report, StageReport, Started

AssetEvent: TypeAlias = dg.AssetMaterialization | dg.AssetObservation | dg.AssetCheckEvaluation


@dataclass
class _Partition:
    """What has been told of one partition so far."""

    planned: bool
    final: StageReport | None = None  # of the last asset, told once the outcome is known, which is part of its metadata


class Telling:
    """Turns what a runner says of the partitions of a run into Dagster's events.

    Args:
        specs: the chain's assets, in order.
        keys: the run's partitions.
        planned: whether Dagster knows them as those of this run.

    Attributes:
        until: the last stage that is selected; None where the last of all or its check is.
        failed: the report of each partition that didn't get as far as was asked.
    """

    def __init__(
        self, context: dg.AssetExecutionContext, family: str, specs: Sequence[dg.AssetSpec], keys: Sequence[str], *, planned: bool
    ) -> None:
        self._context, self._family, self._last = context, family, specs[-1]
        self._spec_of = {spec.key.path[-1]: spec for spec in specs if spec.key in context.selected_asset_keys}
        self._checked = bool(context.selected_asset_check_keys)
        self._partitions = {key: _Partition(planned) for key in keys}
        recipes = [recipe_key(family, spec.key.path[-1]) for spec in specs]
        self._lineage = Lineage(context.instance, [spec.key for spec in specs[:-1]], recipes, keys)
        selected = [spec.key.path[-1] for spec in specs if spec.key in context.selected_asset_keys]
        self.until = None if self._checked or self._last.key in context.selected_asset_keys else selected[-1]
        self.failed: dict[str, Report] = {}

    def tell(self, key: dg.MultiPartitionKey, event: Started | StageReport | Parity | Report) -> Iterator[AssetEvent]:
        """The events that one thing is. Dagster has stored one by the time that the next is asked for."""
        match event:
            case Started():
                self._plan(key)
            case StageReport():
                yield from self._stage(key, event)
            case Report():
                yield from self._end(key, event)
            case Parity():
                pass  # part of the report

    def _plan(self, key: str) -> None:
        partition = self._partitions[key]
        if not partition.planned:
            partition.planned = True
            for spec in self._spec_of.values():
                plan(self._context, spec.key, key)

    def _stage(self, key: dg.MultiPartitionKey, stage: StageReport) -> Iterator[AssetEvent]:
        recipe = recipe_key(self._family, stage.stage)
        observed = self._lineage.latest(recipe, key)
        if stage.recipe and (observed is None or observed.version != stage.recipe):
            yield observation(recipe, key, stage.recipe)
            self._lineage.recorded(recipe, key, stage.recipe)
        if stage.stage == self._last.key.path[-1]:
            self._partitions[key].final = stage
        elif (spec := self._spec_of.get(stage.stage)) is not None:
            yield materialization(spec, key, digest=stage.digest, metadata=stage_metadata(stage), lineage=self._lineage)
            self._lineage.recorded(spec.key, key, stage.digest)

    def _end(self, key: dg.MultiPartitionKey, report: Report) -> Iterator[AssetEvent]:
        final = self._partitions[key].final
        if not self._reached(report):
            self.failed[key] = report
            self._plan(key)
        if final is not None and self._last.key in self._context.selected_asset_keys:
            metadata = outcome_metadata(report) | stage_metadata(final)
            yield materialization(self._last, key, digest=final.digest, metadata=metadata, lineage=self._lineage)
        if report.outcome != "skipped" and self._checked:
            target = latest(self._context.instance, self._last.key, key) if final is not None else None
            yield parity_evaluation(self._last.key, key, report, target)
        self._context.log.info(f"{key}: {_told(report)}")

    def _reached(self, report: Report) -> bool:
        """Whether a partition got as far as was asked: to `verified`, or without an error to the last selected stage.

        One that is skipped was never asked to: it stays without materializations, and no run fails for it.
        """
        if report.outcome == "skipped":
            return True
        return report.outcome == "verified" if self.until is None else report.error is None


def _told(report: Report) -> str:
    """One line for the run's log."""
    made = [stage for stage in report.stages if not stage.cached]
    cost = f"{len(made)} of {len(report.stages)} stages made in {sum(stage.seconds for stage in made):.1f} s"
    return f"{report.outcome}: {report.reason or cost}"
