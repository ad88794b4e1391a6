"""Partitions: one for each (backend, model) of a family. Dagster sorts the dimensions by name, so a key is `backend|model`.

Dagster gives a run one partition or a range of them. A fleet is any set of them: the runs that we launch ourselves carry their keys in
a tag of our own.
"""

import json
from collections.abc import Iterator, Mapping, Sequence

import dagster as dg

from exporters.backends import BACKENDS, STAGES, family_of

BACKEND = "backend"
MODEL = "model"

Partition = tuple[str, str]  # backend, model

# How many a run has where a fleet is spread: few enough to lose little with one, many enough to share what a run and an import cost.
PARTITIONS_PER_RUN = 16

# A JSON list of keys. Dagster copies a run's tags to the runs that retry it.
PARTITIONS_TAG = "zooport/partitions"


def partitions_of(family: str, models: Sequence[str]) -> dg.MultiPartitionsDefinition:
    """The partitions of a family's chain: its backends times `models`."""
    return dg.MultiPartitionsDefinition(
        {
            BACKEND: dg.StaticPartitionsDefinition(list(BACKENDS[family])),
            MODEL: dg.StaticPartitionsDefinition(list(models)),
        }
    )


def partition_key(backend: str, model: str) -> dg.MultiPartitionKey:
    return dg.MultiPartitionKey({BACKEND: backend, MODEL: model})


def parse_key(key: str) -> dg.MultiPartitionKey:
    """A key with its dimensions, from what Dagster hands out: plain text in range runs."""
    return partition_key(*pair_of(key))


def key_of(partition: Partition) -> str:
    """The key of a partition as text."""
    return "|".join(partition)


def pair_of(key: str) -> Partition:
    """The partition of a key."""
    backend, _, model = key.partition("|")
    return backend, model


def by_family(partitions: Sequence[Partition]) -> dict[str, list[Partition]]:
    """Those of each family that has any, families in their order."""
    found = {family: [each for each in partitions if family_of(each[0]) == family] for family in STAGES}
    return {family: mine for family, mine in found.items() if mine}


def chunks(partitions: Sequence[Partition], per_run: int = PARTITIONS_PER_RUN) -> Iterator[tuple[str, list[Partition]]]:
    """What single runs are over: a family, and at most `per_run` of its partitions."""
    for family, mine in by_family(partitions).items():
        for begin in range(0, len(mine), per_run):
            yield family, mine[begin : begin + per_run]


def run_tags(partitions: Sequence[Partition]) -> dict[str, str]:
    """The tags of a run over these (backend, model) pairs of one family.

    The first pair is told to Dagster as well, since a run of partitioned assets has to have a partition when Dagster looks up what is
    above them. It is told in a form that Dagster plans nothing for.
    """
    backend, model = partitions[0]
    first = {f"dagster/partition/{BACKEND}": backend, f"dagster/partition/{MODEL}": model}
    return {PARTITIONS_TAG: json.dumps([key_of(partition) for partition in partitions]), **first}


def tagged_partitions(tags: Mapping[str, str]) -> list[str] | None:
    """The keys that a run's tag asks for; None where Dagster's own tags tell."""
    return list(json.loads(tags[PARTITIONS_TAG])) if PARTITIONS_TAG in tags else None
