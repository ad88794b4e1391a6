"""_patch_attention_over_bounds: packed sequences attend to themselves only."""

import copy
from typing import Any

import pytest
import torch
from workaround_helpers import assert_restores, leave_out

from exporters import DynamoConfig, DynamoExporter, varying
from exporters.models.vision import same_sequence
from exporters.zoo.build import build

NAME = "dynamo:_patch_attention_over_bounds"
MODEL = "GlmOcrVisionModel"


def worst_difference() -> float:
    """Between the export and eager, over all input sets."""
    sample = build(MODEL)
    shapes = varying(sample.inputs, sample.others, sample.axes)
    exported = DynamoExporter().export(sample.model, sample.inputs, config=DynamoConfig(dynamic=True, dynamic_shapes=shapes.dynamic_shapes))
    worst = 0.0
    for given in (sample.inputs, *sample.others.values()):
        with torch.no_grad():
            expected: Any = sample.model(**copy.deepcopy(given))
        actual = exported(**copy.deepcopy(given))
        worst = max(worst, float((actual[0] - expected[0]).abs().max()))
    return worst


@pytest.mark.e2e
def test_effect() -> None:
    assert worst_difference() < 1e-4


@pytest.mark.e2e
def test_canary(monkeypatch: pytest.MonkeyPatch) -> None:
    leave_out(monkeypatch, NAME)
    assert worst_difference() > 1e-3


@pytest.mark.parametrize("pieces", [[4], [2, 3], [1, 1, 5], [3, 0, 2]])
def test_semantics(pieces: list[int]) -> None:
    """The mask is block-diagonal, a block a piece; an empty piece has none."""
    bounds = torch.tensor([0, *torch.tensor(pieces).cumsum(0).tolist()])
    mask = same_sequence(bounds, sum(pieces))
    assert mask.shape == (1, 1, sum(pieces), sum(pieces))
    assert torch.equal(mask[0, 0], torch.block_diag(*[torch.ones(n, n) for n in pieces if n]).bool())


def test_originals_come_back() -> None:
    assert_restores(NAME)
