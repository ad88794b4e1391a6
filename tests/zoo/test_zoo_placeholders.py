"""As many places in a text as there are features."""

from collections.abc import Callable

import pytest
import torch
from zoo_helpers import input_sets

from exporters.zoo.placeholders import _counts, _share, rows_of_items
from exporters.zoo.sample import Sample

SampleOf = Callable[[str], Sample]


def test_items_are_spread_over_rows() -> None:
    assert rows_of_items(2, 3) == [2, 1]
    assert rows_of_items(3, 4) == [2, 1, 1]


def test_features_of_items_of_different_sizes() -> None:
    assert _share(7, [1, 1]) == [4, 3]
    assert _share(12, [4, 8]) == [4, 8]


@pytest.mark.parametrize(
    ("features", "counts"),
    [
        (torch.zeros(2, 5, 8), [5, 5]),  # (items, features, width)
        (torch.zeros(10, 8), [5, 5]),  # all features together
        ([torch.zeros(3, 8), torch.zeros(7, 8)], [3, 7]),  # an entry an item
        ((torch.zeros(1, 3, 8), torch.zeros(1, 7, 8)), [3, 7]),
    ],
)
def test_whatever_a_model_returns_is_counted(features: object, counts: list[int]) -> None:
    assert _counts(features, [1, 1]) == counts


@pytest.mark.parametrize("name", ["Qwen2VLForConditionalGeneration", "GotOcr2Model"])
def test_items_that_follow_each_other_stay_apart(name: str, sample_of: SampleOf) -> None:
    sample = sample_of(name)
    token = sample.model.config.image_token_id
    for inputs in input_sets(sample).values():
        runs = sum(int((row[1:] == token).sum() > 0) and _runs(row == token) for row in inputs["input_ids"])
        images = inputs["image_grid_thw"].shape[0] if "image_grid_thw" in inputs else inputs["pixel_values"].shape[0]
        assert runs == images


def _runs(places: torch.Tensor) -> int:
    """How many stretches of True there are."""
    return int((places[1:] & ~places[:-1]).sum()) + int(places[0])


def test_kinds_of_tokens_are_marked(sample_of: SampleOf) -> None:
    inputs = sample_of("Qwen2VLForConditionalGeneration").inputs
    if "mm_token_type_ids" in inputs:
        token = sample_of("Qwen2VLForConditionalGeneration").model.config.image_token_id
        assert torch.equal(inputs["mm_token_type_ids"] == 1, inputs["input_ids"] == token)
