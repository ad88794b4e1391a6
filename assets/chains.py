"""The chains: one multi-asset a backend family, one asset a stage, one partition a (backend, model).

A chain runs in one piece, over one partition, a range or any set of them, several at once. Each stage becomes a materialization of
its own partition as it ends; a partition that fails fails alone, and the run says so when all have had their turn.
"""

import contextlib
from collections.abc import Iterator, Sequence

import dagster as dg

from assets.checks import failure, parity_spec
from assets.partitions import PARTITIONS_PER_RUN, pair_of, partition_key, partitions_of, tagged_partitions
from assets.recipes import recipe_key
from assets.runner import ChainRunner
from assets.telling import AssetEvent, Telling
from exporters.backends import STAGES

# Part of what Dagster shows as an asset's code. Changing it makes every partition of every chain stale, so what
# concerns single partitions goes into data versions instead.
CODE_VERSION = "1"

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
        asked = tagged_partitions(context.run.tags)
        keys = list(context.partition_keys) if asked is None else asked
        told = Telling(context, family, specs, keys, planned=asked is None)
        events = runner.run([pair_of(key) for key in keys], until=told.until, run_id=context.run_id)
        with contextlib.closing(events):  # at once, and not when somebody collects it: an interrupt ends the children
            for pair, event in events:
                yield from told.tell(partition_key(*pair), event)
        if told.failed:
            raise failure(told.failed)

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
