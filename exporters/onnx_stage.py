"""An ONNX graph as the stages hand it on."""

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import onnx_ir as ir

from exporters.signature import Signature
from exporters.utils import Observation


@dataclass
class OnnxStage:
    """A lowered or an IR-fixed graph: no weights in it, they are inputs behind the user's own.

    Attributes:
        stage: asset name, `lowered_onnx` or `ir_fixed_model`.
    """

    stage: str
    model: str
    model_ir: ir.Model
    signature: Signature
    seen: Observation = field(default_factory=Observation)
    details: dict[str, Any] = field(default_factory=dict)
    backend: str = "onnx"

    @property
    def weight_names(self) -> list[str]:
        """Names of the parameters and buffers that the graph reads, in the order of its inputs."""
        return [value.name or "" for value in self.model_ir.graph.inputs[len(self.signature.graph_inputs) :]]

    def operators(self) -> dict[str, int]:
        """Histogram of operators, most frequent first; those of other domains with their domain before them."""
        return dict(ir_operators(self.model_ir).most_common())


def ir_operators(model: ir.Model) -> Counter[str]:
    """How often each operator stands in a graph and its subgraphs: `TopK`, `com.microsoft::Gelu`."""
    return Counter(f"{node.domain}::{node.op_type}" if node.domain else node.op_type for node in model.graph.all_nodes())
