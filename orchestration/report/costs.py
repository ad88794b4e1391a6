"""What exports cost, by backend and stage: CPU, memory and bytes, each as a distribution over the models."""

import statistics
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from exporters.backends import STAGES, all_backends, family_of
from orchestration.report.snapshot import Partition, StageFacts


@dataclass(frozen=True)
class Spread:
    """A distribution: the sum, the median, what nine tenths stay below, and the largest."""

    total: float
    median: float
    p90: float
    largest: float


@dataclass(frozen=True)
class StageCost:
    """What one stage of one backend cost over all models of which it was made.

    Attributes:
        models: how many.
        cached: for how many of them the last export found it in the store; its costs are those of the run that made it.
        cpu_seconds: of making and saving it.
        peak_rss_mb: MiB of its process at its end; a total means nothing here.
        bytes: of its artifact.
        most: the model that took most CPU.
    """

    backend: str
    stage: str
    models: int
    cached: int
    cpu_seconds: Spread
    peak_rss_mb: Spread
    bytes: Spread
    most: str


def costs(partitions: Iterable[Partition]) -> list[StageCost]:
    """By backend and stage, in the order in which they run."""
    made: dict[tuple[str, str], list[tuple[str, StageFacts]]] = defaultdict(list)
    for partition in partitions:
        for each in partition.stages:
            made[partition.backend, each.stage].append((partition.model, each))
    rows = []
    for backend, stage in _ordered(made):
        rows_of = made[backend, stage]
        facts = [fact for _, fact in rows_of]
        rows.append(
            StageCost(
                backend,
                stage,
                models=len(facts),
                cached=sum(fact.cached for fact in facts),
                cpu_seconds=_spread([fact.cpu_seconds for fact in facts]),
                peak_rss_mb=_spread([fact.peak_rss_mb for fact in facts]),
                bytes=_spread([fact.bytes for fact in facts]),
                most=max(rows_of, key=lambda row: (row[1].cpu_seconds, row[0]))[0],
            )
        )
    return rows


def _ordered(keys: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    known = [(backend, stage) for backend in all_backends() for stage in STAGES[family_of(backend)]]
    return sorted(keys, key=lambda key: (known.index(key) if key in known else len(known), key))


def _spread(values: Sequence[float]) -> Spread:
    ordered = sorted(values)
    p90 = ordered[min(len(ordered) - 1, int(0.9 * len(ordered)))]
    return Spread(round(sum(ordered), 2), round(statistics.median(ordered), 2), p90, ordered[-1])
