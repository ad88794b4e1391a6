"""Which axes of the inputs vary, found by comparing input sets, and how far they may."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.export import Dim, ShapesCollection
from torch.utils import _pytree as pytree

from exporters import pytrees
from exporters.errors import UsageError
from exporters.signature import leaf_names, split_constants


@dataclass(frozen=True)
class VaryingAxis:
    """One axis of one input tensor that varies: the tensor's dotted name, the axis, its name and its bounds.

    `max` None means that nothing bounds it.
    """

    tensor: str
    axis: int
    name: str
    min: int
    max: int | None


@dataclass(frozen=True)
class Shapes:
    """The dynamic axes of an export, as `torch.export` takes them and as a person reads them."""

    dynamic_shapes: dict[str, Any]
    axes: tuple[VaryingAxis, ...]


def varying(
    inputs: Mapping[str, Any], others: Mapping[str, Mapping[str, Any]], axes: Sequence[Any] = (), max_sizes: Mapping[str, int] | None = None
) -> Shapes:
    """Mark as dynamic exactly the axes whose size differs between `inputs` and any of `others`.

    Args:
        inputs: the keyword inputs that will be traced with.
        others: further input sets, by name, built like `inputs`.
        axes: named axes (`exporters.zoo.sample.Axis`): `sizes` over `inputs` and `others`, `min` and `max`. A tensor axis that shows
            these sizes gets their name and bounds; one that no named axis explains is called `axis_<n>`, unbounded.
        max_sizes: upper bounds by axis name, before those of `axes`.

    Raises:
        UsageError: an input set is built differently, or a varying axis has sample size 0 or 1, which `torch.export` freezes.
    """
    pytrees.register_all()
    tensors, _ = split_constants(inputs)
    leaves, spec = pytree.tree_flatten(dict(tensors))
    names = leaf_names(spec)
    columns = [leaves]
    for label, other in others.items():
        other_leaves, other_spec = pytree.tree_flatten({name: other.get(name) for name in tensors})
        if len(other_leaves) != len(leaves):
            raise UsageError(f"input set {label!r} is built differently from the sample: {other_spec} instead of {spec}")
        columns.append(other_leaves)

    overrides = dict(max_sizes or {})
    known = {tuple(axis.sizes): axis for axis in axes}
    unnamed: dict[tuple[int, ...], str] = {}
    found: list[VaryingAxis] = []
    collection = ShapesCollection()
    for name, row in zip(names, zip(*columns, strict=True), strict=True):
        if not isinstance(row[0], torch.Tensor):
            continue
        hints = {}
        for index in range(row[0].dim()):
            sizes = tuple(tensor.shape[index] for tensor in row)
            if len(set(sizes)) == 1:
                continue
            if sizes[0] < 2:
                raise UsageError(
                    f"axis {index} of {name} varies, but has size {sizes[0]} in the sample", next="give a sample of size 2 or more"
                )
            axis = known.get(sizes)
            axis_name = axis.name if axis else unnamed.setdefault(sizes, f"axis_{len(unnamed)}")
            low = min(axis.min if axis else 1, *sizes)
            high = overrides.get(axis_name, axis.max if axis else None)
            if high is not None and high < max(sizes):
                raise UsageError(
                    f"{axis_name} is bounded by {high}, but an input set has {max(sizes)}", next=f"allow {axis_name} at least {max(sizes)}"
                )
            found.append(VaryingAxis(name, index, axis_name, low, high))
            hints[index] = Dim.DYNAMIC(min=low, max=high) if high is not None else Dim.DYNAMIC(min=low)
        if hints:
            collection[row[0]] = hints
    return Shapes(_as_tree(collection, tensors), tuple(found))


def all_auto(tensors: Mapping[str, Any]) -> dict[str, Any]:
    """`Dim.AUTO` for every axis of every tensor, nested as the inputs are."""
    collection = ShapesCollection()
    for leaf in pytree.tree_leaves(dict(tensors)):
        if isinstance(leaf, torch.Tensor):
            collection[leaf] = dict.fromkeys(range(leaf.dim()), Dim.AUTO)
    return _as_tree(collection, tensors)


def _as_tree(collection: ShapesCollection, tensors: Mapping[str, Any]) -> dict[str, Any]:
    """The dims laid out as the inputs are; a cache becomes the list of its leaves, as `torch.export` wants it."""

    def signature_only(**inputs: Any) -> None: ...

    return dict(collection.dynamic_shapes(signature_only, (), {"inputs": dict(tensors)})["inputs"]["inputs"])
