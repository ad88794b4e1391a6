"""Samples are built once a session: tests look at them and copy what a forward would change."""

from collections.abc import Callable
from functools import lru_cache

import pytest

from exporters.zoo.build import build
from exporters.zoo.sample import Sample


@pytest.fixture(scope="session")
def sample_of() -> Callable[[str], Sample]:
    return lru_cache(maxsize=None)(build)
