"""OnnxExporter: a model to ONNX, in the stages O1 to O5 of the specification around the parts of `torch.onnx.export`.

    trace      1. torch patches      ops that the ONNX exporter can't translate as they are, swapped while tracing
    decompose  2. ONNX patches       the node fixes once more, on what the decomposition brought in
               3. FX node fixes      graph nodes that can't be lowered
    lower      4. ONNX translations  our own lowering of an aten op whose default is missing or wrong
    fix_ir     5. ONNX IR fixes      the finished program, rewritten around bugs of ONNX Runtime

A program is decomposed once. Weights are inputs of the graph until the last stage, so that no pass can fold or untie them;
there they become initializers that point into a safetensors file.
"""

import math
import operator
from collections.abc import Callable, Mapping
from typing import Any

import onnx_ir as ir
import torch
from onnxscript import opset18 as op
from onnxscript.function_libs.torch_lib.tensor_typing import TFloat, TInt, TTensor
from torch import nn
from torch.export import ExportedProgram
from torch.fx import GraphModule, Node

from exporters import known_issues, onnx_pieces, program_leaves
from exporters.configs import NATIVE_OPSET, OnnxConfig
from exporters.errors import ExportError
from exporters.exported_onnx import ExportedOnnx
from exporters.exporter_dynamo import DynamoExporter
from exporters.onnx_kernels import missing_kernels
from exporters.onnx_optimize import optimize
from exporters.onnx_stage import OnnxStage, ir_operators
from exporters.stages import ProgramStage, operator_histogram, running, with_own_graph
from exporters.utils import (
    REGISTRY,
    Registration,
    apply_fx_node_fixes,
    apply_fx_program_fixes,
    apply_patches,
    register_fx_node_fix,
    register_fx_program_fix,
    selected,
    target_name,
)

IrFix = Callable[[ir.Model], int]


class OnnxExporter(DynamoExporter):
    """Exports any `nn.Module` with keyword inputs to ONNX; each stage is a method that takes the stage before it."""

    backend = "onnx"

    def export(self, model: nn.Module, inputs: Mapping[str, Any], *, config: OnnxConfig | None = None) -> ExportedOnnx:  # type: ignore[override]
        """Trace, decompose, lower and fix; what comes back is called like the model and runs on ONNX Runtime.

        Raises:
            ExportError: a stage failed.
        """
        config = config or OnnxConfig()
        traced = self.trace(model, inputs, config=config)
        decomposed = self.decompose(traced, config=config)
        lowered = self.lower(decomposed, config=config)
        return ExportedOnnx([traced, decomposed, lowered, self.fix_ir(lowered, config=config)], dict(traced.program.state_dict))

    def trace(self, model: nn.Module, inputs: Mapping[str, Any], *, config: OnnxConfig, backend: str = "onnx") -> ProgramStage:  # type: ignore[override]
        """The traced program, with the torch patches of stage 1 installed while tracing."""
        return super().trace(model, inputs, config=config, backend=backend)

    def decompose(self, traced: ProgramStage, *, config: OnnxConfig | None = None) -> ProgramStage:
        """The program in the operators that have an ONNX translation, its nodes fixed before and after."""
        registry = onnx_pieces.registry_for(_native_opset(config or OnnxConfig()), _custom_translations())
        with running("decomposed_graph", "onnx", traced.model) as seen:
            program = with_own_graph(traced.program)
            program = apply_fx_program_fixes("onnx", program)
            apply_fx_node_fixes("onnx", program.graph_module)
            with apply_patches("onnx"):
                program = onnx_pieces.decompose(program, registry)
            # ── Stage 2: ONNX patches ─────────────────────────────────────────
            # decompositions bring in nodes of the kinds that stage 3 repairs: shape guards, aliases
            apply_fx_node_fixes("onnx", program.graph_module)
        return ProgramStage("decomposed_graph", "onnx", traced.model, program, traced.signature, seen)

    def lower(self, decomposed: ProgramStage, *, config: OnnxConfig | None = None) -> OnnxStage:
        """The program translated node by node, unoptimized, its weights as inputs of the graph behind the model's own."""
        registry = onnx_pieces.registry_for(_native_opset(config or OnnxConfig()), _custom_translations())
        with running("lowered_onnx", "onnx", decomposed.model) as seen:
            model = onnx_pieces.translate(decomposed.program, registry, decomposed.signature)
            operators = operator_histogram(decomposed.program)
            seen.reads("translation", ["onnx"], operators)
            for translation in selected("translation", ["onnx"]):
                if uses := sum(operators.get(target, 0) for target in translation.targets):
                    seen.used[translation.name] += uses
        return OnnxStage("lowered_onnx", decomposed.model, model, decomposed.signature, seen)

    def fix_ir(self, lowered: OnnxStage, *, config: OnnxConfig | None = None) -> OnnxStage:
        """Optimize, give inputs and outputs their names, convert to another opset if asked, and apply the IR fixes.

        Raises:
            ExportError: the opset that was asked for can't be had for this graph, or ONNX Runtime has no kernel for a node.
        """
        config = config or OnnxConfig()
        with running("ir_fixed_model", "onnx", lowered.model) as seen:
            model = lowered.model_ir.clone()
            if config.optimize and known_issues.optimizes(lowered.model):
                optimize(model)
            onnx_pieces.rename_inputs_and_outputs(model, lowered.signature)
            if config.opset != model.opset_imports.get("", 0):
                model = onnx_pieces.convert_opset(model, config.opset)
            seen.reads("ir_fix", ["onnx"])
            for fix in selected("ir_fix", ["onnx"]):
                operators = ir_operators(model)
                seen.reads("ir_fix", ["onnx"], operators)
                if not operators.keys().isdisjoint(fix.targets) and (changed := fix.function(model)):
                    seen.changed[fix.name] += changed
            version = model.opset_imports.get("", 0)
            if version != config.opset:
                raise ExportError(
                    f"opset {config.opset} was asked for, the graph needs {version}",
                    backend="onnx",
                    stage="ir_fixed_model",
                    model=lowered.model,
                    next=f"ask for opset {version}, or leave it at the default",
                )
            missing = missing_kernels(model)
            if missing:
                raise ExportError(
                    f"ONNX Runtime has no CPU kernel for {', '.join(missing[:5])}" + f" and {len(missing) - 5} more" * (len(missing) > 5),
                    backend="onnx",
                    stage="ir_fixed_model",
                    model=lowered.model,
                    next="convert the model to float32 before its export",
                )
        return OnnxStage("ir_fixed_model", lowered.model, model, lowered.signature, seen)


def _native_opset(config: OnnxConfig) -> int:
    return max(config.opset, NATIVE_OPSET)


# ── Stage 1: Torch patches ────────────────────────────────────────────────────


# ── Stage 3: FX node fixes ────────────────────────────────────────────────────


@register_fx_program_fix("onnx")
def _fix_number_outputs(program: ExportedProgram) -> ExportedProgram | None:
    """Take outputs that the trace made numbers (a counter in a cache) out of the program; the signature knows them.

    Why: the translation of the outputs asks each for its name: `'int' object has no attribute 'name'`. `None` it knows.
    Upstream: not filed.
    Seen in: DeepseekV4ForCausalLM
    """
    return program_leaves.without_number_outputs(program)


@register_fx_node_fix(
    "onnx", operators=["aten._is_all_true.default", "aten._local_scalar_dense.default", "aten.sym_numel.default", "torch.sym_ite"]
)
def _fix_dead_assertion(graph_module: GraphModule, node: Node) -> bool:
    """Remove what only fed an assertion, once the assertion is gone.

    Why: `aten._is_all_true` and `aten.sym_numel` have no ONNX translation, and an `item` counts as an effect, so nobody else removes a
        dead one.
    Cost: the condition is checked no longer; nothing of a graph in ONNX could.
    Upstream: not filed.
    Seen in: LlavaForConditionalGeneration, Idefics3ForConditionalGeneration, cases/case_14.py (Qwen2-VL's vision tower)
    """
    dead = [node]
    for user in dead:
        # everything downstream must be plain arithmetic on the condition, ending nowhere
        if user.op != "call_function" or (user is not node and user.is_impure() and target_name(user) not in _READS_A_SCALAR):
            return False
        dead.extend(later for later in user.users if later not in dead)
    for later in reversed(list(graph_module.graph.nodes)):
        if later in dead:
            graph_module.graph.erase_node(later)
    return True


_READS_A_SCALAR = {"aten._local_scalar_dense.default", "aten.item.default"}


@register_fx_node_fix("onnx", operators=["aten.split.Tensor"])
def _fix_symbolic_split(graph_module: GraphModule, node: Node) -> bool:
    """Cut with slices where the size of the pieces isn't a number.

    Why: it becomes `SplitToSequence`, on which onnxscript's constant folding stops: `'NoneType' object has no attribute 'ndim'`.
    Upstream: https://github.com/microsoft/onnxscript/issues/2543 is its sibling with a list of sizes; for one size not filed.
    Seen in: cases/case_20.py
    Operators: Slice
    """
    tensor, size, *rest = node.args
    pieces = list(node.users)
    if not isinstance(size, Node) or any(piece.target is not operator.getitem for piece in pieces):
        return False
    dim = rest[0] if rest else node.kwargs.get("dim", 0)
    graph = graph_module.graph
    bounds: list[Any] = [0, size]
    with graph.inserting_before(node):
        for _ in node.meta["val"][1:]:
            last = bounds[-1]
            bound = graph.call_function(operator.add, (last, size))
            bound.meta["val"] = last.meta["val"] + size.meta["val"]
            bounds.append(bound)
    for piece in pieces:
        index = piece.args[1]
        with graph.inserting_before(piece):
            cut = graph.call_function(torch.ops.aten.slice.Tensor, (tensor, dim, bounds[index], bounds[index + 1]))
        cut.meta.update(piece.meta)
        piece.replace_all_uses_with(cut)
        graph.erase_node(piece)
    graph.erase_node(node)
    for bound in reversed(bounds[2:]):
        if not bound.users:
            graph.erase_node(bound)
    return True


# ── Stage 4: ONNX translations ────────────────────────────────────────────────


def _aten_grouped_mm(self: TFloat, mat2: TFloat, offs: TInt | None = None, bias: TFloat | None = None, out_dtype: int = -1) -> TFloat:
    """Multiply each group of rows with its own matrix: one slice and one `MatMul` a group, joined again.

    Rows behind the last offset are zero, as transformers' CPU fallback leaves them (torch leaves them unset).

    Why: torchlib translates `_grouped_mm` without offsets only, and doesn't know the custom `transformers::grouped_mm_fallback`.
    Cost: four nodes a group; no row is multiplied with a matrix that isn't its own.
    Upstream: https://github.com/microsoft/onnxscript/issues/2795, closed with the form without offsets.
    Seen in: MixtralForCausalLM
    Operators: Slice, MatMul, Concat
    """
    if offs is None or len(self.shape) != 2 or len(mat2.shape) != 3 or bias is not None:
        raise NotImplementedError("grouped_mm other than (rows, k) x (groups, k, n) with offsets and without bias")
    groups = mat2.shape[0]
    if not isinstance(groups, int):
        raise NotImplementedError("grouped_mm over a dynamic number of groups")
    dtype = self.dtype
    if dtype == ir.DataType.BFLOAT16:
        # ONNX Runtime has no kernel for it on the CPU; torch accumulates in float32 too
        self, mat2 = (op.Cast(value, to=ir.DataType.FLOAT) for value in (self, mat2))
    ends = op.Cast(offs, to=ir.DataType.INT64)
    products, start = [], op.Constant(value_ints=[0])
    for group in range(groups):
        end = op.Slice(ends, op.Constant(value_ints=[group]), op.Constant(value_ints=[group + 1]))
        rows = op.Slice(self, start, end, op.Constant(value_ints=[0]))
        products.append(op.MatMul(rows, op.Gather(mat2, op.Constant(value_int=group), axis=0)))
        start = end
    rest = op.Sub(op.Shape(self, start=0, end=1), start)
    empty = op.Concat(rest, op.Shape(mat2, start=2, end=3), axis=0)
    products.append(op.Expand(op.CastLike(op.Constant(value_float=0.0), self), empty))
    return op.Cast(op.Concat(*products, axis=0), to=dtype if out_dtype == -1 else out_dtype)


def _aten_scaled_dot_product_attention(
    query: TFloat,
    key: TFloat,
    value: TFloat,
    attn_mask: TTensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> TFloat:
    """Attend as torchlib does, then zero the rows that may attend to nothing.

    Why: such a row is zero in torch; torchlib gives the mean of the values for a boolean mask, NaN for one of -inf, and
        zero for the NaN of a query behind a boolean mask.
    Cost: one `Where` on the output (torchlib has one on the scores); the reduction of a mask that all layers share is done once.
    Upstream: https://github.com/microsoft/onnxscript/pull/2479 meant to mend the boolean case.
    Seen in: cases/case_64.py, every left-padded batch of a decoder
    Operators: ReduceMax, Where
    """
    from onnxscript.function_libs.torch_lib.ops.nn import aten_scaled_dot_product_attention

    if attn_mask is None:
        return aten_scaled_dot_product_attention(query, key, value, None, dropout_p, is_causal, scale, enable_gqa)
    zero, lowest = (op.CastLike(op.Constant(value_float=number), query) for number in (0.0, -math.inf))
    if attn_mask.dtype == ir.DataType.BOOL:
        attn_mask = op.Where(attn_mask, zero, lowest)
    attended = aten_scaled_dot_product_attention(query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa)
    best = op.ReduceMax(attn_mask, op.Constant(value_ints=[-1]), keepdims=1)
    return op.Where(op.Equal(best, lowest), zero, attended)


def _aten_scatter_reduce(self: TTensor, dim: int, index: TInt, src: TTensor, reduce: str, include_self: bool = True) -> TTensor:
    """Divide the sum by the count for `mean`; everything else as torchlib does it.

    Why: torchlib translates `mean` as an assignment, which keeps the last value: wrong without a word.
    Upstream: https://github.com/onnx/onnx/issues/5100 asks for the reduction, https://github.com/pytorch/pytorch/issues/147617 reports it.
    Seen in: cases/case_21.py
    Operators: ScatterElements, Div
    """
    from onnxscript.function_libs.torch_lib.ops.core import aten_scatter_reduce

    if reduce != "mean":
        return aten_scatter_reduce(self, dim, index, src, reduce, include_self)
    scalar, dtype = len(self.shape) == 0, self.dtype
    if dtype in (ir.DataType.FLOAT16, ir.DataType.BFLOAT16):
        # ONNX Runtime adds no 16 bit floats
        self, src = (op.Cast(value, to=ir.DataType.FLOAT) for value in (self, src))
    if scalar:
        line = op.Constant(value_ints=[-1])
        self, index, src = op.Reshape(self, line), op.Reshape(index, line), op.Reshape(src, line)
    one, zero = op.CastLike(op.Constant(value_int=1), self), op.CastLike(op.Constant(value_int=0), self)
    ones, zeros = op.Expand(one, op.Shape(index)), op.Expand(zero, op.Shape(index))
    start = self if include_self else op.ScatterElements(self, index, zeros, axis=dim)
    # torch allows a source larger than the index
    origin = op.Expand(op.Constant(value_ints=[0]), op.Shape(op.Shape(index)))
    total = op.ScatterElements(start, index, op.Slice(src, origin, op.Shape(index)), axis=dim, reduction="add")
    count = op.ScatterElements(op.Expand(one if include_self else zero, op.Shape(self)), index, ones, axis=dim, reduction="add")
    count = op.Max(count, one)
    if dtype.is_floating_point():
        mean = op.Cast(op.Div(total, count), to=dtype)
    else:
        # torch rounds an integer mean down, `Div` towards zero
        mean = op.Div(op.Sub(total, op.Mod(total, count)), count)
    return op.Squeeze(mean) if scalar else mean


def _aten_sort_stable(self: TTensor, stable: bool | None = None, dim: int = -1, descending: bool = False) -> tuple[TTensor, TInt]:
    """Sort with `TopK`, which takes the lower index first among equals: a stable sort.

    Why: torchlib translates `sort` without the argument `stable` only. ONNX Runtime has `TopK` for 32 and 64 bit types.
    Upstream: https://github.com/pytorch/pytorch/issues/95613, https://github.com/microsoft/onnxscript/pull/3053
    Seen in: cases/case_62.py
    Operators: TopK
    """
    if len(self.shape) == 0:
        return op.Identity(self), op.Constant(value_int=0)
    dtype, dim = self.dtype, dim % len(self.shape)
    narrow = dtype not in {ir.DataType.FLOAT, ir.DataType.DOUBLE, ir.DataType.INT32, ir.DataType.INT64}
    if narrow:
        self = op.Cast(self, to=ir.DataType.FLOAT if dtype.is_floating_point() else ir.DataType.INT32)
    length = op.Shape(self, start=dim, end=dim + 1)
    values, indices = op.TopK(self, length, axis=dim, largest=descending, sorted=True)
    return op.Cast(values, to=dtype) if narrow else values, indices


def _aten_cummax(self: TTensor, dim: int) -> tuple[TTensor, TInt]:
    """Take the largest of each prefix, and the last place where it stands: a reduction over a triangle of all pairs of positions.

    Why: neither ONNX nor torchlib has a cumulative maximum.
    Cost: as many numbers as the square of the axis.
    Upstream: https://github.com/pytorch/pytorch/pull/84496 lists it as unsupported.
    Seen in: GroundingDinoForObjectDetection
    Operators: ReduceMax, Trilu
    """
    return _cumulative(self, dim, largest=True)


def _aten_cummin(self: TTensor, dim: int) -> tuple[TTensor, TInt]:
    """Take the smallest of each prefix, and the last place where it stands, as `_aten_cummax` does.

    Why: neither ONNX nor torchlib has a cumulative minimum.
    Cost: as many numbers as the square of the axis.
    Upstream: https://github.com/pytorch/pytorch/pull/84496 lists it as unsupported.
    Seen in: GroundingDinoForObjectDetection
    Operators: ReduceMin, Trilu
    """
    return _cumulative(self, dim, largest=False)


def _cumulative(values: TTensor, dim: int, *, largest: bool) -> tuple[TTensor, TInt]:
    """Extremes of the prefixes along an axis of signed integers, and where they stand."""
    rank, dtype = len(values.shape), values.dtype
    if rank == 0 or dtype not in {ir.DataType.INT64, ir.DataType.INT32}:
        raise NotImplementedError(f"a cumulative extreme of {dtype} with {rank} axes")
    dim %= rank
    # the axis last, and a row for each prefix before it
    last = [axis for axis in range(rank) if axis != dim] + [dim]
    back = [last.index(axis) for axis in range(rank)]
    rows = op.Unsqueeze(op.Transpose(op.Cast(values, to=ir.DataType.INT64), perm=last), op.Constant(value_ints=[-2]))
    length = op.Shape(values, start=dim, end=dim + 1)
    inside = op.Cast(op.Trilu(op.Expand(op.Constant(value_int=1), op.Concat(length, length, axis=0)), upper=0), to=ir.DataType.BOOL)
    outside = op.Constant(value_int=-(2**63) if largest else 2**63 - 1)
    prefixes = op.Where(inside, rows, outside)
    axis = op.Constant(value_ints=[-1])
    extreme = op.ReduceMax(prefixes, axis, keepdims=1) if largest else op.ReduceMin(prefixes, axis, keepdims=1)
    place = op.Range(op.Constant(value_int=0), op.Squeeze(length), op.Constant(value_int=1))
    stands = op.And(op.Equal(rows, extreme), inside)
    index = op.ReduceMax(op.Where(stands, place, op.Constant(value_int=-1)), axis, keepdims=0)
    found = op.Transpose(op.Squeeze(extreme, axis), perm=back)
    return op.Cast(found, to=dtype), op.Transpose(index, perm=back)


# by the names of the operators: a custom one exists only once the module that defines it is imported
_ONNX_TRANSLATION_TABLE: dict[str, Callable[..., Any]] = {
    "aten._grouped_mm.default": _aten_grouped_mm,
    "aten.cummax.default": _aten_cummax,
    "aten.cummin.default": _aten_cummin,
    "aten.scaled_dot_product_attention.default": _aten_scaled_dot_product_attention,
    "aten.scatter_reduce.two": _aten_scatter_reduce,
    "aten.sort.stable": _aten_sort_stable,
    "transformers.grouped_mm_fallback.default": _aten_grouped_mm,
}


def _custom_translations() -> dict[Any, Callable[..., Any]]:
    """The translations by operator, without the custom ones that nobody has defined yet: no graph can hold them."""
    found = {}
    for translation in selected("translation", ["onnx"]):
        for name in translation.targets:
            namespace, packet_name, overload = name.split(".")
            packet = getattr(getattr(torch.ops, namespace), packet_name, None)
            if packet is not None:
                found[getattr(packet, overload)] = translation.function
    return found


# ── Stage 5: ONNX IR fixes ────────────────────────────────────────────────────

# each with the operators that it reads (`TopK`, `com.microsoft::Gelu`): it runs on a graph that has one of them, and on no other
_IR_FIXES: dict[IrFix, tuple[str, ...]] = {}


for _function in dict.fromkeys(_ONNX_TRANSLATION_TABLE.values()):
    _targets = tuple(name for name, function in _ONNX_TRANSLATION_TABLE.items() if function is _function)
    REGISTRY.add(Registration("translation", "onnx", _function, _targets))
for _fix, _operators in _IR_FIXES.items():
    REGISTRY.add(Registration("ir_fix", "onnx", _fix, _operators))
