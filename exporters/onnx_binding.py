"""The last step of an ONNX export: the graph's weights become initializers that point into safetensors files."""

from collections.abc import Mapping
from pathlib import Path

import onnx_ir as ir

from exporters.errors import ExportError
from exporters.onnx_stage import OnnxStage
from exporters.weights import TensorPlace


def bound_model(stage: OnnxStage, places: Mapping[str, tuple[str, TensorPlace]]) -> ir.Model:
    """A copy of the graph with each weight as an external initializer; tied ones are one initializer.

    Args:
        places: from a name to a file name, relative to where the graph will lie, and the place in that file.

    Raises:
        ExportError: the weights have no such tensor.
    """
    model = stage.model_ir.clone()
    graph = model.graph
    bound: dict[tuple[str, int, int, tuple[int, ...]], ir.Value] = {}
    for value in list(graph.inputs[len(stage.signature.graph_inputs) :]):
        name = value.name or ""
        if name not in places:
            raise ExportError(f"the weights have no tensor called {name}", backend="onnx", stage=stage.stage, model=stage.model)
        location, place = places[name]
        graph.inputs.remove(value)
        # ONNX Runtime loads each initializer apart: tied weights are one, under the name that comes first
        first = bound.setdefault((location, place.offset, place.length, tuple(place.shape)), value)
        if first is not value and first.dtype == value.dtype:
            value.replace_all_uses_with(first)
            continue
        value.const_value = ir.ExternalTensor(
            location, place.offset, place.length, value.dtype or ir.DataType.FLOAT, shape=ir.Shape(place.shape), name=name
        )
        graph.initializers[name] = value
    return model


def serialize(model: ir.Model, path: Path) -> None:
    """Write the graph's protobuf; external tensors stay references."""
    path.write_bytes(ir.to_proto(model).SerializeToString(deterministic=True))


def rebind(model: ir.Model, places: Mapping[str, tuple[str, TensorPlace]]) -> None:
    """Point the external initializers of a bound graph at other files, in place."""
    for name, value in model.graph.initializers.items():
        if isinstance(value.const_value, ir.ExternalTensor):
            location, place = places[name]
            old = value.const_value
            value.const_value = ir.ExternalTensor(location, place.offset, place.length, old.dtype, shape=ir.Shape(place.shape), name=name)
