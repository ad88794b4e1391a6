"""ONNX graphs, run by ONNX Runtime so that every value on the way is seen: unoptimized, or as the runtime's optimizer leaves them."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
import onnx_ir.tensor_adapters
import onnxruntime
import torch

from exporters.drift_programs import Record, Runnable
from exporters.drift_values import CONSTANT, INPUT, WEIGHT, Value

# so many values are fetched in one run of a graph: all of them are in memory at its end
_VALUES_A_RUN = 500
# what ONNX Runtime hands over as an array that torch takes
_FETCHED = {f"tensor({name})" for name in ("float", "double", "float16", "int64", "int32", "int16", "int8", "uint8", "bool")}
_OF_SHAPES = {"Shape", "Size"}
# what makes sizes of sizes: integers, as many as a tensor has axes
_ON_SIZES = {
    *("Add", "Cast", "Concat", "Div", "Gather", "Identity", "Max", "Min", "Mod", "Mul", "Neg"),
    *("Reshape", "Slice", "Squeeze", "Sub", "Unsqueeze"),
}
# lowest first; `ORT_ENABLE_ALL` is what a session has by default
_LEVELS = ("ORT_ENABLE_BASIC", "ORT_ENABLE_EXTENDED", "ORT_ENABLE_LAYOUT", "ORT_ENABLE_ALL")


def session(graph: bytes, weights_folder: Path, level: str = "ORT_DISABLE_ALL", optimized: Path | None = None) -> Any:
    """A session on the CPU, its graph optimized as far as `level` says; it writes what that comes to into `optimized`."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, level)
    options.add_session_config_entry("session.model_external_initializers_file_folder_path", str(weights_folder))
    if optimized is not None:
        options.optimized_model_filepath = str(optimized)
        options.add_session_config_entry("session.optimized_model_external_initializers_file_name", f"{optimized.name}.data")
    return onnxruntime.InferenceSession(graph, options, providers=["CPUExecutionProvider"])


class OnnxGraph(Runnable):
    """A graph with its weights as external tensors, every node run as it stands; a subgraph belongs to the node that has it.

    Args:
        modules: from a value's name to the path of the module that it comes from.
    """

    follows_names = True

    def __init__(self, model: ir.Model, weights_folder: Path, modules: Mapping[str, str] | None = None, fineness: str = "one node") -> None:
        self._model = model
        self._folder = weights_folder
        self._modules = modules or {}
        self.fineness = fineness

    def run(self, leaves: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        return [torch.from_numpy(array) for array in _run(session(_bytes(self._model), self._folder), leaves)]

    def visit(self, leaves: Sequence[torch.Tensor], record: Record) -> list[str]:
        graph = self._model.graph
        for value, leaf in zip(graph.inputs, leaves, strict=True):
            record(Value(value.name or "", INPUT, (), leaf, presumed=True))
        for name, value in graph.initializers.items():
            tensor = _initializer(value, self._folder)
            if tensor is not None:
                operator = WEIGHT if isinstance(value.const_value, ir.ExternalTensor) else CONSTANT
                record(Value(name, operator, (), tensor, presumed=operator == CONSTANT))
        sizes = _sizes(graph)
        made = [(value.name, node) for node in graph for value in node.outputs if value.name]
        for start in range(0, len(made), _VALUES_A_RUN):
            chunk = dict(made[start : start + _VALUES_A_RUN])
            for name, array in self._values_of(list(chunk), leaves).items():
                node = chunk[name]
                inputs = tuple(dict.fromkeys(_inputs_of(node)))
                operator = f"{node.domain}::{node.op_type}" if node.domain else node.op_type
                presumed = node.op_type == "Constant" or name in sizes
                record(Value(name, operator, inputs, torch.from_numpy(array), self._modules.get(name, ""), presumed))
        return [value.name or "" for value in graph.outputs]

    def _values_of(self, names: list[str], leaves: Sequence[torch.Tensor]) -> dict[str, np.ndarray]:
        """The values called `names`, in that order, without those of a type that arrays don't have."""
        proto = ir.to_proto(self._model)
        known = {output.name for output in proto.graph.output}
        for name in names:
            if name not in known:
                proto.graph.output.add().name = name  # its type is what ONNX Runtime infers
        opened = session(proto.SerializeToString(), self._folder)
        fetched = [output.name for output in opened.get_outputs() if output.name in set(names) and output.type in _FETCHED]
        arrays = dict(zip(fetched, _run(opened, leaves, fetched), strict=True))
        return {name: arrays[name] for name in names if name in arrays}


class Shipped(Runnable):
    """A graph on ONNX Runtime as zooport ships it, all optimizations on.

    Args:
        run: runs the shipped runtime, flat tensors to flat tensors.
        scratch: an empty folder.
        is_wrong: whether outputs are outside the bound.

    Attributes:
        fineness: after `visit`, the lowest level of optimization at which the numbers are as wrong.
    """

    follows_names = True

    def __init__(
        self,
        graph: Path,
        weights_folder: Path,
        run: Callable[[Sequence[torch.Tensor]], list[torch.Tensor]],
        scratch: Path,
        is_wrong: Callable[[list[torch.Tensor]], bool],
        modules: Mapping[str, str],
    ) -> None:
        self._graph = graph.read_bytes()
        self._folder = weights_folder
        self._run = run
        self._scratch = scratch
        self._is_wrong = is_wrong
        self._modules = modules
        self.fineness = ""

    def run(self, leaves: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        return self._run(leaves)

    def visit(self, leaves: Sequence[torch.Tensor], record: Record) -> list[str]:
        """Visit the graph that ONNX Runtime's optimizer makes at the lowest level that is wrong; its fused operators are nodes."""
        level = next((level for level in _LEVELS if self._is_wrong(self._at(level, leaves))), _LEVELS[-1])
        optimized = self._scratch / "optimized.onnx"
        session(self._graph, self._folder, level, optimized)
        self.fineness = f"a node of the graph that ONNX Runtime's optimizer makes at level {level.removeprefix('ORT_ENABLE_').lower()}"
        return OnnxGraph(ir.load(optimized), self._scratch, self._modules).visit(leaves, record)

    def _at(self, level: str, leaves: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        return [torch.from_numpy(array) for array in _run(session(self._graph, self._folder, level), leaves)]


def _bytes(model: ir.Model) -> bytes:
    return ir.to_proto(model).SerializeToString()


def _run(opened: Any, leaves: Sequence[torch.Tensor], names: Sequence[str] | None = None) -> list[np.ndarray]:
    inputs = [value.name for value in opened.get_inputs()]
    arrays = opened.run(names, dict(zip(inputs, [leaf.detach().contiguous().numpy() for leaf in leaves], strict=True)))
    return [np.asarray(array) for array in arrays]


def _inputs_of(node: ir.Node) -> Iterator[str]:
    """Names of what a node reads, and of what the subgraphs inside it read from outside."""
    yield from (value.name for value in node.inputs if value is not None and value.name)
    for attribute in node.attributes.values():
        if attribute.type == ir.AttributeType.GRAPH:
            for inner in attribute.as_graph():
                yield from _inputs_of(inner)


def _sizes(graph: ir.Graph) -> set[str]:
    """Names of the values computed from nothing but shapes and constants: those that torch computes as numbers, not tensors."""
    sizes: set[str] = set()
    constants = set(graph.initializers)
    for node in graph:
        names = {value.name or "" for value in node.outputs}
        inputs = set(_inputs_of(node))
        if node.op_type == "Constant":
            constants |= names
        elif node.op_type in _OF_SHAPES or (node.op_type in _ON_SIZES and inputs & sizes and inputs <= sizes | constants):
            sizes |= names
    return sizes


def _initializer(value: ir.Value, folder: Path) -> torch.Tensor | None:
    """An initializer's numbers, mapped where they are in a file; None for a type that torch doesn't have."""
    tensor = value.const_value
    if tensor is None or tensor.dtype.bitwidth < 8 or tensor.dtype == ir.DataType.STRING:
        return None
    dtype = ir.tensor_adapters.to_torch_dtype(tensor.dtype)
    if tensor.size == 0:
        return torch.empty(tuple(tensor.shape), dtype=dtype)
    if isinstance(tensor, ir.ExternalTensor):
        # private to this process: torch wants memory that it could write to
        raw: np.ndarray = np.memmap(folder / tensor.location, np.uint8, mode="c", offset=tensor.offset or 0, shape=(tensor.nbytes,))
    else:
        raw = np.frombuffer(bytearray(tensor.tobytes()), np.uint8)
    return torch.from_numpy(raw).view(dtype).reshape(tuple(tensor.shape))
