"""Where an export's numbers leave the model's: the same inputs through every stage, compared with eager, then node by node.

The stages are the chain's own artifacts, from its cache or made by it, each run as close to what it is as can be: programs in eager
PyTorch, graphs on ONNX Runtime with its optimizer off, and last the runtime as zooport ships it. Nothing is written but what the chain
itself writes.
"""

import gc
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch.utils import _pytree as pytree

from exporters import artifacts, chain, parity, source
from exporters.backends import STAGES, family_of
from exporters.drift_nodes import Nowhere, locate
from exporters.drift_programs import Eager, Program, Runnable, module_paths
from exporters.drift_report import DriftReport, DriftStage
from exporters.home import store_of
from exporters.report import ErrorReport
from exporters.signature import Signature
from exporters.stage_makers import StageMaker
from exporters.stages import first_line
from exporters.store import Store

if TYPE_CHECKING:
    from exporters.zoo.sample import Sample

EAGER = "eager"
# of each family, in order; what the chain has no artifact for is made from the one before it
DRIFT_STAGES: dict[str, tuple[str, ...]] = {
    "dynamo": ("traced_program", "decomposed_graph"),
    "onnx": ("traced_program", "decomposed_graph", "lowered_onnx", "ir_fixed_model", "runtime"),
    "executorch": ("traced_program", "decomposed_graph", "edge_program", "pte"),
}


def find(request: chain.Request, on_stage: Callable[[DriftStage], None] | None = None) -> DriftReport:
    """Run a model's chain, compare every stage with eager at the sample's inputs, and find the node at which they part.

    Args:
        on_stage: called with every stage as soon as it was compared.

    Raises:
        UsageError: there is no such model or backend.
        StoreError: the store can't be read or written.
    """
    family = family_of(request.backend)
    report = DriftReport(model=request.model, backend=request.backend)
    made = chain.run(request.model_copy(update={"until": STAGES[family][-1], "verify": False, "out": None, "pack": False}))
    report.error = made.error
    if made.outcome == "skipped":
        report.error = ErrorReport(stage="", type="Skipped", message=made.reason)
    if report.error is not None:
        return report
    store = Store(request.store or store_of(Path(request.home)))
    folders = {stage.stage: store.get(stage.digest) for stage in made.stages}
    with ExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="zooport-drift-")))
        stages = _Stages(request, folders, scratch)
        for name in DRIFT_STAGES[family]:
            row = stages.compare(name)
            report.stages.append(row)
            if on_stage is not None:
                on_stage(row)
        _name_the_first(report, stages)
    return report


def _name_the_first(report: DriftReport, stages: "_Stages") -> None:
    """Fill in the first stage outside the bound, the last one inside before it, and the node."""
    good = EAGER
    for row in report.stages:
        if row.ok is False:
            report.first, report.good = row.stage, good
            break
        good = row.stage if row.ok else good
    if report.first is None:
        return
    try:
        report.node = locate(report.first, stages.runnable(good), stages.runnable(report.first), stages.leaves)
    except Nowhere as nowhere:
        report.reason = str(nowhere)
    # what can't be run with every value as an output (a type without a name, a kernel that isn't there) still has its row above
    except Exception as error:
        report.reason = f"the values inside can't be seen: {type(error).__name__}: {first_line(error)}"


class _Stages:
    """The stages of one export, each made runnable when it is needed.

    Attributes:
        leaves: the tensors of the sample's inputs, in the order of the graph's.
    """

    def __init__(self, request: chain.Request, folders: Mapping[str, Path], scratch: Path) -> None:
        self._backend = request.backend
        self._folders = folders
        self._scratch = scratch
        origin = source.resolve(request.model)
        options = request.model_dump(include={"dynamic", "opset", "optimize", "max_sizes"})
        maker = StageMaker(origin, request.backend, options, Path(request.home) / "weights")
        maker.identity()  # which names the copy of weights that have no file
        self._sample: Sample = maker.sample
        self._weights = maker.weights
        self._signature: Signature = artifacts.read_signature(folders["traced_program"])
        self.leaves = self._signature.flatten(self._sample.inputs)
        self._eager = Eager(self._sample.model, self._signature)
        self._expected = self._eager.call([leaf.clone() if isinstance(leaf, torch.Tensor) else leaf for leaf in self.leaves])
        self._lowering: Any = None

    def compare(self, name: str) -> DriftStage:
        """Run one stage and compare its outputs with eager's, as the verification of an export does."""
        try:
            outputs = self.runnable(name).run(self.leaves)
        # every library raises what it likes at a graph that it can't run: the row says so, and the other stages are still worth running
        except Exception as error:
            return DriftStage(stage=name, ok=None, message=f"{type(error).__name__}: {first_line(error)}")
        finally:
            gc.collect()  # programs are full of cycles, and the next one is as large
        return self._row(name, outputs)

    def _row(self, name: str, outputs: Sequence[torch.Tensor]) -> DriftStage:
        signature, sample = self._signature, self._sample
        if len(outputs) != len(signature.graph_outputs):
            message = f"{len(outputs)} outputs instead of {len(signature.graph_outputs)}"
            return DriftStage(stage=name, ok=False, message=message)
        expected, given = self._expected, signature.unflatten(outputs)
        names = [info.name for info in signature.outputs]
        if sample.select is not None:
            expected, given = sample.select(expected, sample.inputs), sample.select(given, sample.inputs)
            names = [f"selected_{index}" for index in range(len(pytree.tree_leaves(expected)))]
        elif pytree.tree_structure(expected) != signature.output_spec:
            return DriftStage(stage=name, ok=False, message="eager returns another structure")
        compared = parity.compare(names, pytree.tree_leaves(expected), pytree.tree_leaves(given))
        relative = _relative(pytree.tree_leaves(expected), pytree.tree_leaves(given))
        return DriftStage(stage=name, ok=compared.ok, max_abs_diff=compared.max_abs_diff, max_rel_diff=relative, message=compared.message)

    # ── Each stage as it is run ───────────────────────────────────────────────

    def runnable(self, name: str) -> Runnable:
        """The stage called `name`, or eager, with its real weights."""
        if name == EAGER:
            return self._eager
        made: Runnable = getattr(self, f"_{name}")()
        return made

    def _traced_program(self) -> Runnable:
        return Program(self._load("traced_program").program)

    def _decomposed_graph(self) -> Runnable:
        return Program(self._load("decomposed_graph").program)

    def _lowered_onnx(self) -> Runnable:
        from exporters import drift_onnx, onnx_binding

        bound = onnx_binding.bound_model(artifacts.load_onnx(self._folders["lowered_onnx"]), self._weights.bound())
        return drift_onnx.OnnxGraph(bound, self._weights.folder(self._scratch), self._modules)

    def _ir_fixed_model(self) -> Runnable:
        from exporters import drift_onnx

        return drift_onnx.OnnxGraph(
            artifacts.load_onnx(self._folders["ir_fixed_model"]).model_ir, self._weights.folder(self._scratch), self._modules
        )

    def _runtime(self) -> Runnable:
        from exporters import drift_onnx, runtimes

        graph, folder = self._folders["ir_fixed_model"] / artifacts.GRAPH, self._weights.folder(self._scratch)
        return drift_onnx.Shipped(
            graph,
            folder,
            run=lambda leaves: runtimes.OnnxRuntime(graph, folder).run(leaves),
            scratch=self._scratch,
            is_wrong=lambda outputs: not self._row("runtime", outputs).ok,
            modules=self._modules,
        )

    def _edge_program(self) -> Runnable:
        return Program(self._lowered().edge)

    def _pte(self) -> Runnable:
        from exporters import drift_executorch, executorch_stage

        return drift_executorch.Pte(self._folders["pte"] / executorch_stage.FILE, self._lowered(), self._scratch)

    def _lowered(self) -> Any:
        from exporters import drift_executorch

        if self._lowering is None:
            self._lowering = drift_executorch.Lowering(self._load("decomposed_graph"))
        return self._lowering

    def _load(self, stage: str) -> Any:
        return artifacts.load_program(self._folders[stage], self._weights.load())

    @cached_property
    def _modules(self) -> dict[str, str]:
        """Which module a value of an ONNX graph comes from: it is called like the node of the program that it was lowered from."""
        return module_paths(artifacts.load_program(self._folders["decomposed_graph"]).program)


def _relative(expected: Sequence[Any], given: Sequence[Any]) -> float | None:
    """The largest difference relative to what was expected, or to the absolute bound where that is larger; None without floats."""
    worst = None
    for one, other in zip(expected, given, strict=False):
        if isinstance(one, torch.Tensor) and one.is_floating_point() and isinstance(other, torch.Tensor) and one.shape == other.shape:
            relative = (one.double() - other.double()).abs() / one.double().abs().clamp(min=parity.ATOL)
            finite = relative[torch.isfinite(relative)]
            worst = max(worst or 0.0, float(finite.max()) if finite.numel() else 0.0)
    return worst
