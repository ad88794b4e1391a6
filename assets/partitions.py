"""Partitions: one for each (backend, model) of a family. Dagster sorts the dimensions by name, so a key is `backend|model`.

Dagster gives a run one partition or a range of them. A fleet is any set of them: the runs that we launch ourselves carry their keys in
a tag of our own.
"""

import json
from collections.abc import Mapping, Sequence

import dagster as dg

from exporters.backends import BACKENDS

BACKEND = "backend"
MODEL = "model"

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
    backend, _, model = key.partition("|")
    return partition_key(backend, model)


def run_tags(partitions: Sequence[tuple[str, str]]) -> dict[str, str]:
    """The tags of a run over these (backend, model) pairs of one family.

    The first pair is told to Dagster as well, since a run of partitioned assets has to have a partition when Dagster looks up what is
    above them. It is told in a form that Dagster plans nothing for.
    """
    backend, model = partitions[0]
    first = {f"dagster/partition/{BACKEND}": backend, f"dagster/partition/{MODEL}": model}
    return {PARTITIONS_TAG: json.dumps([f"{backend}|{model}" for backend, model in partitions]), **first}


def tagged_partitions(tags: Mapping[str, str]) -> list[str] | None:
    """The keys that a run's tag asks for; None where Dagster's own tags tell."""
    return list(json.loads(tags[PARTITIONS_TAG])) if PARTITIONS_TAG in tags else None
