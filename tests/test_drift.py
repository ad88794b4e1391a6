"""Drift: an error planted at each stage of each family is found there, and at its node."""

import itertools
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnx
import onnx_ir as ir
import onnxruntime
import pytest
import torch
from onnxscript import opset18 as op
from torch.export import ExportedProgram
from torch.fx import GraphModule, Node

from exporters import runtimes
from exporters.backends import STAGES
from exporters.chain import Request, run
from exporters.drift import DRIFT_STAGES, find
from exporters.drift_report import DriftReport
from exporters.exporter_dynamo import DynamoExporter
from exporters.stages import ProgramStage, with_own_graph
from exporters.utils import REGISTRY, Registration, register_fx_node_fix, register_patch

VIT, LLAMA = "ViTForImageClassification", "LlamaForCausalLM@decode"


Home = Callable[[str], Path]


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Home:
    """By backend, a home in which the model is exported, nothing planted."""
    homes: dict[str, Path] = {}

    def home(backend: str) -> Path:
        if backend not in homes:
            homes[backend] = tmp_path_factory.mktemp("home")
            run(Request(model=VIT, backend=backend, home=str(homes[backend]), until=STAGES[backend.partition(".")[0]][-1]))
        return homes[backend]

    return home


@pytest.fixture
def home(exported: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    """A copy of such a home for one test: what an error changes is made again there. What the test registers is gone after it."""

    def copied(backend: str) -> Path:
        original = exported(backend)
        monkeypatch.setattr(REGISTRY, "_registrations", REGISTRY.select())
        return shutil.copytree(original, tmp_path / "home")

    return copied


def drift(folder: Path, backend: str, *, model: str = VIT, again: str | None = None) -> DriftReport:
    """What is found; the stage called `again` and those after it are made anew, whether or not a key knows of what was planted."""
    family = backend.partition(".")[0]
    for stage in STAGES[family][STAGES[family].index(again) :] if again else ():
        shutil.rmtree(folder / "store" / "refs" / family / stage)
    report = find(Request(model=model, backend=backend, home=str(folder)))
    assert report.error is None, report.error
    return report


def assert_first(report: DriftReport, stage: str) -> None:
    """The stages before are inside the bound, this one isn't."""
    assert report.first == stage, (report.sentence(), [row.message for row in report.stages])
    names = [row.stage for row in report.stages]
    assert [row.ok for row in report.stages[: names.index(stage) + 1]] == [True] * names.index(stage) + [False]


# ── Nothing planted ───────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("backend", "model"),
    [("dynamo", VIT), ("onnx", LLAMA), pytest.param("executorch.xnnpack", LLAMA, marks=pytest.mark.slow), ("executorch.portable", VIT)],
)
def test_a_right_export_stays_within_the_bound(tmp_path: Path, backend: str, model: str) -> None:
    report = drift(tmp_path, backend, model=model)
    assert not (tmp_path / "reports").exists()
    assert not (tmp_path / "exports").exists()
    assert [row.stage for row in report.stages] == list(DRIFT_STAGES[backend.partition(".")[0]])
    assert all(row.ok for row in report.stages), report.stages
    assert report.first is None
    assert report.node is None
    assert report.exit_code == 0


# ── Traced program ────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "backend", ["dynamo", pytest.param("onnx", marks=pytest.mark.slow), pytest.param("executorch.portable", marks=pytest.mark.slow)]
)
def test_an_error_while_tracing(home: Home, backend: str) -> None:
    folder = home(backend)
    calls, inside = itertools.count(), [False]

    @register_patch(backend.partition(".")[0], "torch.nn.functional.layer_norm")
    def _planted(original: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
        def third_is_wrong(given: Any, shape: Any, weight: Any = None, bias: Any = None, eps: float = 1e-5) -> torch.Tensor:
            if inside[0]:  # the tracer's own call of what the model called
                return original(given, shape, weight, bias, eps)
            inside[0] = True
            try:
                return original(given, shape, weight, bias, 0.5 if next(calls) == 2 else eps)
            finally:
                inside[0] = False

        return third_is_wrong

    report = drift(folder, backend, again="traced_program")
    assert_first(report, "traced_program")
    assert report.node is not None
    assert (report.node.name, report.node.operator) == ("layer_norm_2", "aten.layer_norm.default")
    assert report.node.module.endswith("layers.1.layernorm_before")
    assert report.node.counterpart is not None
    assert report.node.counterpart.operator == "aten.native_layer_norm.default"
    assert report.good == "eager"


# ── Decomposed graph ──────────────────────────────────────────────────────────


def becomes_relu(graph_module: GraphModule, node: Node) -> bool:
    """Replace the second `gelu` of a graph."""
    gelus = [each for each in graph_module.graph.nodes if each.target is node.target]
    if len(gelus) < 2 or node is not gelus[1]:
        return False
    node.target, node.kwargs = torch.ops.aten.relu.default, {}
    return True


@pytest.mark.parametrize("backend", ["onnx", pytest.param("executorch.portable", marks=pytest.mark.slow)])
def test_an_error_of_a_node_fix(home: Home, backend: str) -> None:
    folder = home(backend)
    register_fx_node_fix(backend.partition(".")[0], operators=["aten.gelu.default"])(becomes_relu)
    report = drift(folder, backend, again="decomposed_graph")
    assert_first(report, "decomposed_graph")
    assert report.node is not None
    assert report.node.operator == "aten.relu.default"
    assert report.node.module.endswith("layers.1.mlp.activation_fn")
    assert report.node.counterpart is not None
    assert (report.node.counterpart.name, report.node.counterpart.operator) == ("gelu_1", "aten.gelu.default")


@pytest.mark.slow
def test_an_error_of_a_decomposition(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = home("dynamo")
    original = DynamoExporter.decompose

    def wrong(self: DynamoExporter, traced: ProgramStage) -> ProgramStage:
        stage = original(self, traced)
        stage.program = with_own_graph(stage.program)
        gelu = [node for node in stage.program.graph.nodes if node.target is torch.ops.aten.gelu.default][-1]
        tensor, *rest = gelu.args
        with stage.program.graph.inserting_before(gelu):
            halved = stage.program.graph.call_function(torch.ops.aten.mul.Tensor, (tensor, 0.5))
        halved.meta.update(tensor.meta)
        gelu.args = (halved, *rest)
        stage.program.graph_module.recompile()
        return stage

    monkeypatch.setattr(DynamoExporter, "decompose", wrong)
    report = drift(folder, "dynamo", again="decomposed_graph")
    assert_first(report, "decomposed_graph")
    assert report.node is not None
    assert report.node.operator == "aten.mul.Tensor"
    assert report.node.counterpart is not None
    assert (report.node.counterpart.name, report.node.counterpart.operator) == ("gelu_1", "aten.gelu.default")


# ── Lowered ONNX ──────────────────────────────────────────────────────────────


def test_an_error_of_a_translation(home: Home) -> None:
    folder = home("onnx")

    def _aten_gelu(self: Any, approximate: str = "none") -> Any:
        """x * sigmoid(x), which is another function."""
        return op.Mul(self, op.Sigmoid(self))

    REGISTRY.add(Registration("translation", "onnx", _aten_gelu, ("aten.gelu.default",)))
    report = drift(folder, "onnx", again="lowered_onnx")
    assert_first(report, "lowered_onnx")
    assert report.node is not None
    assert (report.node.name, report.node.operator) == ("gelu", "Mul")
    assert report.node.counterpart is not None
    assert report.node.counterpart.operator == "aten.gelu.default"
    assert report.node.starts_at is not None
    assert report.node.starts_at.operator == "Sigmoid"
    assert report.node.module.endswith("layers.0.mlp.activation_fn")


# ── Fixed ONNX ────────────────────────────────────────────────────────────────


def test_an_error_of_an_ir_fix(home: Home) -> None:
    folder = home("onnx")

    def _fix_ir_planted(model: ir.Model) -> int:
        last = [node for node in model.graph if node.op_type == "Softmax"][-1]
        last.attributes["axis"] = ir.AttrInt64("axis", 1)
        return 1

    REGISTRY.add(Registration("ir_fix", "onnx", _fix_ir_planted, ("Softmax",)))
    report = drift(folder, "onnx", again="ir_fixed_model")
    assert_first(report, "ir_fixed_model")
    assert report.node is not None
    assert report.node.operator == "Softmax"
    assert report.node.counterpart is not None
    assert (report.node.counterpart.name, report.node.counterpart.operator) == (report.node.name, "Softmax")


@pytest.mark.slow
def test_an_error_in_an_inserted_node(home: Home) -> None:
    folder = home("onnx")

    def _fix_ir_planted(model: ir.Model) -> int:
        """Scale what the first `Softmax` reads by a constant that was no value before."""
        node = next(node for node in model.graph if node.op_type == "Softmax")
        factor = ir.Value(name="factor", const_value=ir.tensor([0.25], name="factor"), shape=ir.Shape([1]))
        model.graph.initializers["factor"] = factor
        scaled = ir.node("Mul", [node.inputs[0], factor])
        scaled.outputs[0].name = "scaled"
        model.graph.insert_before(node, scaled)
        node.replace_input_with(0, scaled.outputs[0])
        return 1

    REGISTRY.add(Registration("ir_fix", "onnx", _fix_ir_planted, ("Softmax",)))
    report = drift(folder, "onnx", again="ir_fixed_model")
    assert_first(report, "ir_fixed_model")
    assert report.node is not None
    assert report.node.operator == "Softmax"
    assert report.node.starts_at is not None
    assert (report.node.starts_at.name, report.node.starts_at.operator) == ("scaled", "Mul")


# ── ONNX Runtime ──────────────────────────────────────────────────────────────


def session_that_errs(level: Any) -> Callable[..., Any]:
    """ONNX Runtime with an optimizer that, from `level` on, takes the last `Gelu` or `Erf` for a `Relu`."""
    original = onnxruntime.InferenceSession

    def opened(model: str | bytes, options: Any = None, **kwargs: Any) -> Any:
        if options is None or int(options.graph_optimization_level) < int(level):
            return original(model, options, **kwargs)
        proto = onnx.load_from_string(model) if isinstance(model, bytes) else onnx.load(model, load_external_data=False)
        node = [node for node in proto.graph.node if node.op_type in ("Gelu", "Erf")][-1]
        node.op_type = "Relu"
        del node.attribute[:]
        return original(proto.SerializeToString(), options, **kwargs)

    return opened


@pytest.mark.parametrize("level", ["BASIC", pytest.param("EXTENDED", marks=pytest.mark.slow)])
def test_an_error_of_the_runtime_s_optimizer(home: Home, monkeypatch: pytest.MonkeyPatch, level: str) -> None:
    folder = home("onnx")
    lowest = getattr(onnxruntime.GraphOptimizationLevel, f"ORT_ENABLE_{level}")
    monkeypatch.setattr(onnxruntime, "InferenceSession", session_that_errs(lowest))
    report = drift(folder, "onnx")
    assert_first(report, "runtime")
    assert report.node is not None
    assert report.node.operator == "Relu"
    assert report.node.fineness.endswith(f"at level {level.lower()}")


# ── Edge program ──────────────────────────────────────────────────────────────


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["executorch.xnnpack", "executorch.portable"])
def test_an_error_on_the_way_to_edge(home: Home, backend: str) -> None:
    folder = home(backend)

    @register_patch("executorch", "executorch.exir.program._program._generate_edge_program")
    def _planted(original: Callable[..., ExportedProgram]) -> Callable[..., ExportedProgram]:
        def second_gelu_is_relu(*args: Any, **kwargs: Any) -> ExportedProgram:
            from executorch.exir.dialects._ops import ops

            program = original(*args, **kwargs)
            gelu = [node for node in program.graph.nodes if "gelu" in node.name][1]
            gelu.target, gelu.kwargs = ops.edge.aten.relu.default, {}
            program.graph_module.recompile()
            return program

        return second_gelu_is_relu

    report = drift(folder, backend, again="pte")
    assert_first(report, "edge_program")
    assert report.node is not None
    assert report.node.operator == "aten.relu.default"
    assert report.node.module.endswith("layers.1.mlp.activation_fn")
    assert report.node.counterpart is not None
    assert report.node.counterpart.operator == "aten.gelu.default"


# ── .pte ──────────────────────────────────────────────────────────────────────


@pytest.mark.slow
def test_an_error_inside_a_delegate(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    from executorch.backends.xnnpack.operators.node_visitor import _node_visitor_dict
    from executorch.backends.xnnpack.serialization.xnnpack_graph_schema import XNNSigmoid

    folder = home("executorch.xnnpack")
    visitor = _node_visitor_dict["aten.gelu.default"]
    original = visitor.define_node

    def sigmoid_instead(self: Any, node: Node, graph: Any, *args: Any) -> None:
        original(self, node, graph, *args)
        gelu = graph.xnodes[-1].xnode_union
        graph.xnodes[-1].xnode_union = XNNSigmoid(input_id=gelu.input_id, output_id=gelu.output_id, flags=gelu.flags)

    monkeypatch.setattr(visitor, "define_node", sigmoid_instead)
    report = drift(folder, "executorch.xnnpack", again="pte")
    assert_first(report, "pte")
    assert report.node is not None
    assert report.node.operator == "aten.gelu.default"
    assert report.node.module.endswith("layers.0.mlp.activation_fn")
    assert report.node.fineness.startswith("one node")


@pytest.mark.slow
def test_an_error_of_the_emitted_program(home: Home) -> None:
    folder = home("executorch.portable")

    @register_patch("executorch", "executorch.exir.passes.ToOutVarPass.call")
    def _planted(original: Callable[..., Any]) -> Callable[..., Any]:
        def second_gelu_is_relu(self: Any, graph_module: GraphModule) -> Any:
            from executorch.exir.dialects._ops import ops

            gelus = [node for node in graph_module.graph.nodes if node.target is ops.edge.aten.gelu.default]
            gelus[1].target, gelus[1].kwargs = ops.edge.aten.relu.default, {}
            return original(self, graph_module)

        return second_gelu_is_relu

    report = drift(folder, "executorch.portable", again="pte")
    assert_first(report, "pte")
    assert report.node is not None
    assert report.node.operator == "aten.gelu.default"
    assert report.node.module.endswith("layers.1.mlp.activation_fn")


def test_a_damaged_runtime_is_no_node(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """What goes wrong only where no value is seen is said to have no node, and still fails."""
    folder = home("onnx")
    original = runtimes.OnnxRuntime.run
    monkeypatch.setattr(runtimes.OnnxRuntime, "run", lambda self, tensors: [2 * tensor for tensor in original(self, tensors)])
    report = drift(folder, "onnx")
    assert_first(report, "runtime")
    assert report.node is None
    assert "outputs are those of the stage before" in report.reason
    assert report.exit_code == 1
