"""What every stage shares: the object it hands on, and how a failure inside it is told."""

import contextlib
import copy
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn
from torch.export import ExportedProgram

from exporters.errors import ExportError, ZooportError
from exporters.signature import Signature
from exporters.utils import Observation, observe, target_name

# where a workaround for a failure of this stage would be written
_NEXT = {
    "traced_program": "add a model patch under 'Stage 2' of exporters/exporter_dynamo.py, or an entry in exporters/known_issues.py",
    "decomposed_graph": "add a node fix under 'Stage 3' of exporters/exporter_onnx.py, or an entry in exporters/known_issues.py",
    "lowered_onnx": "add a patch under 'Stage 1' or a translation under 'Stage 4' of exporters/exporter_onnx.py",
    "ir_fixed_model": "add an IR fix under 'Stage 5' of exporters/exporter_onnx.py",
    "pte": "add a patch or a fix under 'Stage 2' to 'Stage 5' of exporters/exporter_executorch.py",
}


@dataclass
class ProgramStage:
    """A traced program or a decomposed graph: what the next stage takes.

    Attributes:
        stage: asset name, `traced_program` or `decomposed_graph`.
        program: holds the caller's own parameters by reference, never copies.
    """

    stage: str
    backend: str
    model: str
    program: ExportedProgram
    signature: Signature
    seen: Observation = field(default_factory=Observation)
    details: dict[str, Any] = field(default_factory=dict)

    def operators(self) -> dict[str, int]:
        """Histogram of the call targets of the graph and its subgraphs, most frequent first."""
        return operator_histogram(self.program)


def operator_histogram(program: ExportedProgram) -> dict[str, int]:
    """How often each operator is called in a program's graph and subgraphs, most frequent first."""
    counts: Counter[str] = Counter()
    for module in program.graph_module.modules():
        graph = getattr(module, "graph", None)
        if graph is not None:
            counts.update(target_name(node) for node in graph.nodes if node.op == "call_function")
    return dict(counts.most_common())


def with_own_graph(program: ExportedProgram) -> ExportedProgram:
    """A program with a graph of its own and the same weights, so that fixing its nodes leaves the stage before it alone."""
    graph = copy.deepcopy(program.graph)
    module = torch.fx.GraphModule(program.graph_module, graph)
    module.meta.update(program.graph_module.meta)
    return program._update(module, program.graph_signature, state_dict=program.state_dict, constants=program.constants)


def model_name(model: nn.Module) -> str:
    """The class name, as reports and errors show it."""
    return type(model).__name__


@contextlib.contextmanager
def running(stage: str, backend: str, model: str) -> Iterator[Observation]:
    """Observe the workarounds inside the block, and tell a failure as this stage's.

    Raises:
        ExportError: for whatever the exporting libraries raise; zooport's own errors pass through.
    """
    with observe() as seen:
        try:
            yield seen
        except (ZooportError, OSError):
            raise  # a full disk is no fault of the stage
        # torch, onnxscript and executorch raise every kind of exception at a graph they can't take: each is this stage's outcome
        except Exception as error:
            root = root_cause(error)
            raise ExportError(
                first_line(root),
                backend=backend,
                stage=stage,
                model=model,
                cause_type=type(root).__name__,
                active_workarounds=sorted(seen.installed),
                next=_NEXT.get(stage, ""),
            ) from error


def root_cause(error: BaseException) -> BaseException:
    """The exception at the end of the chain of explicit causes."""
    while error.__cause__ is not None:
        error = error.__cause__
    return error


_FROZEN = re.compile(r"L\['(\w+)'\](\S*?)\.size\(\)\[(\d+)\] as dynamic but your code specialized it to be a constant \((\d+)\)")


def first_line(error: BaseException, limit: int = 300) -> str:
    """The first line of an exception's message that says something, cut to `limit` characters; of a frozen size, which axis it is."""
    frozen = dict.fromkeys(f"{name}{rest}[{axis}] at {size}" for name, rest, axis, size in _FROZEN.findall(str(error)))
    if frozen:
        return f"the model freezes an axis that is to vary: {', '.join(frozen)}"[:limit]
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return (lines[0] if lines else type(error).__name__)[:limit]
