"""A lowered ExecuTorch program as the last stage hands it on: the `.pte`, and what can be told about it."""

import operator
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from exporters.signature import Signature
from exporters.utils import Observation, target_name

if TYPE_CHECKING:
    from executorch.exir import EdgeProgramManager, ExecutorchProgramManager
    from torch.fx import GraphModule, Node

FILE = "model.pte"


@dataclass
class ExecutorchStage:
    """The `pte` stage: a program with its weights inside.

    Attributes:
        manager: ExecuTorch's own object around the emitted program.
        histogram: how often each operator is called, inside delegates and outside.
        details: `planned_bytes`, `delegates`, `delegated`, `not_delegated` (operator histograms), `methods`, `pte_bytes`.
    """

    stage: str
    backend: str
    model: str
    manager: "ExecutorchProgramManager"
    signature: Signature
    histogram: dict[str, int]
    seen: Observation = field(default_factory=Observation)
    details: dict[str, Any] = field(default_factory=dict)

    def operators(self) -> dict[str, int]:
        """Histogram of all operators, most frequent first, whether a delegate or a kernel runs them."""
        return self.histogram

    def save(self, folder: str | Path) -> Path:
        """Write `model.pte`, piece by piece, and `signature.json` into an existing folder; the path of the first."""
        from exporters import artifacts

        artifacts.save_signature(self.signature, Path(folder), stage=self.stage, backend=self.backend, model=self.model)
        path = Path(folder) / FILE
        with path.open("wb") as file:
            self.manager.write_to_file(file)
        return path


# ── What is told about a program ──────────────────────────────────────────────


def delegation(edge: "EdgeProgramManager") -> tuple[Counter[str], Counter[str], int]:
    """Operators inside delegates, operators left to kernels, and the number of delegates, over all methods."""
    from executorch.exir.delegate import executorch_call_delegate
    from executorch.exir.lowered_backend_module import LoweredBackendModule

    delegated: Counter[str] = Counter()
    left: Counter[str] = Counter()
    delegates = 0
    for method in edge.methods:
        for module in _graph_modules(edge.exported_program(method).graph_module, LoweredBackendModule):
            for node in module.graph.nodes:
                if node.op != "call_function" or node.target is operator.getitem:
                    continue
                if node.target is not executorch_call_delegate:
                    left[operator_name(node)] += 1
                    continue
                delegates += 1
                inside = getattr(module, node.args[0].target).original_module.graph_module
                delegated.update(
                    operator_name(n) for n in inside.graph.nodes if n.op == "call_function" and n.target is not operator.getitem
                )
    return delegated, left, delegates


def _graph_modules(root: "GraphModule", delegate_type: type) -> "list[GraphModule]":
    """`root` and its subgraphs (branches, loop bodies), without what is inside delegates."""
    from torch.fx import GraphModule

    found = [root]
    for child in root.children():
        if isinstance(child, GraphModule) and not isinstance(child, delegate_type):
            found.extend(_graph_modules(child, delegate_type))
    return found


def operator_name(node: "Node") -> str:
    """The name of a node's target without the dialect before it: `aten.add.Tensor`, `sym_size.int`, `_operator.mul`."""
    name: str = getattr(node.target, "__name__", "")
    is_edge_operator = type(node.target).__name__ == "EdgeOpOverload"
    return name if is_edge_operator else target_name(node)


def planned_bytes(manager: "ExecutorchProgramManager") -> dict[str, int]:
    """Bytes of memory that each method plans for at load: all its arenas, without weights and delegates' own memory."""
    return {plan.name: sum(plan.non_const_buffer_sizes) for plan in manager.executorch_program.execution_plan}


def missing_kernels(manager: "ExecutorchProgramManager") -> list[str]:
    """Operators that the program calls and the installed runtime has no kernel for; none can be loaded with one missing."""
    from executorch.runtime import Runtime

    known = Runtime.get().operator_registry.operator_names
    called = {
        f"{op.name}.{op.overload}" if op.overload else op.name
        for plan in manager.executorch_program.execution_plan
        for op in plan.operators
    }
    return sorted(called - known)
