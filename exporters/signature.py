"""The flat view of a call: one name for every tensor that goes in or comes out, and the way back to the model's own types.

Names are the argument and output names of the model, with the path inside a container behind them:
`cache.0.keys` is the first layer's keys in the cache given as `cache`.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils import _pytree as pytree

from exporters.errors import SignatureMismatch

# containers inside a cache whose name says nothing that the index behind it doesn't
_SILENT_KEYS = {"layers"}


def split_constants(inputs: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Split keyword inputs into those that hold tensors, and plain values (`use_cache=False`) that the trace bakes in."""
    tensors: dict[str, Any] = {}
    constants: dict[str, Any] = {}
    for name, value in inputs.items():
        holds_tensors = any(isinstance(leaf, torch.Tensor) for leaf in pytree.tree_leaves(value))
        (tensors if holds_tensors else constants)[name] = value
    return tensors, constants


def leaf_names(spec: pytree.TreeSpec, prefix: str = "", default: str = "output") -> list[str]:
    """The dotted names of a tree spec's leaves, in flattening order.

    Args:
        default: name of a leaf that is the whole tree, and prefix of the items of a bare tuple (`output_0`).
    """
    if spec.is_leaf():
        return [prefix or default]
    # what `torch.sort` and its kind return is a tuple of a type of its own, without context
    is_tuple = spec.type in (list, tuple) or spec.context is None
    if is_tuple:
        keys = [str(index) for index in range(spec.num_children)]
    elif hasattr(spec.context, "leaf_paths"):
        keys = [".".join(key for key in path.split(".") if key not in _SILENT_KEYS) for path in spec.context.leaf_paths]
    else:
        # dicts and ModelOutputs keep their keys as context, possibly beside something else
        context = spec.context if isinstance(spec.context, list) else spec.context[-1]
        keys = [str(key) for key in context]
    names: list[str] = []
    for key, child in zip(keys, spec.children(), strict=True):
        bare_item = not prefix and is_tuple
        path = f"{default}_{key}" if bare_item else f"{prefix}.{key}" if prefix else key
        names.extend(leaf_names(child, path, default))
    return names


def distinct_outputs(names: list[str], taken: list[str]) -> list[str]:
    """Output names that no input has: a graph can't give the same name to both.

    A cache that goes in as `cache.0.keys` comes out as `cache.0.keys.out`.
    """
    seen = set(taken)
    distinct = []
    for name in names:
        if name in seen:
            name = f"{name}.out"
        while name in seen:
            name += "_"
        seen.add(name)
        distinct.append(name)
    return distinct


@dataclass(frozen=True)
class TensorInfo:
    """Name, dtype (`float32`) and shape of a tensor; a dynamic axis is the name or expression of its symbol.

    A leaf that the trace made a constant (a Python counter in a cache) has dtype `constant`, its value, and no place in the graph.
    """

    name: str
    dtype: str
    shape: tuple[int | str, ...]
    value: Any = None

    @property
    def in_graph(self) -> bool:
        return self.dtype != "constant"


@dataclass(frozen=True)
class Signature:
    """How an exported model is called, and what it returns.

    Attributes:
        arguments: names of the keyword arguments that hold tensors, in the order of the graph's inputs.
        constants: keyword arguments whose values the trace baked in.
        inputs, outputs: every leaf, in graph order.
        input_spec, output_spec: pytree specs of the arguments (a dict) and of what the model returns.
    """

    arguments: tuple[str, ...]
    constants: dict[str, Any]
    inputs: tuple[TensorInfo, ...]
    outputs: tuple[TensorInfo, ...]
    input_spec: pytree.TreeSpec
    output_spec: pytree.TreeSpec

    @property
    def graph_inputs(self) -> list[TensorInfo]:
        return [info for info in self.inputs if info.in_graph]

    @property
    def graph_outputs(self) -> list[TensorInfo]:
        return [info for info in self.outputs if info.in_graph]

    def flatten(self, kwargs: Mapping[str, Any]) -> list[torch.Tensor]:
        """The tensors of a call, in the order of `graph_inputs`.

        Raises:
            SignatureMismatch: an argument is missing or unknown, a constant differs, or a container (a cache with another
                number of layers or another counter) isn't built as the traced one was.
        """
        given = dict(kwargs)
        for name, value in self.constants.items():
            if given.pop(name, value) != value:
                raise SignatureMismatch(
                    f"{name}={kwargs[name]!r}, but the model was exported with {name}={value!r}",
                    next=f"export again with {name}={kwargs[name]!r}",
                )
        missing = [name for name in self.arguments if given.get(name) is None]
        unknown = [name for name, value in given.items() if name not in self.arguments and value is not None]
        if missing or unknown:
            problem = [f"missing {', '.join(missing)}"] * bool(missing) + [f"not exported with {', '.join(unknown)}"] * bool(unknown)
            raise SignatureMismatch("; ".join(problem), next=f"the exported model takes {', '.join(self.arguments)}")
        ordered = {name: given[name] for name in self.arguments}
        leaves, spec = pytree.tree_flatten(ordered)
        if spec != self.input_spec:
            raise SignatureMismatch(
                _difference(spec, self.input_spec, self.arguments), next="pass containers of the traced kind and size, or export again"
            )
        for info, leaf in zip(self.inputs, leaves, strict=True):
            if not info.in_graph and leaf != info.value:
                raise SignatureMismatch(
                    f"{info.name} is {leaf}, but the trace was made with {info.value}", next="export with a sample in this state"
                )
        return [leaf for info, leaf in zip(self.inputs, leaves, strict=True) if info.in_graph]

    def unflatten(self, tensors: Sequence[Any]) -> Any:
        """What the model returns, from the tensors in the order of `graph_outputs`."""
        given = iter(tensors)
        leaves = [next(given) if info.in_graph else info.value for info in self.outputs]
        return pytree.tree_unflatten(leaves, self.output_spec)

    def to_json(self) -> dict[str, Any]:
        """A plain description; `from_json` is its inverse."""
        return {
            "arguments": list(self.arguments),
            "constants": self.constants,
            "inputs": [[info.name, info.dtype, list(info.shape), info.value] for info in self.inputs],
            "outputs": [[info.name, info.dtype, list(info.shape), info.value] for info in self.outputs],
            "input_spec": json.loads(pytree.treespec_dumps(self.input_spec)),
            "output_spec": json.loads(pytree.treespec_dumps(self.output_spec)),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "Signature":
        """Needs the types that the specs name to be registered (`exporters.pytrees.register_named`)."""
        return cls(
            arguments=tuple(data["arguments"]),
            constants=dict(data["constants"]),
            inputs=tuple(TensorInfo(name, dtype, tuple(shape), value) for name, dtype, shape, value in data["inputs"]),
            outputs=tuple(TensorInfo(name, dtype, tuple(shape), value) for name, dtype, shape, value in data["outputs"]),
            input_spec=pytree.treespec_loads(json.dumps(data["input_spec"])),
            output_spec=pytree.treespec_loads(json.dumps(data["output_spec"])),
        )


def _difference(given: pytree.TreeSpec, wanted: pytree.TreeSpec, arguments: tuple[str, ...]) -> str:
    """Which argument's structure differs, and how."""
    for name, mine, theirs in zip(arguments, given.children(), wanted.children(), strict=True):
        if mine != theirs:
            return f"{name} is built differently from the traced one: {mine} instead of {theirs}"
    return "the arguments are built differently from the traced ones"
