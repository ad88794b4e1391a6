"""What a sample is known by: no more than can change it."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from exporters import keys
from exporters.code_index import CodeIndex
from exporters.keys import sample_parts
from exporters.source import Source

INDEX = CodeIndex((), {"sample": "code"})
ZOO = Source("BertModel", "zoo:BertModel", "zoo:BertModel")
CHECKPOINT: Any = SimpleNamespace(path=Path("folder"))


@pytest.fixture
def pillow(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """What is installed, as the key sees it."""
    installed = {"pillow": "1"}
    monkeypatch.setattr(keys, "versions", lambda packages: {name: installed.get(name, "absent") for name in packages})
    return installed


@pytest.mark.parametrize(
    ("source", "matters"),
    [(ZOO, False), (Source("x", "d", "w", CHECKPOINT), True), (Source("x", "d", "w", file=Path("x.py")), True)],
    ids=["class", "checkpoint", "file"],
)
def test_a_package_that_makes_no_inputs_of_a_class_is_no_part_of_its_key(source: Source, matters: bool, pillow: dict[str, str]) -> None:
    before = sample_parts(source, INDEX)
    del pillow["pillow"]
    assert (sample_parts(source, INDEX) != before) is matters
