"""Which of XNNPACK's passes can do anything to the subgraph of a delegate.

Every pass validates, prints and retraces its whole graph, whether it has something to do or not, and a model has dozens of delegates.
Two passes also export and lower small programs of their own, to match their graphs.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch.fx import GraphModule, Node

_BATCH_NORM = ("native_batch_norm", "_native_batch_norm_legit_no_training", "_native_batch_norm_legit")
_COPIES = ("_to_copy", "_to_dim_order_copy", "clone", "_clone_dim_order", "empty", "_empty_dim_order")
# operators that XNNPACK computes with channels last
_CHANNELS_LAST = (
    "convolution",
    "upsample_bilinear2d",
    "mean",
    "max_pool2d",
    "max_pool2d_with_indices",
    "amax",
    "max",
    "avg_pool2d",
    "prelu",
    "_prelu_kernel",
)


def _calls(*names: str, at_least: int = 1) -> "Callable[[GraphModule], bool]":
    """Whether a graph calls operators of these names (`max_pool2d`, any overload) often enough."""
    return lambda module: sum(_base_name(node) in names for node in module.graph.nodes) >= at_least


def _base_name(node: "Node") -> str:
    """`convolution` for `aten.convolution.default` of any dialect; empty for what isn't an operator."""
    if node.op != "call_function":
        return ""
    parts = getattr(node.target, "__name__", "").split(".")
    return parts[1] if len(parts) > 2 else parts[0]


def _may_be_attention(module: "GraphModule") -> bool:
    return _calls("_softmax")(module) and _calls("bmm", "mm", "matmul", "baddbmm", at_least=2)(module)


def _has_channels_last(module: "GraphModule") -> bool:
    """Whether anything in the graph is, or has to become, channels last."""
    import torch

    def is_channels_last(value: Any) -> bool:
        # not for subgraphs with symbolic sizes only: asking about strides there may add guards
        return isinstance(value, torch.Tensor) and value.dim() == 4 and tuple(value.dim_order()) != (0, 1, 2, 3)

    return _calls(*_CHANNELS_LAST, *_COPIES, *_BATCH_NORM)(module) or any(
        is_channels_last(node.meta.get("val")) for node in module.graph.nodes
    )


def _has_constants(module: "GraphModule") -> bool:
    """Whether a call takes nothing that is known at run time only."""
    return any(node.op == "call_function" and all(given.op == "get_attr" for given in node.all_input_nodes) for node in module.graph.nodes)


# what a pass needs to find; batch norms are decomposed into convolutions, and what comes after them sees those
_TRIGGERS: "dict[str, Callable[[GraphModule], bool]]" = {
    "DimOrderOpsRevertPass": _calls(*_COPIES),
    "ConvertToUpsampleBilinear2d": _calls("index", "_unsafe_index"),
    "ConvertToLinearPass": _calls("mm", "addmm", "bmm"),
    "PropagateCustomMetaPass": lambda module: any("quantize" in _base_name(node) for node in module.graph.nodes),
    "ConvertToSDPAPass": _may_be_attention,
    "ConstPropPass": _has_constants,
    "FuseBatchNormPass": _calls(*_BATCH_NORM),
    "DecomposeBatchNorm": _calls(*_BATCH_NORM),
    "FuseActivationPass": _calls("relu", "hardtanh"),
    "DecomposeConcatenate": _calls("cat"),
    "RemoveGetItemPass": _calls("max", "max_pool2d_with_indices"),
    "InsertPadQDQPass": _calls("constant_pad_nd"),
    "Conv1dUnsqueezePass": _calls("convolution", *_BATCH_NORM),
    "PReLUReshapePass": _calls("_prelu_kernel", "prelu"),
    "ChannelsLastTaggedReshapePass": _has_channels_last,
    "RemoveRedundantCopyPass": _has_channels_last,
}


def needed(passes: Sequence[type], module: "GraphModule") -> list[type]:
    """The passes that may change `module`, in their order; one that isn't known here is among them."""
    return [each for each in passes if _TRIGGERS.get(each.__name__, lambda _: True)(module)]
