"""The order of a tensor's dimensions in memory: where a size is data, and where a kernel wants it to be that of its input."""

import functools
from collections.abc import Sequence
from typing import Any

import torch
from torch._dispatch.python import enable_python_dispatcher
from torch.fx import Node
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols, guard_or_false
from torch.fx.node import map_arg


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


def transform_last(node: Node) -> bool:
    """Have a Fourier transform run over the last dimensions of a dense tensor, and permute back; False where it does already."""
    source: Any = node.args[0]
    dimensions: Any = node.args[1]
    rank = source.meta["val"].dim()
    moved = [dimension % rank for dimension in dimensions]
    order = [dimension for dimension in range(rank) if dimension not in moved] + moved
    if order == list(range(rank)):
        return False
    target: Any = node.target
    dense = _dense(node, _before(node, torch.ops.aten.permute.default, source, order))
    transformed = _before(node, target, dense, list(range(rank - len(moved), rank)), *node.args[2:])
    back = _before(node, torch.ops.aten.permute.default, transformed, [order.index(dimension) for dimension in range(rank)])
    # the node stays, under the name that an output may have
    clone: Any = torch.ops.aten.clone.default
    node.target, node.args, node.kwargs = clone, (back,), {"memory_format": torch.contiguous_format}
    node.meta["val"] = clone(back.meta["val"], **node.kwargs)
    return True


def zeros_of_size(node: Node) -> bool:
    """Have `empty` be zeros; False where all of its sizes are numbers."""
    sizes: Any = node.args[0]
    if not any(isinstance(size, Node) for size in sizes):
        return False
    options = {name: value for name, value in node.kwargs.items() if name != "memory_format"}
    target: Any = torch.ops.aten.full.default
    node.target, node.args, node.kwargs = target, (sizes, 0), {"dtype": node.meta["val"].dtype, **options}
    return True


def _dense(node: Node, source: Node) -> Node:
    return _before(node, torch.ops.aten.clone.default, source, memory_format=torch.contiguous_format)


def _before(node: Node, target: Any, *args: Any, **kwargs: Any) -> Node:
    """A call in front of `node`, with the metadata of where it comes from and of its value."""
    with node.graph.inserting_before(node):
        made = node.graph.call_function(target, args, kwargs)
    values = map_arg(args, lambda arg: arg.meta["val"])
    with enable_python_dispatcher():  # without it a transform's meta function can't resize what has symbolic sizes
        made.meta = {**node.meta, "val": target(*values, **kwargs)}
    return made
