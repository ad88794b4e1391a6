"""DynamoExporter: a model to an `ExportedProgram`, in the stages D1 to D5 of the specification.

    1. forward signature patch   `model.forward` gets a flat signature of the inputs given
    2. model patches             untraceable model methods, swapped while tracing
    3. pytree registration       caches flatten and rebuild
    4. dynamic shapes            `Dim.AUTO` everywhere, or what the config says
    5. state cleanup             what forward set on the model is taken back

The other exporters trace through this one and inherit its patches.
"""

import contextlib
import inspect
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import sympy
import torch
from torch import nn
from torch.export import ExportedProgram
from torch.export.graph_signature import ConstantArgument, InputKind, OutputKind
from torch.utils import _pytree as pytree

from exporters import pytrees
from exporters.configs import DynamoConfig
from exporters.errors import UsageError
from exporters.exported import Exported, ExportedDynamo

# importing them registers their workarounds
from exporters.models import (  # noqa: F401
    attention,
    canine,
    csm,
    experts,
    gamma,
    gemma4,
    llava,
    longformer,
    mamba,
    muse,
    musicgen,
    normalization,
    pooling,
    time_series,
    videomae,
    vision,
    vision_grids,
)
from exporters.shapes import all_auto
from exporters.signature import Signature, TensorInfo, distinct_outputs, leaf_names, split_constants
from exporters.stages import ProgramStage, model_name, running
from exporters.utils import apply_fx_node_fixes, apply_fx_program_fixes, apply_patches, register_fx_program_fix, register_patch


class DynamoExporter:
    """Traces any `nn.Module` with keyword inputs; transformers models, their caches and outputs above all."""

    backend = "dynamo"

    def export(self, model: nn.Module, inputs: Mapping[str, Any], *, config: DynamoConfig | None = None) -> Exported:
        """Trace and decompose; the model and the inputs are afterwards what they were before.

        Args:
            inputs: keyword arguments for `model.forward`: tensors, caches, `ModelOutput`s, plain values. Plain values are
                baked in. An axis that is to be dynamic needs a sample size above 1.

        Raises:
            ExportError: a stage failed.
        """
        traced = self.trace(model, inputs, config=config or DynamoConfig())
        return ExportedDynamo([traced, self.decompose(traced)])

    def trace(self, model: nn.Module, inputs: Mapping[str, Any], *, config: DynamoConfig, backend: str = "dynamo") -> ProgramStage:
        """The traced program, with the patches of `backend` and of all that it inherits installed while tracing."""
        name = model_name(model)
        pytrees.register_all()
        tensors, constants = split_constants(inputs)
        if not tensors:
            raise UsageError(f"{name}: no input holds a tensor", next="pass the keyword arguments of forward, tensors among them")
        with running("traced_program", backend, name) as seen:
            dynamic_shapes = get_dynamic_shapes(tensors, config)
            with (
                torch.no_grad(),
                apply_patches(backend),
                preserved_state(model),
                flat_forward_signature(model, tensors, constants),
            ):
                program = torch.export.export(model, args=(), kwargs=tensors, dynamic_shapes=dynamic_shapes, strict=config.strict)
            program = apply_fx_program_fixes("dynamo", program)
            apply_fx_node_fixes("dynamo", program.graph_module)
            signature = _signature_of(program, tensors, constants)
        return ProgramStage("traced_program", backend, name, program, signature, seen)

    def decompose(self, traced: ProgramStage) -> ProgramStage:
        """The program in core ATen operators, by the default decompositions of `torch.export`."""
        with running("decomposed_graph", self.backend, traced.model) as seen:
            program = traced.program.run_decompositions()
        return ProgramStage("decomposed_graph", self.backend, traced.model, program, traced.signature, seen)


# ── Stage 1: Forward signature patch ──────────────────────────────────────────
# `torch.export` reads `model.forward`'s signature. Most transformers models end theirs in `**kwargs`, which it would bundle
# into one tuple argument; constants are bound here too, so that the graph's inputs are the tensors and nothing else.


@contextlib.contextmanager
def flat_forward_signature(model: nn.Module, tensors: Mapping[str, Any], constants: Mapping[str, Any]) -> Iterator[None]:
    """Give `model.forward` one positional-or-keyword parameter for each tensor input, and the constants bound, for the block."""
    original = model.forward

    def forward(*args: Any, **kwargs: Any) -> Any:
        return original(**dict(zip(tensors, args, strict=False)), **kwargs, **constants)

    parameters = [inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD) for name in tensors]
    forward.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    instance_had_one = "forward" in vars(model)
    model.forward = forward
    try:
        yield
    finally:
        if instance_had_one:
            model.forward = original
        else:
            del model.forward


# ── Stage 2: Model patches ────────────────────────────────────────────────────
# Untraceable methods of models that are someone else's, swapped while tracing. Every exporter inherits them.


@register_patch("dynamo", "transformers.models.nllb_moe.modeling_nllb_moe.NllbMoeTop2Router._cast_classifier")
def _patch_cast_classifier(original: Callable[[nn.Module], None]) -> Callable[[nn.Module], None]:
    """Leave the router's classifier alone where its weights have the router's dtype already.

    Why: `Module.to` assigns a module attribute during forward, and the parameters it makes are unknown to `torch.export`.
    Cost: none; a classifier of another dtype is still cast, and still can't be traced: convert the model before its export.
    Upstream: not filed.
    Seen in: NllbMoeForConditionalGeneration
    """

    def patch(self: Any) -> None:
        if any(parameter.dtype != self.dtype for parameter in self.classifier.parameters()):
            original(self)

    return patch


# ── Stage 3: Pytree registration ──────────────────────────────────────────────
# In exporters/pytrees.py: a walk over the attributes of every cache class. A type that it can't reach gets a branch in
# `_flatten_to_context` and `_unflatten_from_context` there.


def _signature_of(program: ExportedProgram, tensors: Mapping[str, Any], constants: Mapping[str, Any]) -> Signature:
    """Names, dtypes and symbolic shapes of what goes in and comes out, and the specs to rebuild it."""
    input_spec = pytree.tree_structure(dict(tensors))
    output_spec = program.call_spec.out_spec
    values = {node.name: node.meta.get("val") for node in program.graph.nodes}
    signature = program.graph_signature
    in_values = [_value(spec.arg, values) for spec in signature.input_specs if spec.kind is InputKind.USER_INPUT]
    out_values = [_value(spec.arg, values) for spec in signature.output_specs if spec.kind is OutputKind.USER_OUTPUT]
    input_names = leaf_names(input_spec)
    output_names = distinct_outputs(leaf_names(output_spec), input_names)
    return Signature(
        arguments=tuple(tensors),
        constants=dict(constants),
        inputs=tuple(_info(name, value) for name, value in zip(input_names, in_values, strict=True)),
        outputs=tuple(_info(name, value) for name, value in zip(output_names, out_values, strict=True)),
        input_spec=input_spec,
        output_spec=output_spec,
    )


def _value(argument: Any, values: Mapping[str, Any]) -> Any:
    """The fake tensor or symbol of a graph argument, or the value of a constant one."""
    return argument.value if isinstance(argument, ConstantArgument) else values[argument.name]


def _info(name: str, value: Any) -> TensorInfo:
    if isinstance(value, torch.Tensor):
        return TensorInfo(
            name, str(value.dtype).removeprefix("torch."), tuple(size if isinstance(size, int) else str(size) for size in value.shape)
        )
    if isinstance(value, torch.SymInt | torch.SymFloat | torch.SymBool):
        return TensorInfo(name, {torch.SymInt: "int64", torch.SymFloat: "float64", torch.SymBool: "bool"}[type(value)], ())
    return TensorInfo(name, "constant", (), value)


# ── Stage 4: Dynamic shapes ───────────────────────────────────────────────────


def get_dynamic_shapes(tensors: Mapping[str, Any], config: DynamoConfig) -> dict[str, Any] | None:
    """What `torch.export` takes as `dynamic_shapes`: the config's own, `Dim.AUTO` on every axis, or None for static.

    Raises:
        UsageError: the config names an input that isn't given.
    """
    if config.dynamic_shapes is not None:
        unknown = sorted(set(config.dynamic_shapes) - set(tensors))
        if unknown:
            raise UsageError(f"dynamic_shapes names {', '.join(unknown)}", next=f"the inputs that hold tensors are {', '.join(tensors)}")
        return {name: config.dynamic_shapes.get(name) for name in tensors}
    if not config.dynamic:
        return None
    return all_auto(tensors)


@register_fx_program_fix("dynamo")
def _fix_range_of_expression(program: ExportedProgram) -> ExportedProgram | None:
    """Drop the ranges of derived sizes, which follow from those of the symbols in them.

    Why: an axis that is another one plus something (a mask one longer than what it masks) has the range of `s87 + 1` beside that of
        `s87`. A program that was saved and loaded then fails to decompose: `expected sympy.Symbol`.
    Upstream: not filed.
    Seen in: FlavaMultimodalModel
    """
    derived = [key for key in program.range_constraints if not isinstance(key, sympy.Symbol)]
    for key in derived:
        del program.range_constraints[key]
    return program if derived else None


# ── Stage 5: State cleanup ────────────────────────────────────────────────────

# Attributes in which a model keeps what one call computed for the next: unset while tracing, so that an eager call before
# the export can't leak into the graph.
_STATEFUL_CACHE_ATTRS = (
    "rope_deltas",  # Qwen2-VL and its kin
    "cached_rotary_positional_embedding",  # Wav2Vec2-Bert and -Conformer, SeamlessM4T, CLVP
    "cached_sequence_length",  # the same
)


@contextlib.contextmanager
def preserved_state(model: nn.Module) -> Iterator[None]:
    """Trace in eval mode with stateful attributes unset; afterwards every module has exactly the attributes it had.

    Tracing leaves fake tensors in whatever forward assigns, and transformers installs hooks on the first call: all attributes
    are put back by identity, and the contents of those that are dicts (parameters, buffers, submodules, hooks), not only the known ones.
    """
    modules = list(model.modules())
    before = [
        (module, dict(vars(module)), [(table, dict(table)) for table in vars(module).values() if isinstance(table, dict)])
        for module in modules
    ]
    for module in modules:
        module.training = False
        for name in _STATEFUL_CACHE_ATTRS:
            if vars(module).get(name) is not None:
                setattr(module, name, None)
    try:
        yield
    finally:
        for module, attributes, tables in before:
            vars(module).clear()
            vars(module).update(attributes)
            for table, content in tables:
                table.clear()
                table.update(content)
