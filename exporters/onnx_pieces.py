"""The parts of torch's ONNX exporter that the stages are made of.

`torch.onnx.export` decomposes whatever it is given, so a decomposed graph that was saved would be decomposed twice. Its parts
are private to torch (`torch.onnx._internal.exporter`); this is the one place that calls them, and tests/test_onnx_pieces.py
says so when a torch upgrade moves them.
"""

import copy
import functools
from collections.abc import Callable, Mapping
from typing import Any

import onnx
import onnx_ir as ir
from onnx import version_converter
from onnxscript import version_converter as onnxscript_converter
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind
from torch.onnx._internal.exporter import _core, _fx_passes, _registration

from exporters.onnx_promotion import insert_type_promotion
from exporters.signature import Signature

_WEIGHT_KINDS = (InputKind.PARAMETER, InputKind.BUFFER)


@functools.cache
def _torchlib(opset: int) -> Any:
    """The registry of default translations for an opset; it takes half a second to build."""
    return _registration.ONNXRegistry.from_torchlib(opset_version=opset)


def registry_for(opset: int, translations: Mapping[Any, Callable[..., Any]]) -> Any:
    """Torchlib's translations for `opset`, with our own before them.

    Args:
        translations: from `torch.ops` overload to onnxscript function.
    """
    registry = copy.copy(_torchlib(opset))
    registry.functions = {target: list(functions) for target, functions in registry.functions.items()}
    for target, function in translations.items():
        registry.register_op(target, function)
    return registry


def decompose(program: ExportedProgram, registry: Any) -> ExportedProgram:
    """Decompose into what `registry` translates, make type promotion explicit, drop assertions.

    The steps of `_core._prepare_exported_program_for_export`, with a type promotion of our own.
    """
    program = _fx_passes.decompose_with_registry(program, registry)
    insert_type_promotion(program.graph_module)
    program._graph_module = _fx_passes.remove_assertion_nodes(program.graph_module)
    return program


def translate(program: ExportedProgram, registry: Any, signature: Signature) -> ir.Model:
    """Translate a decomposed program; parameters and persistent buffers become inputs behind the user's, under their own names.

    Buffers that aren't saved with a model, and constants, are initializers: they belong to the graph.
    """
    model = _core._exported_program_to_onnx_program(program, registry=registry).model
    for spec in program.graph_signature.input_specs:
        if spec.kind in _WEIGHT_KINDS and spec.persistent is not False and spec.target in model.graph.initializers:
            value = model.graph.initializers.pop(spec.target)
            value.const_value = None
            model.graph.inputs.append(value)
    for value in model.graph.initializers.values():
        # from here on the graph stands alone: no reference to torch's memory
        if value.const_value is not None:
            value.const_value = ir.Tensor(
                value.const_value.numpy(), dtype=value.const_value.dtype, shape=value.const_value.shape, name=value.name
            )
    strip_metadata(model)
    return model


def strip_metadata(model: ir.Model) -> None:
    """Drop metadata that names files, ids and tracebacks of the machine that made the graph: bytes should depend on the graph only."""
    graphs = [model.graph, *(function.graph for function in model.functions.values())]
    model.metadata_props.clear()
    for graph in graphs:
        graph.metadata_props.clear()
        for node in graph.all_nodes() if hasattr(graph, "all_nodes") else graph:
            node.metadata_props.clear()
            node.doc_string = None
            for value in node.outputs:
                value.metadata_props.clear()
        for value in (*graph.inputs, *graph.initializers.values()):
            value.metadata_props.clear()


def rename_inputs_and_outputs(model: ir.Model, signature: Signature) -> None:
    """Give the graph the model's own argument and output names.

    An output that is an input passed through, or that another output names already, gets an Identity of its own: a name
    belongs to one value.
    """
    taken: set[int] = {id(value) for value in model.graph.inputs}
    for index, value in enumerate(model.graph.outputs):
        if id(value) in taken or value.is_initializer():
            node = ir.node("Identity", [value])
            node.outputs[0].shape, node.outputs[0].type = value.shape, value.type
            model.graph.append(node)
            model.graph.outputs[index] = value = node.outputs[0]
        taken.add(id(value))
    wanted = [
        *((info.name, value) for info, value in zip(signature.graph_inputs, model.graph.inputs, strict=False)),
        *((info.name, value) for info, value in zip(signature.graph_outputs, model.graph.outputs, strict=True)),
    ]
    # a name that we want may belong to a value inside: move all such aside first
    names = {name for name, _ in wanted}
    for node in model.graph:
        for value in node.outputs:
            if value.name in names:
                value.name = f"{value.name}_inner"
    for value in list(model.graph.initializers.values()):
        if value.name in names:
            model.graph.initializers.pop(value.name)
            value.name = f"{value.name}_inner"
            model.graph.initializers[value.name] = value
    for name, value in wanted:
        value.name = name


def convert_opset(model: ir.Model, opset: int) -> ir.Model:
    """The graph in another opset: a newer one by onnxscript's version converter, an older one by onnx's.

    Raises:
        RuntimeError: the converter has no adapter for an operator; it says which.
    """
    if opset > model.opset_imports.get("", 0):
        onnxscript_converter.convert_version(model, target_version=opset)
        return model
    converted = version_converter.convert_version(ir.to_proto(model), opset)
    onnx.checker.check_model(converted)
    return ir.from_proto(converted)
