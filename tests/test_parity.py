"""The comparison with eager lets nothing through that it should not."""

import math

import pytest
import torch

from exporters.parity import compare


def same(expected: object, given: object) -> bool:
    return compare(["x"], [expected], [given]).ok


def test_equal_tensors_are_equal() -> None:
    result = compare(["x"], [torch.tensor([1.0, 2.0])], [torch.tensor([1.0, 2.00005])])
    assert result.ok
    assert result.max_abs_diff == pytest.approx(5e-5, rel=0.1)


@pytest.mark.parametrize(
    ("expected", "given"),
    [
        (torch.tensor([1.0]), torch.tensor([1.01])),
        (torch.tensor([1.0]), torch.tensor([math.nan])),
        (torch.tensor([math.nan]), torch.tensor([1.0])),
        (torch.tensor([math.inf]), torch.tensor([-math.inf])),
        (torch.tensor([math.inf]), torch.tensor([1.0])),
        (torch.tensor([1.0]), torch.tensor([1.0], dtype=torch.float64)),
        (torch.tensor([1.0]), torch.tensor([[1.0]])),
        (torch.tensor([1, 2]), torch.tensor([1, 3])),
        (torch.tensor([True]), torch.tensor([False])),
        (torch.tensor(1.0), 1.0),
        (3, 4),
    ],
)
def test_differences_are_found(expected: object, given: object) -> None:
    assert not same(expected, given)


def test_nan_and_infinity_in_the_same_places_are_equal() -> None:
    values = torch.tensor([math.nan, math.inf, -math.inf, 1.0])
    assert same(values, values.clone())


def test_a_missing_output_is_a_difference() -> None:
    assert not compare(["x", "y"], [torch.zeros(1), torch.zeros(1)], [torch.zeros(1)]).ok


@pytest.mark.parametrize("shape", [(0,), (), (2, 0, 3)])
def test_empty_and_scalar_tensors_compare(shape: tuple[int, ...]) -> None:
    assert same(torch.zeros(shape), torch.zeros(shape))


def test_half_types_have_the_bounds_of_their_precision() -> None:
    assert same(torch.tensor([1.0], dtype=torch.bfloat16), torch.tensor([1.0078125], dtype=torch.bfloat16))
    assert not same(torch.tensor([1.0], dtype=torch.float16), torch.tensor([1.05], dtype=torch.float16))


def test_the_message_names_the_output() -> None:
    assert compare(["logits"], [torch.zeros(2)], [torch.ones(2)]).message.startswith("logits: 2 of 2 values")
