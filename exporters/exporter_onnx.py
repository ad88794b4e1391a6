"""OnnxExporter: a model to ONNX, in the stages O1 to O5 of the specification around the parts of `torch.onnx.export`.

    trace      1. torch patches      ops that the ONNX exporter can't translate as they are, swapped while tracing
    decompose  2. ONNX patches       the node fixes once more, on what the decomposition brought in
               3. FX node fixes      graph nodes that can't be lowered
    lower      4. ONNX translations  our own lowering of an aten op whose default is missing or wrong
    fix_ir     5. ONNX IR fixes      the finished program, rewritten around bugs of ONNX Runtime

A program is decomposed once. Weights are inputs of the graph until the last stage, so that no pass can fold or untie them;
there they become initializers that point into a safetensors file.
"""

from collections.abc import Callable, Mapping
from typing import Any

import onnx_ir as ir
import torch
from onnxscript import opset18 as op
from torch import nn

from exporters import onnx_pieces
from exporters.configs import NATIVE_OPSET, OnnxConfig
from exporters.errors import ExportError
from exporters.exported_onnx import ExportedOnnx
from exporters.exporter_dynamo import DynamoExporter
from exporters.onnx_optimize import optimize
from exporters.onnx_stage import OnnxStage
from exporters.stages import ProgramStage, operator_histogram, running
from exporters.utils import REGISTRY, Registration, apply_fx_node_fixes, apply_fx_program_fixes, apply_patches, current_observation

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
            program = onnx_pieces.copy_graph(traced.program)
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
            for target, count in operator_histogram(decomposed.program).items():
                if target in _ONNX_TRANSLATION_TABLE:
                    seen.used[f"onnx:{_ONNX_TRANSLATION_TABLE[target].__name__}"] += count
        return OnnxStage("lowered_onnx", decomposed.model, model, decomposed.signature, seen)

    def fix_ir(self, lowered: OnnxStage, *, config: OnnxConfig | None = None) -> OnnxStage:
        """Optimize, give inputs and outputs their names, convert to an older opset if asked, and apply the IR fixes.

        Raises:
            ExportError: the opset that was asked for can't be had for this graph.
        """
        config = config or OnnxConfig()
        with running("ir_fixed_model", "onnx", lowered.model) as seen:
            model = lowered.model_ir.clone()
            if config.optimize:
                optimize(model)
            onnx_pieces.rename_inputs_and_outputs(model, lowered.signature)
            if config.opset < NATIVE_OPSET:
                model = onnx_pieces.convert_opset(model, config.opset)
            for fix in _IR_FIXES:
                changed = fix(model)
                if changed:
                    current_observation().changed[f"onnx:{fix.__name__}"] += changed
            version = model.opset_imports.get("", 0)
            if version != config.opset:
                raise ExportError(
                    f"opset {config.opset} was asked for, the graph needs {version}",
                    backend="onnx",
                    stage="ir_fixed_model",
                    model=lowered.model,
                    next=f"ask for opset {version}, or leave it at the default",
                )
        return OnnxStage("ir_fixed_model", lowered.model, model, lowered.signature, seen)


def _native_opset(config: OnnxConfig) -> int:
    return max(config.opset, NATIVE_OPSET)


# ── Stage 1: Torch patches ────────────────────────────────────────────────────


# ── Stage 3: FX node fixes ────────────────────────────────────────────────────


# ── Stage 4: ONNX translations ────────────────────────────────────────────────


def _aten_grouped_mm(
    self: ir.Value, mat2: ir.Value, offs: ir.Value | None = None, bias: ir.Value | None = None, out_dtype: int | None = None
) -> ir.Value:
    """Multiply each group of rows with its own matrix: one slice and one `MatMul` a group, joined again.

    Rows behind the last offset are zero, as transformers' CPU fallback leaves them (torch leaves them unset).

    Why: torchlib translates `_grouped_mm` without offsets only; `transformers::grouped_mm_fallback` is a custom operator that it doesn't know.
    Cost: three nodes a group; no row is multiplied with a matrix that isn't its own.
    Upstream: not filed.
    Seen in: MixtralForCausalLM
    Operators: Slice, MatMul, Concat
    """
    if offs is None or len(self.shape) != 2 or len(mat2.shape) != 3 or bias is not None:  # type: ignore[arg-type]
        raise NotImplementedError("a grouped_mm other than (rows, k) x (groups, k, n) with offsets and without bias has no translation")
    groups = mat2.shape[0]  # type: ignore[index]
    if not isinstance(groups, int):
        raise NotImplementedError("a grouped_mm over a dynamic number of groups has no translation")
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
    product = op.Concat(*products, axis=0)
    return product if out_dtype in (None, -1) else op.Cast(product, to=out_dtype)


# by the names of the operators: a custom one exists only once the module that defines it is imported
_ONNX_TRANSLATION_TABLE: dict[str, Callable[..., Any]] = {
    "aten._grouped_mm.default": _aten_grouped_mm,
    "transformers.grouped_mm_fallback.default": _aten_grouped_mm,
}


def _custom_translations() -> dict[Any, Callable[..., Any]]:
    """The table by operator, without the custom ones that nobody has defined yet: no graph can hold them."""
    found = {}
    for name, function in _ONNX_TRANSLATION_TABLE.items():
        namespace, operator, overload = name.split(".")
        packet = getattr(getattr(torch.ops, namespace), operator, None)
        if packet is not None:
            found[getattr(packet, overload)] = function
    return found


# ── Stage 5: ONNX IR fixes ────────────────────────────────────────────────────

_IR_FIXES: tuple[IrFix, ...] = ()

for _function in dict.fromkeys(_ONNX_TRANSLATION_TABLE.values()):
    _targets = tuple(name for name, function in _ONNX_TRANSLATION_TABLE.items() if function is _function)
    REGISTRY.add(Registration("translation", "onnx", _function, _targets))
for _fix in _IR_FIXES:
    REGISTRY.add(Registration("ir_fix", "onnx", _fix))
