"""Decomposition for ExecuTorch: into core ATen, less what the target's partitioners want whole, and not three times over."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch
from torch.export import ExportedProgram

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
