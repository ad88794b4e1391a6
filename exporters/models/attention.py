"""Attention whose traced memory layout its decomposition doesn't keep."""

from typing import Any

import torch
from torch.fx import GraphModule, Node

from exporters.utils import register_fx_node_fix

# operators that only look at a tensor differently
_VIEWS = {
    "aten.reshape.default",
    "aten.transpose.int",
    "aten.permute.default",
    "aten.view.default",
    "aten.unsqueeze.default",
    "aten.squeeze.dim",
}


@register_fx_node_fix("dynamo", operators=("aten.view.default",))
def _fix_view_of_attention(graph_module: GraphModule, node: Node) -> bool:
    """Make a `view` of an attention's result a `reshape`, which copies where it has to.

    Why: on a CPU the fused attention returns another memory layout than its decomposition. A `contiguous()` that was a no-op for the one is
        not in the trace, and the `view` behind it is impossible for the other.
    Upstream: pytorch/pytorch#136543.
    Seen in: GPT2LMHeadModel
    """
    source: Any = node.args[0]
    while isinstance(source, Node) and str(source.target) in _VIEWS:
        source = source.args[0]
    if str(getattr(source, "target", "")) != "aten.scaled_dot_product_attention.default":
        return False
    node.target = torch.ops.aten.reshape.default
    return True
