"""Normalization whose traced memory layout isn't that of its kernel."""

import torch
from torch._prims_common import is_contiguous_for_memory_format_or_false
from torch.fx import GraphModule, Node

from exporters.utils import register_fx_node_fix


@register_fx_node_fix("dynamo", operators=("aten.batch_norm.default",))
def _fix_layout_of_batch_norm(graph_module: GraphModule, node: Node) -> bool:
    """Give a batch norm its input contiguous, where it isn't.

    Why: on a CPU the kernel returns a contiguous result, its decomposition one in the layout of the input. A `reshape` behind it becomes a
        `view` that the kernel's layout refuses when the decomposed program runs.
    Cost: one copy, instead of the one that the `reshape` made.
    Upstream: pytorch/pytorch#192668.
    Seen in: PatchTSTForClassification
    Operators: clone
    """
    source = node.args[0]
    if not isinstance(source, Node) or _keeps_its_layout(source.meta["val"]):
        return False
    with graph_module.graph.inserting_before(node):
        copy = graph_module.graph.call_function(torch.ops.aten.clone.default, (source,), {"memory_format": torch.contiguous_format})
    copy.meta["val"] = source.meta["val"].clone(memory_format=torch.contiguous_format)
    node.update_arg(0, copy)
    return True


def _keeps_its_layout(value: torch.Tensor) -> bool:
    """Whether kernel and decomposition agree: contiguous, also with channels last."""
    formats = [torch.contiguous_format, *{4: [torch.channels_last], 5: [torch.channels_last_3d]}.get(value.dim(), [])]
    return any(is_contiguous_for_memory_format_or_false(value, memory_format=each) for each in formats)
