"""Functions that ExecuTorch has no kernel for, or another meaning, spelled with those that it has."""

import operator
from typing import Any

import torch
import torch.nn.functional as F
from torch.fx import Node
from torch.fx.experimental.symbolic_shapes import statically_known_true


def positive_remainder(node: Node) -> bool:
    """Spell the remainder of sizes so that C's has the divisor's sign; False where what is divided is never negative, or spelled so."""
    dividend, divisor = (arg.meta["val"] if isinstance(arg, Node) else arg for arg in node.args)
    if not isinstance(node.meta["val"], torch.SymInt) or statically_known_true(dividend >= 0) or _is_spelled(node):
        return False
    with node.graph.inserting_before(node):
        remainder = node.graph.call_function(operator.mod, node.args)
        shifted = node.graph.call_function(operator.add, (remainder, node.args[1]))
    remainder.meta = {**node.meta}
    shifted.meta = {**node.meta, "val": node.meta["val"] + divisor}
    node.args = (shifted, node.args[1])
    return True


def _is_spelled(node: Node) -> bool:
    """Whether `node` is the outer or the inner one of the two remainders that `positive_remainder` makes of one."""
    outer = [node, *(user for shifted in node.users for user in shifted.users)]
    return any(_is_outer(each, node.args[1]) and (each is node or each.args[0].args[0] is node) for each in outer)


def _is_outer(node: Node, divisor: Any) -> bool:
    """Whether `node` is (… % divisor + divisor) % divisor."""
    for target, each in ((operator.mod, node), (operator.add, node.args[0])):
        if not isinstance(each, Node) or each.target is not target or each.args[1] != divisor:
            return False
    inner = node.args[0].args[0]  # a node, as the loop has found
    return isinstance(inner, Node) and inner.target is operator.mod and inner.args[1] == divisor


def conv3d(
    input: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    stride: tuple[int, int, int],
    padding: tuple[int, int, int],
    dilation: tuple[int, int, int],
    groups: int,
) -> torch.Tensor:
    """A three-dimensional convolution as the sum of two-dimensional ones, one for each place along the first dimension of its kernel."""
    if input.dim() == 4:
        return conv3d(input[None], weight, bias, stride, padding, dilation, groups)[0]
    if padding[0]:
        input = F.pad(input, (0, 0, 0, 0, padding[0], padding[0]))
    batch, _, length, _, _ = input.shape
    steps = (length - dilation[0] * (weight.shape[2] - 1) - 1) // stride[0] + 1
    total: torch.Tensor | None = None
    for place in range(weight.shape[2]):
        first = place * dilation[0]
        frames = input[:, :, first : first + stride[0] * (steps - 1) + 1 : stride[0]].transpose(1, 2).flatten(0, 1)
        part = F.conv2d(frames, weight[:, :, place], bias if place == 0 else None, stride[1:], padding[1:], dilation[1:], groups)
        total = part if total is None else total + part
    assert total is not None
    return total.unflatten(0, (batch, steps)).transpose(1, 2)
