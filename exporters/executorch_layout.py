"""The order of a tensor's dimensions in memory, where a size is data."""

import functools
from collections.abc import Sequence
from typing import Any

from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols, guard_or_false


def is_data(strides: Sequence[Any]) -> bool:
    """Whether one of the strides depends on a size that is data; a stride of 0 is an error whatever the others are."""
    return any(map(free_unbacked_symbols, strides)) and not any(isinstance(stride, int) and stride == 0 for stride in strides)


def dim_order(strides: Sequence[Any]) -> tuple[int, ...]:
    """The dimensions from the outermost to the innermost: by stride, of two equal ones the first first.

    A stride that another one divides is the larger: sizes aren't 0.
    """

    def compare(one: int, other: int) -> int:
        a, b = strides[one], strides[other]
        if guard_or_false(a == b):
            return 0
        if guard_or_false(a % b == 0):
            return -1
        if guard_or_false(b % a == 0):
            return 1
        return -1 if a > b else 1

    return tuple(sorted(range(len(strides)), key=functools.cmp_to_key(compare)))
