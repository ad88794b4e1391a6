"""Programs with fewer inputs and outputs: what a target can't take or return is left to the signature, which knows its value."""

import dataclasses
from collections.abc import Sequence, Set
from typing import Any

from torch.export import ExportedProgram
from torch.export.graph_signature import ConstantArgument, ExportGraphSignature, InputKind, OutputKind
from torch.utils import _pytree as pytree

from exporters.stages import with_own_graph


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


def without_number_outputs(program: ExportedProgram) -> ExportedProgram | None:
    """The program without the user outputs that are constants other than `None`; None if it has none."""
    kept = [
        index
        for index, spec in enumerate(program.graph_signature.output_specs)
        if not (spec.kind is OutputKind.USER_OUTPUT and isinstance(spec.arg, ConstantArgument) and spec.arg.value is not None)
    ]
    return _with_leaves(program, set(), kept)


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
