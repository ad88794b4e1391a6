"""ExecuTorch's lowering, step by step: the edge program before partitioning, and the `.pte` with more outputs than it was asked for."""

import dataclasses
from collections.abc import Collection, Iterable, Sequence
from functools import cached_property
from operator import getitem
from pathlib import Path
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import ExportGraphSignature, OutputKind, OutputSpec, TensorArgument
from torch.fx import Node
from torch.utils import _pytree as pytree

from exporters import runtimes
from exporters.drift_programs import Record, Runnable, module_path
from exporters.drift_values import INPUT, Value
from exporters.executorch_stage import operator_name
from exporters.exporter_executorch import target_of
from exporters.stages import ProgramStage, with_own_graph
from exporters.utils import apply_patches


class Lowering:
    """The steps of `ExecutorchExporter.lower`, which `to_edge_transform_and_lower` hides, for one decomposed graph."""

    def __init__(self, decomposed: ProgramStage) -> None:
        self._decomposed = decomposed
        self._backend = decomposed.backend

    @cached_property
    def edge(self) -> ExportedProgram:
        """The program in edge dialect, as partitioners are given it."""
        program: ExportedProgram = self._manager().exported_program()
        return program

    def _manager(self) -> Any:
        # there is no public way to stop between the edge dialect and the partitioners
        from executorch.exir import EdgeCompileConfig
        from executorch.exir.program._program import _gen_edge_manager_for_partitioners

        with torch.no_grad(), apply_patches(self._backend):
            return _gen_edge_manager_for_partitioners(
                {"forward": self._partitioners()},
                {"forward": with_own_graph(self._decomposed.program)},
                EdgeCompileConfig(_check_ir_validity=False),
                None,
            )

    def _partitioners(self) -> list[Any]:
        return target_of(self._backend.partition(".")[2]).partitioners()

    def partitioned(self, exposed: Sequence[str] = ()) -> Any:
        """ExecuTorch's manager of the program after partitioning, the edge nodes called `exposed` among its outputs."""
        manager = _with_outputs(self._manager(), exposed)
        with torch.no_grad(), apply_patches(self._backend):
            for partitioner in self._partitioners():
                manager = manager.to_backend({"forward": partitioner})
        return manager

    def run(self, manager: Any, exposed: Sequence[str], file: Path, leaves: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Emit a partitioned program that also returns the nodes called `exposed` into `file`, and run that."""
        from executorch.exir import ExecutorchBackendConfig

        with torch.no_grad(), apply_patches(self._backend):
            emitted = _with_outputs(manager, exposed).to_executorch(ExecutorchBackendConfig())
            with file.open("wb") as stream:
                emitted.write_to_file(stream)
        return runtimes.ExecutorchRuntime(file).run(leaves)


def _with_outputs(manager: Any, names: Sequence[str]) -> Any:
    """The manager of the same program with more outputs; the manager itself if there are none to add."""
    from executorch.exir import EdgeProgramManager

    if not names:
        return manager
    return EdgeProgramManager({"forward": with_outputs(manager.exported_program(), names)}, None, manager.compile_config)


def with_outputs(program: ExportedProgram, names: Iterable[str]) -> ExportedProgram:
    """The program with the nodes called `names` as outputs behind its own; it returns a flat tuple."""
    program = with_own_graph(program)
    nodes = {node.name: node for node in program.graph.nodes}
    added = [nodes[name] for name in names]
    output = program.graph.output_node()
    output.args = ((*output.args[0], *added),)
    program.graph_module.recompile()
    signature = program.graph_signature
    specs = [*signature.output_specs, *(OutputSpec(OutputKind.USER_OUTPUT, TensorArgument(node.name), None) for node in added)]
    outermost, *calls = program.module_call_graph
    returned = sum(spec.kind is OutputKind.USER_OUTPUT for spec in specs)
    called = dataclasses.replace(outermost.signature, outputs=[], out_spec=pytree.tree_structure(tuple(range(returned))))
    return ExportedProgram(
        root=program.graph_module,
        graph=program.graph,
        graph_signature=ExportGraphSignature(input_specs=list(signature.input_specs), output_specs=specs),
        state_dict=program.state_dict,
        range_constraints=program.range_constraints,
        module_call_graph=[dataclasses.replace(outermost, signature=called), *calls],
        constants=program.constants,
        verifiers=[program.verifier],
    )


class Pte(Runnable):
    """A `.pte` on the ExecuTorch runtime: what kernels return and what delegates return is seen, not what is inside a delegate.

    Args:
        artifact: the saved `.pte`.
        scratch: an empty folder.
    """

    fineness = "what one kernel or one delegate returns"

    def __init__(self, artifact: Path, lowering: Lowering, scratch: Path) -> None:
        self._artifact = artifact
        self._lowering = lowering
        self._scratch = scratch

    def run(self, leaves: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        return runtimes.ExecutorchRuntime(self._artifact).run(leaves)

    def visit(self, leaves: Sequence[torch.Tensor], record: Record) -> list[str]:
        """Emit the partitioned program again, with every value at its top level as an output: no partition changes by that."""
        manager = self._partitioned
        program = manager.exported_program()
        own = [spec.arg.name for spec in program.graph_signature.output_specs]
        exposed = [node.name for node in program.graph.nodes if _is_computed(node) and node.name not in own]
        outputs = self._lowering.run(manager, exposed, self._scratch / "exposed.pte", leaves)
        values = dict(zip([*own, *exposed], outputs, strict=True))
        for name, leaf in zip(program.graph_signature.user_inputs, leaves, strict=True):
            record(Value(str(name), INPUT, (), leaf))
        for node in program.graph.nodes:
            if node.op == "call_function" and node.name in values:
                record(_value(node, values[node.name], _operator(node, program)))
        return own

    def closer(self, name: str) -> "Runnable | None":
        program = self._partitioned.exported_program()
        lowered = _delegate_of(next(node for node in program.graph.nodes if node.name == name), program)
        if lowered is None:
            return None
        return _Inside(self._lowering, {node.name for node in lowered.original_module.graph.nodes}, self._scratch)

    @cached_property
    def _partitioned(self) -> Any:
        return self._lowering.partitioned()


class _Inside(Runnable):
    """The edge nodes called `names`, all in one delegate, lowered again as outputs of the program: they stay delegated, but not fused."""

    follows_names = True
    fineness = "one node, its delegate lowered again with every value inside as an output"

    def __init__(self, lowering: Lowering, names: Collection[str], scratch: Path) -> None:
        self._lowering = lowering
        self._names = names
        self._scratch = scratch

    def visit(self, leaves: Sequence[torch.Tensor], record: Record) -> list[str]:
        nodes = [node for node in self._lowering.edge.graph.nodes if node.name in self._names and _is_computed(node)]
        manager = self._lowering.partitioned([node.name for node in nodes])
        outputs = self._lowering.run(manager, (), self._scratch / "inside.pte", leaves)
        for node, tensor in zip(nodes, outputs[len(outputs) - len(nodes) :], strict=True):
            record(_value(node, tensor, operator_name(_call_of(node))))
        return []


def _value(node: Node, tensor: torch.Tensor, operator: str) -> Value:
    inputs = tuple(dict.fromkeys(source.name for source in _call_of(node).all_input_nodes))
    return Value(node.name, operator, inputs, tensor, module_path(node))


def _is_computed(node: Node) -> bool:
    return node.op == "call_function" and isinstance(node.meta.get("val"), torch.Tensor)


def _call_of(node: Node) -> Node:
    """The call that a value is taken out of: itself, unless it is an item of a tuple."""
    return node.all_input_nodes[0] if node.target is getitem else node


def _delegate_of(node: Node, program: ExportedProgram) -> Any:
    from executorch.exir.delegate import executorch_call_delegate

    call = _call_of(node)
    return getattr(program.graph_module, call.all_input_nodes[0].name) if call.target is executorch_call_delegate else None


def _operator(node: Node, program: ExportedProgram) -> str:
    lowered = _delegate_of(node, program)
    if lowered is None:
        return operator_name(_call_of(node))
    inside = [operator_name(each) for each in lowered.original_module.graph.nodes if each.op == "call_function"]
    shown = [name for name in dict.fromkeys(inside) if name != "_operator.getitem"]
    return f"{lowered.backend_id} delegate of {', '.join(shown[:6])}" + f" and {len(shown) - 6} more" * (len(shown) > 6)
