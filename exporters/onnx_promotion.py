"""Explicit type promotion: ONNX operators want operands of one type, torch's promote theirs silently.

torch's own pass runs the whole graph once more to know the types. They stand in the nodes' metadata already, and running again fails
where a view was only possible with the strides of the first run (T5, Swin); this pass reads the metadata and runs a node
again only if its operands were changed. The rules are torch's (`torch.onnx._internal.fx.passes.type_promotion`).
"""

import functools
from typing import Any

import torch
from torch.fx import GraphModule, Node
from torch.fx.node import map_arg
from torch.onnx._internal.fx import type_utils
from torch.onnx._internal.fx.passes import type_promotion as rules
from torch.utils import _pytree as pytree


@functools.cache
def _table() -> Any:
    return rules.TypePromotionTable()


def insert_type_promotion(graph_module: GraphModule) -> int:
    """Insert casts before every operator whose operands are promoted, in the graph and its subgraphs; the number of nodes changed."""
    changed = 0
    for module in graph_module.modules():
        if not isinstance(module, GraphModule):
            continue
        changed_here = 0
        for node in list(module.graph.nodes):
            if node.op != "call_function":
                continue
            rule = rules.get_type_promotion_rule(node, _table())
            if rule is not None and "val" in node.meta:
                changed_here += _promote(node, rule)
        if changed_here:
            module.graph.lint()
            module.recompile()
        changed += changed_here
    return changed


def _promote(node: Node, rule: Any) -> bool:
    """Cast the operands of one node as its rule says; whether any was cast."""
    args, kwargs = _values(node.args), _values(node.kwargs)
    preview = rule.preview_type_promotion(args, kwargs)
    new_args = tuple(_cast(node, arg, preview.args_dtypes.get(index)) for index, arg in enumerate(node.args))
    new_kwargs = {name: _cast(node, arg, preview.kwargs_dtypes.get(name)) for name, arg in node.kwargs.items()}
    if new_args == node.args and new_kwargs == node.kwargs:
        return False
    node.args, node.kwargs = new_args, new_kwargs
    args, kwargs = _values(new_args), _values(new_kwargs)
    node.target = rules.find_compatible_op_overload(node.target.overloadpacket, args, kwargs)
    node.meta["val"] = _run(node.target, args, kwargs)
    if node.meta["val"].dtype != preview.out_dtype:
        # the operator computes in the promoted type and returns another (a comparison does not get here: its result is bool)
        with node.graph.inserting_after(node):
            cast = node.graph.call_function(torch.ops.prims.convert_element_type.default, (node,), {"dtype": preview.out_dtype})
        cast.meta["val"] = _run(cast.target, (node.meta["val"],), cast.kwargs)
        node.replace_all_uses_with(cast, delete_user_cb=lambda user: user is not cast)
    return True


def _cast(node: Node, arg: Any, dtype: torch.dtype | None) -> Any:
    """`arg`, or a node before `node` that converts it to `dtype`; a number becomes a 0-d tensor."""
    if dtype is None or arg is None:
        return arg
    if isinstance(arg, list | tuple):
        return type(arg)(_cast(node, item, dtype) for item in arg)
    value = arg.meta["val"] if isinstance(arg, Node) else arg
    if isinstance(value, torch.Tensor):
        if value.dtype == dtype:
            return arg
        target = torch.ops.prims.convert_element_type.default
    else:
        if type_utils.from_scalar_type_to_torch_dtype(type(value)) == dtype:
            return arg
        target = torch.ops.aten.scalar_tensor.default
    with node.graph.inserting_before(node):
        cast = node.graph.call_function(target, (arg,), {"dtype": dtype})
    cast.meta["val"] = _run(target, (value,), {"dtype": dtype}, like=node.meta["val"])
    return cast


def _values(arguments: Any) -> Any:
    return map_arg(arguments, lambda node: node.meta["val"])


def _run(target: Any, args: Any, kwargs: Any, like: Any = None) -> Any:
    """The fake result of an operator, in the fake mode that its operands (or `like`) belong to."""
    for leaf in pytree.tree_leaves((args, kwargs, like)):
        if isinstance(leaf, torch._subclasses.FakeTensor):
            with leaf.fake_mode:
                return target(*args, **kwargs)
    raise TypeError(f"{target} has no tensor among its operands")
