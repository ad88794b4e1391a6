"""The values that one stage computes, kept so that the same ones are found again in another stage.

Node names change from stage to stage, and so do layouts and the widths of integers: what stays is the numbers. A value is found again by
its statistics first, which leave few candidates, then by comparison within the parity bound. Kept values lie in a file that is mapped,
each content once, so that a graph's every intermediate takes disk and not memory.
"""

import hashlib
import itertools
import math
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from exporters import parity

INPUT, WEIGHT, CONSTANT = "input", "weight", "constant"
# layouts are tried up to this many axes longer than one: 120 permutations
_MAX_PERMUTED_AXES = 5
_ALIGNMENT = 64


@dataclass(frozen=True)
class Value:
    """One tensor in a run of a graph.

    Attributes:
        name: in its graph, where it belongs to no other value.
        operator: what computed it; `INPUT`, `WEIGHT` and `CONSTANT` for what is computed by nobody.
        inputs: names of the values that it was computed from.
        module: path of the module of the model that it belongs to, where the graph says so.
        tensor: any shape and dtype; a number that a graph computes with is 0-d.
        presumed: right unless its namesake says otherwise: inputs, and sizes and literals, which another graph may not have as values.
    """

    name: str
    operator: str
    inputs: tuple[str, ...]
    tensor: torch.Tensor
    module: str = ""
    presumed: bool = False


def as_tensor(value: Any) -> torch.Tensor | None:
    """A tensor or a number as a tensor with real entries and memory of its own kind; None for what is neither."""
    if isinstance(value, bool | int | float):
        return torch.tensor(value, dtype=torch.float64 if isinstance(value, float) else None)
    if not isinstance(value, torch.Tensor) or value.layout is not torch.strided or value.is_quantized:
        return None
    value = value.detach()
    return torch.view_as_real(value.resolve_conj()) if value.is_complex() else value


def within(expected: torch.Tensor, given: torch.Tensor) -> bool:
    """Whether two tensors of as many elements are equal, entry by entry in row order: floats within the parity bound, the rest exactly.

    The bound is that of the less precise dtype. Of tensors whose largest entry is below one it is taken relative to that entry: inside a
    graph small numbers may be about to be scaled up.
    """
    expected, given = expected.reshape(-1), given.reshape(-1)
    if not expected.is_floating_point():
        return torch.equal(expected.to(torch.int64), given.to(torch.int64))
    dtype = max(expected.dtype, given.dtype, key=lambda dtype: torch.finfo(dtype).eps)
    dtype = torch.float32 if torch.finfo(dtype).eps < torch.finfo(torch.float32).eps else dtype
    largest = _largest(expected)
    if 0 < largest < 1:
        expected, given = expected.double() / largest, given.double() / largest
    return parity.compare(["value"], [expected.to(dtype)], [given.to(dtype)]).ok


def _largest(tensor: torch.Tensor) -> float:
    finite = tensor[torch.isfinite(tensor)]
    return float(finite.abs().max()) if finite.numel() else 0.0


@dataclass
class _Content:
    """Numbers that one or several values have, in row order."""

    offset: int
    shape: tuple[int, ...]
    dtype: torch.dtype
    statistics: tuple[float, float, float]
    reference: torch.Tensor | None = None
    found: bool = False


class KnownValues:
    """The values of one run of a graph, in the order in which they were computed.

    Attributes:
        values: by name, without their numbers, which `tensor` reads.
        contradicted: names of those whose namesake in another graph has other numbers.
    """

    def __init__(self) -> None:
        self.values: dict[str, Value] = {}
        self.contradicted: set[str] = set()
        self._of: dict[str, _Content] = {}
        self._file = tempfile.TemporaryFile(prefix="zooport-drift-")  # noqa: SIM115 (closed by `close`)
        self._size = 0
        self._contents: dict[tuple[Any, ...], _Content] = {}
        self._by_size: dict[tuple[bool, int], list[_Content]] = defaultdict(list)

    def __enter__(self) -> "KnownValues":
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def add(self, value: Value) -> None:
        """Keep a value; weights stay where they are."""
        flat = value.tensor.contiguous().reshape(-1)
        key = (value.tensor.dtype, tuple(value.tensor.shape), hashlib.blake2b(_bytes(flat).data, digest_size=16).digest())
        content = self._contents.get(key)
        if content is None:
            content = _Content(self._size, tuple(value.tensor.shape), value.tensor.dtype, _statistics(flat))
            if value.operator == WEIGHT:
                content.reference = value.tensor
            else:
                data = _bytes(flat).tobytes()
                self._size += self._file.write(data + bytes(-len(data) % _ALIGNMENT))
            self._contents[key] = content
            self._by_size[_kind(value.tensor)].append(content)
        self.values[value.name] = replace(value, tensor=torch.empty(0))
        self._of[value.name] = content

    def tensor(self, name: str) -> torch.Tensor:
        """The numbers of the value called `name`."""
        return self._read(self._of[name])

    def find(self, tensor: torch.Tensor) -> set[int]:
        """The contents here that a tensor of another graph equals, under whatever name and in whatever layout; they count as found."""
        statistics = _statistics(tensor.contiguous().reshape(-1))
        equal = set()
        for content in self._by_size[_kind(tensor)]:
            if _near(content.statistics, statistics, {content.dtype, tensor.dtype}) and self._equal(content, tensor):
                content.found = True
                equal.add(id(content))
        return equal

    def content(self, name: str) -> int:
        """What `find` calls the content of the value called `name`."""
        return id(self._of[name])

    def tells(self, name: str) -> bool:
        """Whether a value is more than one number repeated, and floats: two of those aren't equal by chance, as two masks may be."""
        content = self._of[name]
        return content.dtype.is_floating_point and content.statistics[0] != content.statistics[1]

    def was_found(self, name: str) -> bool:
        """Whether another graph has this value too, and none of other numbers under its name."""
        return (self._of[name].found or self.values[name].presumed) and name not in self.contradicted

    def agrees(self, name: str, tensor: torch.Tensor) -> bool | None:
        """Whether another graph's tensor is what is here under the same name; None where nothing of its kind and size is."""
        content = self._of.get(name)
        if content is None or _kind_of(content.dtype, math.prod(content.shape)) != _kind(tensor):
            return None
        if self._equal(content, tensor):
            content.found = True
            return True
        self.contradicted.add(name)
        return False

    def _equal(self, content: _Content, given: torch.Tensor) -> bool:
        expected = self._read(content)
        return any(within(expected, layout) for layout in _layouts(given, tuple(expected.shape)))

    def _read(self, content: _Content) -> torch.Tensor:
        if content.reference is not None:
            return content.reference
        numel = math.prod(content.shape)
        if numel == 0:
            return torch.empty(content.shape, dtype=content.dtype)
        self._file.flush()
        size = numel * content.dtype.itemsize
        mapped = np.memmap(self._file, dtype=np.uint8, mode="c", offset=content.offset, shape=(size,))
        return torch.from_numpy(mapped).view(content.dtype).reshape(content.shape)


def _layouts(given: torch.Tensor, shape: tuple[int, ...]) -> Iterator[torch.Tensor]:
    """A tensor as it is, then with its axes in every order that gives `shape`, axes of length one left out."""
    yield given
    wanted = [size for size in shape if size != 1]
    squeezed = given.squeeze()
    sizes = list(squeezed.shape)
    if len(sizes) > _MAX_PERMUTED_AXES or sorted(sizes) != sorted(wanted):
        return
    for order in itertools.permutations(range(len(sizes))):
        if order != tuple(range(len(sizes))) and [sizes[axis] for axis in order] == wanted:
            yield squeezed.permute(order)


def _kind(tensor: torch.Tensor) -> tuple[bool, int]:
    return _kind_of(tensor.dtype, tensor.numel())


def _kind_of(dtype: torch.dtype, numel: int) -> tuple[bool, int]:
    """What has to be equal for two tensors to be comparable: floats or not, and the number of elements."""
    return dtype.is_floating_point, numel


def _statistics(flat: torch.Tensor) -> tuple[float, float, float]:
    """Minimum, maximum and mean, whatever the layout; of the finite entries."""
    if not flat.numel():
        return (0.0, 0.0, 0.0)
    numbers = flat.double()
    numbers = numbers[torch.isfinite(numbers)]
    if not numbers.numel():
        return (0.0, 0.0, 0.0)
    return float(numbers.min()), float(numbers.max()), float(numbers.mean())


def _near(one: Sequence[float], other: Sequence[float], dtypes: set[torch.dtype]) -> bool:
    """Whether tensors with these statistics may be within the bound of each other. Never false for two that are."""
    largest = max(abs(one[0]), abs(one[1]))
    atol, rtol = (2e-2, 3e-2) if dtypes & {torch.float16, torch.bfloat16} else (parity.ATOL, parity.RTOL)
    bound = atol * (min(largest, 1.0) or 1.0) + rtol * largest
    return all(abs(a - b) <= bound for a, b in zip(one, other, strict=True))


def _bytes(flat: torch.Tensor) -> np.ndarray:
    """The bytes of a contiguous tensor with one axis."""
    return flat.view(torch.uint8).numpy()
