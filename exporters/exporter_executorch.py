"""ExecutorchExporter: a model to a `.pte`, in the stages E1 to E5 of the specification around `to_edge_transform_and_lower`.

    prepare    1. backend preparation   device, dtype and partitioner of the target
    trace      2. torch patches         ops that ExecuTorch or a backend doesn't take, swapped while tracing
    decompose  4. FX program fixes      repairs that need the whole program
               5. FX node fixes         single nodes
    lower      3. ExecuTorch patches    ExecuTorch's internals, swapped until the program is emitted

The patches of stages 2 and 3 are one registry, installed while tracing, while decomposing and until the end of `to_executorch`.
Memory is planned for the largest sizes, so every dynamic axis is bounded when it is traced.
"""

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.export import ExportedProgram
from torch.utils import _pytree as pytree

from exporters import (
    executorch_bounds,
    executorch_decompose,
    executorch_layout,
    executorch_math,
    executorch_passes,
    executorch_scan,
    executorch_stage,
    program_leaves,
)
from exporters.configs import ExecutorchConfig
from exporters.errors import ExportError, MissingBackend, UnknownBackend
from exporters.executorch_stage import ExecutorchStage
from exporters.exported_executorch import ExportedExecutorch
from exporters.exporter_dynamo import DynamoExporter
from exporters.stages import ProgramStage, running, with_own_graph
from exporters.utils import (
    apply_fx_node_fixes,
    apply_fx_program_fixes,
    apply_patches,
    register_fx_node_fix,
    register_fx_program_fix,
    register_patch,
)

FAMILY = "executorch"


class ExecutorchExporter(DynamoExporter):
    """Exports any `nn.Module` with keyword inputs to ExecuTorch; each stage is a method that takes the stage before it."""

    backend = FAMILY

    def export(self, model: nn.Module, inputs: Mapping[str, Any], *, config: ExecutorchConfig | None = None) -> ExportedExecutorch:  # type: ignore[override]
        """Prepare, trace, decompose and lower; what comes back is called like the model and runs on the ExecuTorch runtime.

        Raises:
            ExportError: a stage failed.
            MissingBackend: the backend needs what isn't on this machine.
        """
        config = config or ExecutorchConfig()
        model, inputs = self.prepare(model, inputs, config=config)
        traced = self.trace(model, inputs, config=config)
        decomposed = self.decompose(traced)
        return ExportedExecutorch([traced, decomposed, self.lower(decomposed, config=config)])

    def prepare(
        self, model: nn.Module, inputs: Mapping[str, Any], *, config: ExecutorchConfig | None = None
    ) -> tuple[nn.Module, dict[str, Any]]:
        """The model and its inputs on the target's device and in its dtype; the caller's own objects where they are there already.

        Raises:
            UnknownBackend, MissingBackend: there is no such backend, or not on this machine.
        """
        return target_of((config or ExecutorchConfig()).backend).place(model, inputs)

    def trace(self, model: nn.Module, inputs: Mapping[str, Any], *, config: ExecutorchConfig, backend: str = "") -> ProgramStage:  # type: ignore[override]
        """The traced program, its dynamic axes bounded, with the patches of stages 2 and 3 installed while tracing."""
        traced = super().trace(model, inputs, config=config, backend=backend or f"{FAMILY}.{config.backend}")
        traced.details["bounds"] = executorch_bounds.bound_axes(traced.program, config.max_size)
        return traced

    def decompose(self, traced: ProgramStage) -> ProgramStage:
        """The program in core ATen, less the operators that the target's partitioners take whole, and its fixes applied."""
        backend = traced.backend
        partitioners = target_of(backend.partition(".")[2]).partitioners()
        with running("decomposed_graph", backend, traced.model) as seen, torch.no_grad(), apply_patches(backend):
            program = _fixed(with_own_graph(traced.program), backend)
            program = executorch_decompose.decompose(program, partitioners)
            # what decomposing brings in: outputs for mutations, views
            program = _fixed(program, backend)
        return ProgramStage("decomposed_graph", backend, traced.model, program, traced.signature, seen)

    def lower(self, stage: ProgramStage, *, config: ExecutorchConfig | None = None) -> ExecutorchStage:
        """Delegate, plan memory and emit.

        Args:
            stage: a decomposed graph, or a traced program, which is decomposed on the way.

        Raises:
            ExportError: lowering failed, or the installed runtime lacks a kernel that the program calls.
        """
        from executorch.exir import EdgeCompileConfig, ExecutorchBackendConfig, to_edge_transform_and_lower

        if stage.stage == "traced_program":
            stage = self.decompose(stage)
        backend = stage.backend
        target = target_of(config.backend if config else backend.partition(".")[2])
        with running("pte", backend, stage.model) as seen, torch.no_grad(), apply_patches(backend):
            program = with_own_graph(stage.program)
            # the verifier refuses operators outside core ATen for which there are kernels
            edge = to_edge_transform_and_lower(
                program, partitioner=target.partitioners() or None, compile_config=EdgeCompileConfig(_check_ir_validity=False)
            )
            delegated, left, delegates = executorch_stage.delegation(edge)
            manager = edge.to_executorch(ExecutorchBackendConfig())
            if target.checks_kernels:
                _refuse_missing_kernels(manager, backend, stage.model)
        planned = executorch_stage.planned_bytes(manager)
        details = {
            "planned_bytes": sum(planned.values()),
            "methods": sorted(planned),
            "delegates": delegates,
            "delegated_operators": delegated.total(),
            "not_delegated_operators": left.total(),
            "delegated": dict(delegated.most_common()),
            "not_delegated": dict(left.most_common()),
        }
        return ExecutorchStage("pte", backend, stage.model, manager, stage.signature, dict((delegated + left).most_common()), seen, details)


def _fixed(program: ExportedProgram, backend: str) -> ExportedProgram:
    program = apply_fx_program_fixes(backend, program)
    apply_fx_node_fixes(backend, program.graph_module)
    return program


def _refuse_missing_kernels(manager: Any, backend: str, model: str) -> None:
    missing = executorch_stage.missing_kernels(manager)
    if missing:
        raise ExportError(
            f"the runtime has no kernel for {', '.join(missing)}",
            backend=backend,
            stage="pte",
            model=model,
            cause_type="MissingKernel",
            next="add a patch under 'Stage 2' of exporters/exporter_executorch.py that spells it with operators that have one",
        )


# ── Stage 1: Backend preparation ──────────────────────────────────────────────
# `prepare_for_<name>` says what a target needs; registering one more in `_BACKEND_PREPARE` adds a backend.


@dataclass(frozen=True)
class Target:
    """What a program is lowered for.

    Attributes:
        partitioners: makes the partitioners, new for every program; none where kernels run everything.
        device, dtype: where the model has to be, and in what; None leaves its dtype.
        checks_kernels: whether the runtime installed here is the one that will run the program.
    """

    partitioners: Callable[[], list[Any]]
    device: str = "cpu"
    dtype: torch.dtype | None = None
    checks_kernels: bool = True

    def place(self, model: nn.Module, inputs: Mapping[str, Any]) -> tuple[nn.Module, dict[str, Any]]:
        """The model and the inputs as the target needs them: the caller's own where they are, copies if anything has to change."""
        from exporters import pytrees

        pytrees.register_all()

        def moves(tensor: torch.Tensor) -> bool:
            return tensor.device.type != self.device or (self.dtype not in (None, tensor.dtype) and tensor.is_floating_point())

        def placed(tensor: torch.Tensor) -> torch.Tensor:
            return tensor.to(self.device, self.dtype if tensor.is_floating_point() else None)

        if any(moves(weight) for weight in (*model.parameters(), *model.buffers())):
            model = copy.deepcopy(model).to(self.device, self.dtype)
        given = dict(inputs)
        if any(isinstance(leaf, torch.Tensor) and moves(leaf) for leaf in pytree.tree_leaves(given)):
            given = pytree.tree_map_only(torch.Tensor, placed, given)
        return model, given


def prepare_for_xnnpack() -> Target:
    """XNNPACK on the CPU, and portable kernels for what it doesn't take. Weights keep their dtype."""

    def partitioners() -> list[Any]:
        from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner

        return [XnnpackPartitioner()]

    return Target(partitioners)


def prepare_for_portable() -> Target:
    """Portable kernels alone: nothing is delegated."""
    return Target(list)


def prepare_for_cuda() -> Target:
    """CUDA by AOTInductor, in ExecuTorch's CUDA backend.

    Raises:
        MissingBackend: this machine has no CUDA device, or executorch was built without the backend.
    """
    if not torch.cuda.is_available():
        built = "torch sees no CUDA device" if torch.backends.cuda.is_built() else f"torch {torch.__version__} is built without CUDA"
        raise MissingBackend(f"executorch.cuda: {built}", next="export on a machine with an NVIDIA GPU and a CUDA build of torch")
    try:
        from executorch.backends.cuda.cuda_backend import CudaBackend
        from executorch.backends.cuda.cuda_partitioner import CudaPartitioner
    except ImportError as error:
        raise MissingBackend(f"executorch.cuda: {error}", next="install an executorch that has the CUDA backend") from error

    def partitioners() -> list[Any]:
        return [CudaPartitioner([CudaBackend.generate_method_name_compile_spec("forward")])]

    return Target(partitioners, device="cuda", checks_kernels=False)


_BACKEND_PREPARE: dict[str, Callable[[], Target]] = {
    "xnnpack": prepare_for_xnnpack,
    "portable": prepare_for_portable,
    "cuda": prepare_for_cuda,
}


def target_of(backend: str) -> Target:
    """The target called `backend` (`xnnpack`).

    Raises:
        UnknownBackend: no `prepare_for_<backend>` is registered.
        MissingBackend: what it needs isn't on this machine.
    """
    if backend not in _BACKEND_PREPARE:
        raise UnknownBackend(f"no ExecuTorch backend called {backend!r}", next=f"the backends are {', '.join(_BACKEND_PREPARE)}")
    return _BACKEND_PREPARE[backend]()


# ── Stage 2: Torch patches ────────────────────────────────────────────────────


@register_patch(FAMILY, "transformers.integrations.moe.ExpertsInterface.get_interface")
def _patch_experts(original: Callable[..., Any]) -> Callable[..., Any]:
    """Run every expert on every token, and add up what the router chose.

    Why: the other ways need kernels that ExecuTorch doesn't have (`sort`, `histc`, a grouped matrix multiplication), or copy an expert's
        weights for every token.
    Cost: experts / chosen experts times the arithmetic, all of it in one batched multiplication a layer.
    Upstream: not filed.
    Seen in: MixtralForCausalLM
    """

    def patch(self: Any, experts_implementation: str, default: Callable[..., Any]) -> Callable[..., Any]:
        return dense_experts_forward

    return patch


def dense_experts_forward(module: Any, hidden_states: torch.Tensor, top_k_index: torch.Tensor, top_k_weights: torch.Tensor) -> torch.Tensor:
    """What the experts of a transformers mixture return, with nothing that depends on who was chosen but a mask.

    Args:
        module: an experts module with stacked weights, decorated with transformers' `use_experts_implementation`.
        hidden_states: (tokens, hidden).
        top_k_index: (tokens, choices), integers; one beyond the last expert means none.
        top_k_weights: (tokens, choices).

    Returns:
        (tokens, hidden), in the dtype of `hidden_states`.
    """
    experts = torch.arange(module.num_experts, device=top_k_index.device)
    chosen = top_k_index[..., None] == experts  # (tokens, choices, experts)
    weights = torch.where(chosen, top_k_weights[..., None], 0).sum(1).t()[..., None]  # (experts, tokens, 1)

    def project(values: torch.Tensor, name: str) -> torch.Tensor:
        matrix = getattr(module, name)
        result = torch.bmm(values.to(matrix.dtype), matrix if module.is_transposed else matrix.transpose(1, 2))
        return result + getattr(module, f"{name}_bias")[:, None] if module.has_bias else result

    inner = project(hidden_states[None].expand(module.num_experts, -1, -1), "gate_up_proj" if module.has_gate else "up_proj")
    inner = module._apply_gate(inner) if module.has_gate else module.act_fn(inner)
    outer = project(inner, "down_proj")
    if module.has_post_expert_norm:
        outer = module.post_expert_norm(outer)
    # a token that wasn't routed to an expert gets nothing of it, not even the NaN of an output that overflowed
    outer = torch.where(chosen.any(1).t()[..., None], outer * weights, 0)
    return outer.sum(0).to(hidden_states.dtype)


@register_patch(FAMILY, "torch.conj", "torch.Tensor.conj")
def _patch_conj(original: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    """Conjugate by computing it, instead of by a view that is marked as conjugated.

    Why: there is no kernel for `_conj_copy`, which the view becomes; for `_conj_physical` there is.
    Upstream: not filed; pytorch/executorch#17383 added the other one.
    Seen in: AutoformerForPrediction
    """
    return lambda input: torch.conj_physical(input) if input.is_complex() else original(input)


@register_patch(f"{FAMILY}.xnnpack", "torch.conv3d", "torch.nn.functional.conv3d")
@register_patch(f"{FAMILY}.portable", "torch.conv3d", "torch.nn.functional.conv3d")
def _patch_conv3d(original: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    """Convolve in three dimensions by adding up convolutions in two.

    Why: the kernel of `convolution` takes images and sequences only, and says so when the program runs.
    Cost: a convolution for each place along the first dimension of the kernel: two, where patches of two frames are embedded.
    Upstream: pytorch/executorch#11704, fixed after our pin by pytorch/executorch#19977.
    Seen in: GlmOcrVisionModel
    """

    def patch(
        input: torch.Tensor,
        weight: torch.Tensor,
        bias: torch.Tensor | None = None,
        stride: Any = 1,
        padding: Any = 0,
        dilation: Any = 1,
        groups: int = 1,
    ) -> torch.Tensor:
        if isinstance(padding, str) or input.is_complex():
            return original(input, weight, bias, stride, padding, dilation, groups)
        return executorch_math.conv3d(input, weight, bias, _triple(stride), _triple(padding), _triple(dilation), groups)

    return patch


def _triple(value: Any) -> tuple[int, int, int]:
    first, *rest = [value] if isinstance(value, int) else value
    return (first, *rest) if rest else (first, first, first)


# ── Stage 3: ExecuTorch patches ───────────────────────────────────────────────


@register_patch(
    f"{FAMILY}.xnnpack",
    "executorch.backends.xnnpack.partition.config.generic_node_configs.UnsqueezeCopyConfig.check_constraints",
    "executorch.backends.xnnpack.partition.config.gemm_configs.ConvolutionConfig.check_constraints",
    "executorch.backends.xnnpack.partition.config.node_configs.BatchNormConfig.check_constraints",
)
def _patch_reshape_constraints(original: Callable[..., bool]) -> Callable[..., bool]:
    """Leave to kernels what XNNPACK would need a reshape with two dynamic dimensions for.

    Why: `unsqueeze`, one-dimensional convolutions (which go through one) and batch norms (which become such) end as XNNPACK's static
        reshape, whose visitor raises if more than one dimension is dynamic, after the partitioner has taken them.
    Upstream: not filed.
    Seen in: Wav2Vec2ForCTC, DetrForObjectDetection, GraniteSpeech5ForCTC
    """

    def patch(self: Any, node: torch.fx.Node, program: Any) -> bool:
        return original(self, node, program) and not _reshapes_two_dynamic_dims(node)

    return patch


def _reshapes_two_dynamic_dims(node: torch.fx.Node) -> bool:
    operator = str(node.target)
    given = node.args[0].meta["val"]
    if "batch_norm" in operator:
        tensors = [given] if given.dim() < 4 else []
    elif "convolution" in operator:
        # by the stride, a list of one int a spatial dimension
        tensors = [node.meta["val"], given] if len(node.args[3]) == 1 else []
    else:
        tensors = [node.meta["val"]]
    return any(sum(not isinstance(size, int) for size in tensor.shape) > 1 for tensor in tensors)


@register_patch(f"{FAMILY}.xnnpack", "executorch.backends.xnnpack.partition.config.node_configs.MaxDimConfig.check_constraints")
def _patch_max_constraints(original: Callable[..., bool]) -> Callable[..., bool]:
    """Leave to kernels a maximum that isn't over one of the last two of four axes, the axis kept.

    Why: XNNPACK has it as a pool over one of these, and its visitor raises for any other, after the partitioner has taken it.
    Upstream: not filed.
    Seen in: DeepseekV4ForCausalLM
    """

    def patch(self: Any, node: torch.fx.Node, program: Any) -> bool:
        kept = len(node.args) == 3 and node.args[2] is True
        return kept and node.args[1] in (2, 3) and original(self, node, program)

    return patch


@register_patch(f"{FAMILY}.xnnpack", "executorch.backends.xnnpack.partition.config.generic_node_configs.GeluConfig.check_constraints")
def _patch_gelu_constraints(original: Callable[..., bool]) -> Callable[..., bool]:
    """Leave to kernels a GELU by the hyperbolic tangent.

    Why: XNNPACK's delegate computes the exact one instead, without a word: wrong by up to 5e-4 a time.
    Upstream: pytorch/executorch#22851, after our pin.
    Seen in: MiniCPMV4_7VisionModel
    """

    def patch(self: Any, node: torch.fx.Node, program: Any) -> bool:
        return node.kwargs.get("approximate", "none") == "none" and original(self, node, program)

    return patch


@register_patch(f"{FAMILY}.xnnpack", "executorch.backends.transforms.remove_clone_ops.RemoveCloneOpsTransform._is_input_output_copy")
def _patch_clone_of_output(original: Callable[..., bool]) -> Callable[..., bool]:
    """Keep a copy, where a delegate returns both it and what it copies.

    Why: without the copy the delegate returns one tensor twice, which XNNPACK's serializer takes for an input that is passed through.
    Upstream: pytorch/executorch#19152.
    Seen in: tests/workarounds/two_uses.py, a transpose that is flattened and also summed over
    """

    def patch(self: Any, node: torch.fx.Node) -> bool:
        return original(self, node) or (_is_returned(node) and _is_returned(node.args[0]))

    return patch


def _is_returned(node: Any) -> bool:
    return any(user.op == "output" for user in node.users)


@register_patch(
    FAMILY,
    "executorch.exir.tensor.dim_order_from_stride",
    "executorch.exir.tensor_layout.dim_order_from_stride",
    "executorch.exir.emit._emitter.dim_order_from_stride",
    "executorch.exir.passes.replace_view_copy_with_view_pass.dim_order_from_stride",
)
def _patch_dim_order(original: Callable[..., Any]) -> Callable[..., Any]:
    """Sort strides by which divides which, where one of them is data.

    Why: the original asks so in one direction only; in the other it asks whether a size that is data is less than 1.
    Upstream: not filed; pytorch/executorch#19516 brought it in.
    Seen in: GlmOcrVisionModel
    """

    def patch(stride: Any) -> Any:
        return executorch_layout.dim_order(stride) if executorch_layout.is_data(stride) else original(stride)

    return patch


@register_patch(FAMILY, "executorch.exir.emit._emitter._Emitter._emit_scan")
def _patch_emit_scan(original: Callable[..., Any]) -> Callable[..., Any]:
    """Let the carry and the stacked outputs of a `scan` take the sizes of what is copied into them.

    Why: both are planned, and therefore born, at their largest sizes. The carry is filled with `copy_`, the outputs with `et_copy_index`;
        neither resizes the other axes, so any batch but the largest stops with "invalid argument".
    Upstream: not filed.
    Seen in: MambaForCausalLM
    Operators: scan
    """

    def patch(self: Any, args: Any, subemitter_binding_output_values: Any) -> Any:
        start = len(self.chain.instructions)
        result = original(self, args, subemitter_binding_output_values)
        carries = {value.id for value in subemitter_binding_output_values[: len(args[1])]}
        stacked = {value.id for value in subemitter_binding_output_values[len(args[1]) :]}
        executorch_scan.resize_while_copying(self, start, carries, stacked)
        return result

    return patch


@register_patch(f"{FAMILY}.xnnpack", "executorch.backends.xnnpack._passes.XNNPACKPassManager.__init__")
def _patch_xnnpack_passes(original: Callable[..., None]) -> Callable[..., None]:
    """Run, on the subgraph of a delegate, the passes that can change it.

    Why: seventeen passes retrace and validate every delegate's graph, a third of the time of a lowering, and nearly all find nothing.
    Cost: none; the program is the same, byte for byte.
    Upstream: not filed.
    Seen in: every model
    """

    def patch(self: Any, exported_program: Any, passes: Any = None) -> None:
        original(self, exported_program, passes)
        self.passes = executorch_passes.needed(self.passes, exported_program.graph_module)

    return patch


@register_patch(FAMILY, "torch.export.exported_program.ExportedProgram.run_decompositions")
def _patch_run_decompositions(original: Callable[..., ExportedProgram]) -> Callable[..., ExportedProgram]:
    """Give a program back as it is where there is nothing left to decompose.

    Why: `to_edge_transform_and_lower` decomposes three times, each time retracing the whole graph; what it is given here is decomposed.
    Cost: none; the program is the same, but for how values are numbered inside a delegate.
    Upstream: not filed.
    Seen in: every model
    """

    def patch(self: ExportedProgram, decomp_table: Any = None, *args: Any, **kwargs: Any) -> ExportedProgram:
        if decomp_table is not None and executorch_decompose.is_decomposed(self, decomp_table):
            return self
        return original(self, decomp_table, *args, **kwargs)

    return patch


# ── Stage 4: FX program fixes ─────────────────────────────────────────────────


@register_fx_program_fix(FAMILY)
def _fix_constant_leaves(program: ExportedProgram) -> ExportedProgram | None:
    """Take inputs and outputs that the trace made constants (`None`, a counter in a cache) out of the program.

    Why: a `.pte` hands such an output over as a value between the tensors, and demands such an input, which says nothing that the
        signature doesn't know.
    Upstream: not filed.
    Seen in: LlavaForConditionalGeneration
    """
    return program_leaves.without_constant_leaves(program)


@register_fx_program_fix(FAMILY)
def _fix_mutated_inputs(program: ExportedProgram) -> ExportedProgram | None:
    """Drop the outputs that write an input's new value back: a cache that forward changes in place is returned as well.

    Why: a `.pte` returns them before the model's own outputs, so that every name is given to the wrong tensor.
    Upstream: not filed.
    Seen in: MambaForCausalLM, one step with its state
    """
    return program_leaves.without_input_mutations(program)


# ── Stage 5: FX node fixes ────────────────────────────────────────────────────

# What this family alone needs. That a view of an attention's result is a reshape, every family needs: exporters/models/attention.py.


@register_fx_node_fix(f"{FAMILY}.xnnpack", operators=("aten.max_pool2d.default", "aten.avg_pool2d.default"))
def _fix_pool_arguments(graph_module: torch.fx.GraphModule, node: torch.fx.Node) -> bool:
    """Spell out the kernel and the stride of a pool, one number an axis.

    Why: XNNPACK's partitioner reads both by position and by axis, and raises IndexError where the stride is left out, which means the
        kernel's, or one number stands for both axes.
    Upstream: pytorch/executorch#21488.
    Seen in: tests/workarounds/pool_without_stride.py, `max_pool2d(x, 2)` in any module; PPOCRV5MobileRecModel has it and does without
    """
    kernel: Any = node.args[1]
    stride: Any = node.args[2] if len(node.args) > 2 else []
    spelled = [list(kernel) * (2 // len(kernel)), list(stride or kernel) * (2 // len(stride or kernel))]
    if len(node.args) > 2 and [list(kernel), list(stride)] == spelled:
        return False
    node.args = (node.args[0], *spelled, *node.args[3:])
    return True


@register_fx_node_fix(FAMILY, operators=("aten._fft_r2c.default", "aten._fft_c2r.default", "aten._fft_c2c.default"))
def _fix_fourier_layout(graph_module: torch.fx.GraphModule, node: torch.fx.Node) -> bool:
    """Run a Fourier transform over the last dimensions, between two permutations.

    Why: over another dimension its output is planned in another memory layout than its input's, which the kernel refuses at run time
        (0x12, invalid argument).
    Upstream: not filed.
    Seen in: AutoformerForPrediction
    """
    return executorch_layout.transform_last(node)


@register_fx_node_fix(FAMILY, operators=("aten.empty.memory_format",))
def _fix_empty_of_size(graph_module: torch.fx.GraphModule, node: torch.fx.Node) -> bool:
    """Make a tensor without values, where a size of it varies, one of zeros.

    Why: the operator that stands for `empty` in a `.pte` takes numbers, not sizes that vary: each becomes the sample's, the axis with it,
        and inputs of any other size are refused (0x10, 0x12).
    Upstream: not filed.
    Seen in: AutoformerForPrediction
    """
    return executorch_layout.zeros_of_size(node)


@register_fx_node_fix(FAMILY, operators=("_operator.mod",))
def _fix_mod_of_negative(graph_module: torch.fx.GraphModule, node: torch.fx.Node) -> bool:
    """Take the remainder of a size once more, after adding the divisor, where what is divided may be negative.

    Why: the runtime's remainder has the sign of what is divided, as in C; Python's, and the program's, that of the divisor. A text that is
        padded by `-length % 128` is padded by `-length`, and refused (0x12).
    Upstream: not filed.
    Seen in: GraniteSpeech5ForCTC
    """
    return executorch_math.positive_remainder(node)
