"""Which nodes of a graph ONNX Runtime has no CPU kernel for: what loading the graph would fail with, known before anything is written."""

import functools
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import onnx
import onnx_ir as ir

# ONNX Runtime casts a float16 node that has no kernel to float32 and back by itself
_CAST_BY_THE_RUNTIME = {"tensor(float16)"}


@functools.cache
def _kernels() -> dict[tuple[str, str], list[Any]]:
    """CPU kernel definitions by domain and operator; empty where onnxruntime isn't installed or doesn't tell."""
    try:
        from onnxruntime.capi.onnxruntime_pybind11_state import get_all_opkernel_def
    except ImportError:
        return {}
    found: dict[tuple[str, str], list[Any]] = defaultdict(list)
    for kernel in get_all_opkernel_def():
        if kernel.provider == "CPUExecutionProvider":
            found[kernel.domain, kernel.op_name].append(kernel)
    return found


def missing_kernels(model: ir.Model) -> list[str]:
    """`Mul(bfloat16)` for each operator and type that nothing on the CPU runs, in order of appearance, each once.

    A node whose types aren't all known is taken to be runnable, as is one that the runtime expands from a function.
    """
    if not _kernels():
        return []
    missing: dict[str, None] = {}
    for node in model.graph.all_nodes():
        opset = model.opset_imports.get(node.domain, 0)
        if not _is_runnable(node, opset):
            types = sorted({value.dtype.name.lower() for value in (*node.inputs, *node.outputs) if value is not None and value.dtype})
            missing[f"{node.op_type}({', '.join(types)})"] = None
    return list(missing)


def _is_runnable(node: ir.Node, opset: int) -> bool:
    """Whether a kernel takes the node's version and types."""
    if node.op_type == "Constant" or not onnx.defs.has(node.op_type, opset, node.domain):
        return True  # no computation, a function of the model, or a contributed operator: not in onnx's schemas
    schema = onnx.defs.get_schema(node.op_type, opset, node.domain)
    actual = dict(_types_by_parameter(node, schema))
    if (schema.has_function or schema.has_context_dependent_function) and "tensor(bfloat16)" not in actual.values():
        return True  # the runtime expands it; in bfloat16 into operators that it doesn't have either
    for kernel in _kernels().get((node.domain, node.op_type), ()):
        first, last = kernel.version_range
        if first <= schema.since_version <= last and all(
            actual[name] in allowed for name, allowed in kernel.type_constraints.items() if name in actual
        ):
            return True
    return not actual or bool(_CAST_BY_THE_RUNTIME & set(actual.values()))


def _types_by_parameter(node: ir.Node, schema: Any) -> Iterator[tuple[str, str]]:
    """Type parameters of the schema (and the formal names that kernels use in their place) with the node's types for them."""
    for formals, values in ((schema.inputs, node.inputs), (schema.outputs, node.outputs)):
        for index, value in enumerate(values):
            if value is None or value.dtype is None or not isinstance(value.type, ir.TensorType | None):
                continue
            formal = formals[min(index, len(formals) - 1)]
            kind = f"tensor({_NAMES.get(value.dtype.name, value.dtype.name.lower())})"
            yield formal.type_str, kind
            yield formal.name, kind


_NAMES = {"FLOAT": "float", "DOUBLE": "double", "STRING": "string"}
