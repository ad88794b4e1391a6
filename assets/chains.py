"""The chains: one multi-asset a backend family, one asset a stage, one partition a (backend, model).

A chain runs in one piece, in a single run or in runs over ranges of partitions. Each stage becomes a materialization of
its own partition as it ends; a partition that fails fails alone, and the run says so when all have had their turn.
"""

from collections.abc import Generator, Iterator, Sequence
from typing import TypeAlias

import dagster as dg

from assets.checks import failure, parity_evaluation, parity_spec
from assets.events import latest, materialization
from assets.metadata import outcome_metadata, stage_metadata
from assets.partitions import BACKEND, MODEL, parse_key, partitions_of
from assets.recipes import observation, recipe_key
from assets.runner import ChainRunner
from exporters.backends import STAGES
from exporters.report import Parity, Report, StageReport

# Part of what Dagster shows as an asset's code. Changing it makes every partition of every chain stale, so what
# concerns single partitions goes into data versions instead.
CODE_VERSION = "1"

# How many partitions a backfill puts into one run: few enough to spread, many enough to share a run's cost.
PARTITIONS_PER_RUN = 16

_DESCRIPTIONS = {
    "traced_program": "What `torch.export` saw of the model, its weights left out: an `ExportedProgram`.",
    "decomposed_graph": "The traced program in the smaller operator set that the next stage reads, decomposed once.",
    "lowered_onnx": "The decomposed graph translated to ONNX, as the translation left it.",
    "ir_fixed_model": "The ONNX model that ships: optimized, fixed for ONNX Runtime, bound to the stored weights.",
    "pte": "The program that ships: partitioned for its backend, planned in memory, serialized for the ExecuTorch runtime.",
}

_KINDS = {
    "traced_program": {"pytorch"},
    "decomposed_graph": {"pytorch"},
    "lowered_onnx": {"onnx"},
    "ir_fixed_model": {"onnx"},
    "pte": {"executorch"},
}

AssetEvent: TypeAlias = dg.AssetMaterialization | dg.AssetObservation | dg.AssetCheckEvaluation


def build_chain(family: str, models: Sequence[str]) -> dg.AssetsDefinition:
    """The assets `<family>/<stage>` and the parity check on the last of them, partitioned over the family's backends and `models`."""
    partitions = partitions_of(family, models)
    specs = _specs(family)

    @dg.multi_asset(
        name=f"{family}_chain",
        specs=specs,
        check_specs=[parity_spec(specs[-1].key, partitions)],
        partitions_def=partitions,
        can_subset=True,
        backfill_policy=dg.BackfillPolicy.multi_run(max_partitions_per_run=PARTITIONS_PER_RUN),
    )
    def chain(context: dg.AssetExecutionContext, runner: ChainRunner) -> Iterator[AssetEvent]:
        failed: dict[str, Report] = {}
        for key in map(parse_key, context.partition_keys):
            report = yield from _run_partition(context, runner, specs, key)
            if not _reached(context, specs, report):
                failed[key] = report
        if failed:
            raise failure(failed)

    return chain


def _specs(family: str) -> list[dg.AssetSpec]:
    specs: list[dg.AssetSpec] = []
    for stage in STAGES[family]:
        above = [specs[-1].key] if specs else []
        specs.append(
            dg.AssetSpec(
                [family, stage],
                deps=[*above, recipe_key(family, stage)],
                group_name=family,
                kinds=_KINDS[stage],
                description=_DESCRIPTIONS[stage],
                code_version=CODE_VERSION,
                skippable=True,
            )
        )
    return specs


def _run_partition(
    context: dg.AssetExecutionContext, runner: ChainRunner, specs: Sequence[dg.AssetSpec], key: dg.MultiPartitionKey
) -> Generator[AssetEvent, None, Report]:
    """Yield one partition's events as its stages end, and return its report."""
    last = specs[-1]
    spec_of = {spec.key.path[-1]: spec for spec in specs if spec.key in context.selected_asset_keys}
    dimensions = key.keys_by_dimension
    report = Report(model=dimensions[MODEL], backend=dimensions[BACKEND], reason="the runner reported nothing")
    final: StageReport | None = None
    for event in runner.run(dimensions[MODEL], dimensions[BACKEND], until=_until(context, specs), run_id=context.run_id):
        match event:
            case StageReport():
                context.log.info(f"{key}: {event.stage} {'cached' if event.cached else f'{event.seconds:.1f} s'}")
                spec = spec_of.get(event.stage)
                yield from observation(context.instance, recipe_key(last.key.path[0], event.stage), key, event.recipe)
                if event.stage == last.key.path[-1]:
                    final = event  # told once the outcome is known, which is part of its metadata
                elif spec is not None:
                    metadata = stage_metadata(event)
                    yield materialization(spec, key, digest=event.digest, metadata=metadata, instance=context.instance)
            case Report():
                report = event
            case Parity():
                context.log.info(f"{key}: {event.inputs} {'equal' if event.ok else f'not equal: {event.message}'}")
    if final is not None and last.key in context.selected_asset_keys:
        metadata = outcome_metadata(report) | stage_metadata(final)
        yield materialization(last, key, digest=final.digest, metadata=metadata, instance=context.instance)
    if report.outcome == "skipped":
        context.log.info(f"{key}: skipped: {report.reason}")
    elif context.selected_asset_check_keys:
        target = latest(context.instance, last.key, key) if final is not None else None
        yield parity_evaluation(last.key, key, report, target)
    return report


def _until(context: dg.AssetExecutionContext, specs: Sequence[dg.AssetSpec]) -> str | None:
    """The last stage that is selected, or None where the last of all or its check is."""
    if context.selected_asset_check_keys or specs[-1].key in context.selected_asset_keys:
        return None
    return max((spec.key for spec in specs if spec.key in context.selected_asset_keys), key=[s.key for s in specs].index).path[-1]


def _reached(context: dg.AssetExecutionContext, specs: Sequence[dg.AssetSpec], report: Report) -> bool:
    """Whether a partition got as far as was asked: to `verified`, or without an error to the last selected stage.

    One that is skipped was never asked to: it stays without materializations, and no run fails for it.
    """
    if report.outcome == "skipped":
        return True
    return report.outcome == "verified" if _until(context, specs) is None else report.error is None
