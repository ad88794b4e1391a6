"""Decomposition for ExecuTorch: into core ATen, less what the target's partitioners want whole, and not three times over."""

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import ConstantArgument, ExportGraphSignature, InputKind, OutputKind
from torch.utils import _pytree as pytree

from exporters.stages import with_own_graph

_SIZES = {
    torch.ops.aten.sym_size.int, torch.ops.aten.sym_stride.int, torch.ops.aten.sym_numel.default, torch.ops.aten.sym_storage_offset.default,
}  # fmt: skip


def decompose(program: ExportedProgram, partitioners: Sequence[Any]) -> ExportedProgram:
    """Decompose into what ExecuTorch's edge dialect is made of, keeping the operators that a partitioner takes whole.

    In one pass: functionalizing first, as `to_edge_transform_and_lower` does, would settle every `reshape` by the layout that the fused
    attention has, which its decomposition in a second pass doesn't.
    """
    kept = {operator for partitioner in partitioners for operator in partitioner.ops_to_not_decompose(program)[0]}
    table = default_table()
    return program.run_decompositions({operator: rule for operator, rule in table.items() if operator not in kept})


def default_table() -> dict[Any, Callable[..., Any]]:
    """ExecuTorch's own table: core ATen and what edge adds to it."""
    from executorch.exir.tracer import _default_decomposition_table

    return dict(_default_decomposition_table())


def without_constant_leaves(program: ExportedProgram) -> ExportedProgram | None:
    """The program without the user inputs and outputs that are constants; None if it has none."""
    signature = program.graph_signature
    dropped = {
        spec.arg.name for spec in signature.input_specs if spec.kind is InputKind.USER_INPUT and isinstance(spec.arg, ConstantArgument)
    }
    kept = [
        index
        for index, spec in enumerate(signature.output_specs)
        if not (spec.kind is OutputKind.USER_OUTPUT and isinstance(spec.arg, ConstantArgument))
    ]
    return _with_leaves(program, dropped, kept)


def without_input_mutations(program: ExportedProgram) -> ExportedProgram | None:
    """The program without the outputs that write an input's new value back; None if it has none."""
    specs = program.graph_signature.output_specs
    return _with_leaves(program, set(), [index for index, spec in enumerate(specs) if spec.kind is not OutputKind.USER_INPUT_MUTATION])


def _with_leaves(program: ExportedProgram, dropped: Set[str], kept: Sequence[int]) -> ExportedProgram | None:
    """The program without the inputs called `dropped`, and with the outputs at the indices `kept`; it takes and returns flat tuples.

    None if that would change nothing.
    """
    signature = program.graph_signature
    if not dropped and len(kept) == len(signature.output_specs):
        return None
    program = with_own_graph(program)
    graph = program.graph
    output = graph.output_node()
    output.args = (tuple(output.args[0][index] for index in kept),)
    for node in graph.find_nodes(op="placeholder"):
        if node.name in dropped:
            graph.erase_node(node)
    program.graph_module.recompile()
    inputs = [spec for spec in signature.input_specs if getattr(spec.arg, "name", "") not in dropped]
    outputs = [signature.output_specs[index] for index in kept]
    return ExportedProgram(
        root=program.graph_module,
        graph=graph,
        graph_signature=ExportGraphSignature(input_specs=inputs, output_specs=outputs),
        state_dict=program.state_dict,
        range_constraints=program.range_constraints,
        module_call_graph=_flat_call(program.module_call_graph, inputs, outputs),
        constants=program.constants,
        verifiers=[program.verifier],
    )


def _flat_call(calls: list[Any], inputs: list[Any], outputs: list[Any]) -> list[Any]:
    """The module call graph with an outermost call that takes and returns flat tuples."""
    given = sum(spec.kind is InputKind.USER_INPUT for spec in inputs)
    returned = sum(spec.kind is OutputKind.USER_OUTPUT for spec in outputs)
    flat = dataclasses.replace(
        calls[0].signature,
        inputs=[],
        outputs=[],
        in_spec=pytree.tree_structure((tuple(range(given)), {})),
        out_spec=pytree.tree_structure(tuple(range(returned))),
        forward_arg_names=None,
    )
    return [dataclasses.replace(calls[0], signature=flat), *calls[1:]]


def is_decomposed(program: ExportedProgram, table: Iterable[Any]) -> bool:
    """Whether running the decompositions of `table` on `program` would change no operator of it.

    True if it is functional already (nothing mutates, no training dialect) and calls nothing that `table` names. Tables name `sym_size` and
    its kin too, which every decomposition leaves as they are.
    """
    named = table if isinstance(table, Mapping) else set(table)
    for module in program.graph_module.modules():
        graph = getattr(module, "graph", None)
        if graph is None:
            continue
        for node in graph.nodes:
            if node.op != "call_function":
                continue
            target = node.target
            if isinstance(target, torch._ops.HigherOrderOperator):
                continue
            if isinstance(target, torch._ops.OpOverload) and (target._schema.is_mutable or (target in named and target not in _SIZES)):
                return False
    return program.dialect != "TRAINING"
