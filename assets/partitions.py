"""Partitions: one for each (backend, model) of a family. Dagster sorts the dimensions by name, so a key is `backend|model`."""

from collections.abc import Sequence

import dagster as dg

from exporters.backends import BACKENDS

BACKEND = "backend"
MODEL = "model"


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
