"""The last step of an ONNX export: the graph's weights become initializers that point into a safetensors file."""

from collections.abc import Mapping
from pathlib import Path

import onnx_ir as ir

from exporters.errors import ExportError
from exporters.onnx_stage import OnnxStage
from exporters.weights import TensorPlace

WEIGHTS_FILE = "weights.safetensors"


def bound_model(
    stage: OnnxStage, places: Mapping[str, TensorPlace], canonical: Mapping[str, str], *, location: str = WEIGHTS_FILE
) -> ir.Model:
    """A copy of the graph with each weight as an external initializer at its place in the file called `location`.

    Args:
        canonical: from a name to the name under which the file has it; tied names point at the same bytes.

    Raises:
        ExportError: the file has no such tensor.
    """
    model = stage.model_ir.clone()
    graph = model.graph
    for value in list(graph.inputs[len(stage.signature.graph_inputs) :]):
        name = value.name or ""
        place = places.get(canonical.get(name, name))
        if place is None:
            raise ExportError(f"the weights have no tensor called {name}", backend="onnx", stage=stage.stage, model=stage.model)
        graph.inputs.remove(value)
        value.const_value = ir.ExternalTensor(
            location, place.offset, place.length, value.dtype or ir.DataType.FLOAT, shape=ir.Shape(place.shape), name=name
        )
        graph.initializers[name] = value
    return model


def serialize(model: ir.Model, path: Path) -> None:
    """Write the graph's protobuf; external tensors stay references."""
    path.write_bytes(ir.to_proto(model).SerializeToString(deterministic=True))
