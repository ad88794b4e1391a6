"""OnnxExporter: names, opsets, weights bound once, and every stage by itself."""

import copy
from pathlib import Path
from typing import Any

import onnx
import onnxruntime
import pytest
import torch
from torch import nn
from transformers import GPT2Config, GPT2LMHeadModel

from exporters import OnnxConfig, OnnxExporter, load, onnx_optimize, varying
from exporters.errors import ExportError, UsageError


class Tied(nn.Module):
    """An embedding whose matrix is the output head's too."""

    def __init__(self, vocabulary: int = 1031, width: int = 8) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        self.head = nn.Linear(width, vocabulary, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, ids: torch.Tensor, unused: torch.Tensor) -> dict[str, torch.Tensor]:
        hidden = self.embedding(ids)
        return {"logits": self.head(hidden), "ids": ids, "hidden": hidden, "same": hidden}


def ids(batch: int, length: int) -> dict[str, Any]:
    return {"ids": torch.randint(0, 1031, (batch, length)), "unused": torch.ones(batch, length)}


@pytest.fixture(scope="module")
def exported() -> Any:
    torch.manual_seed(0)
    return OnnxExporter().export(Tied(), ids(2, 5), config=OnnxConfig(dynamic=True))


def test_inputs_and_outputs_have_the_models_own_names(exported: Any, tmp_path: Path) -> None:
    graph = onnx.load(exported.save(tmp_path)).graph
    assert [value.name for value in graph.input] == ["ids", "unused"]
    # an input passed through is another value, and a value returned twice is two
    assert [value.name for value in graph.output] == ["logits", "ids.out", "hidden", "same"]


def test_tied_weights_are_stored_once_and_nothing_large_is_folded(exported: Any, tmp_path: Path) -> None:
    path = exported.save(tmp_path)
    model = onnx.load(path, load_external_data=False)
    external = [initializer for initializer in model.graph.initializer if initializer.external_data]
    places = {(entry.value) for initializer in external for entry in initializer.external_data if entry.key == "offset"}
    assert len(places) == 1
    assert (tmp_path / "weights.safetensors").stat().st_size < 1031 * 8 * 4 + 1024
    assert path.stat().st_size < 20_000


def test_it_is_called_like_the_model_and_loads_elsewhere(exported: Any, tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = Tied()
    exported.save(tmp_path)
    for runner in (exported, load(tmp_path)):
        for batch, length in ((2, 5), (3, 7), (1, 1)):
            inputs = ids(batch, length)
            outputs = runner(**inputs)
            assert list(outputs) == ["logits", "ids", "hidden", "same"]
            assert torch.allclose(outputs["logits"], model(**inputs)["logits"], atol=1e-5)
            assert torch.equal(outputs["ids"], inputs["ids"])


def test_the_written_file_runs_on_plain_onnx_runtime(exported: Any, tmp_path: Path) -> None:
    session = onnxruntime.InferenceSession(str(exported.save(tmp_path)), providers=["CPUExecutionProvider"])
    onnx.checker.check_model(str(tmp_path / "model.onnx"))
    given = {name: tensor.numpy() for name, tensor in ids(2, 3).items()}
    assert session.run(None, given)[0].shape == (2, 3, 1031)


@pytest.mark.parametrize("opset", [17, 18, 20, 23])
def test_the_file_has_the_opset_that_was_asked_for(opset: int) -> None:
    model = OnnxExporter().export(Tied(), ids(2, 5), config=OnnxConfig(dynamic=True, opset=opset)).program
    assert model.opset_imports[""] == opset


@pytest.mark.parametrize("opset", [0, 24, 99])
def test_an_impossible_opset_is_refused_at_once(opset: int) -> None:
    with pytest.raises(UsageError, match=f"opset {opset} can't be had"):
        OnnxConfig(opset=opset)


def test_an_opset_that_the_graph_cannot_be_converted_to_is_an_error() -> None:
    with pytest.raises(ExportError):
        OnnxExporter().export(Tied(), ids(2, 5), config=OnnxConfig(dynamic=True, opset=5))


def test_each_stage_is_callable_by_itself() -> None:
    exporter, config = OnnxExporter(), OnnxConfig(dynamic=True)
    traced = exporter.trace(Tied(), ids(2, 5), config=config)
    nodes = len(traced.program.graph.nodes)
    decomposed = exporter.decompose(traced)
    # a stage leaves the one before it alone
    assert len(traced.program.graph.nodes) == nodes
    lowered = exporter.lower(decomposed)
    before = len(lowered.model_ir.graph)
    fixed = exporter.fix_ir(lowered)
    assert len(lowered.model_ir.graph) == before
    assert [stage.stage for stage in (traced, decomposed, lowered, fixed)] == [
        "traced_program",
        "decomposed_graph",
        "lowered_onnx",
        "ir_fixed_model",
    ]
    assert set(lowered.weight_names) == {"embedding.weight", "head.weight"}
    assert not any(initializer.name in lowered.weight_names for initializer in fixed.model_ir.graph.initializers.values())


def test_no_stage_decomposes_again(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    original = torch.export.ExportedProgram.run_decompositions

    def counted(self: Any, *args: Any, **kwargs: Any) -> Any:
        calls.append(1)
        return original(self, *args, **kwargs)

    monkeypatch.setattr(torch.export.ExportedProgram, "run_decompositions", counted)
    OnnxExporter().export(Tied(), ids(2, 5), config=OnnxConfig(dynamic=True))
    assert len(calls) == 1


def test_the_quadratic_rule_is_left_out() -> None:
    names = [rule.name for rule in onnx_optimize._rules().rules]
    assert "SlicesSplit" not in names
    assert len(names) > 20


def test_gpt2_with_a_tied_head_matches_eager() -> None:
    torch.manual_seed(0)
    model = GPT2LMHeadModel(GPT2Config(vocab_size=499, n_embd=32, n_layer=1, n_head=2, n_positions=64)).eval()

    def inputs(batch: int, length: int) -> dict[str, Any]:
        return {
            "input_ids": torch.randint(0, 499, (batch, length)),
            "attention_mask": torch.ones(batch, length, dtype=torch.long),
            "use_cache": False,
        }

    sample, other = inputs(2, 5), inputs(3, 8)
    shapes = varying(sample, {"other": other})
    exported = OnnxExporter().export(model, sample, config=OnnxConfig(dynamic=True, dynamic_shapes=shapes.dynamic_shapes))
    for given in (sample, other):
        with torch.no_grad():
            expected = model(**copy.deepcopy(given)).logits
        assert torch.allclose(exported(**given).logits, expected, atol=1e-4)


@pytest.mark.slow
def test_weights_beyond_two_gigabytes(tmp_path: Path) -> None:
    class Wide(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding = nn.Embedding(2_200_000, 256)

        def forward(self, ids: torch.Tensor) -> torch.Tensor:
            return self.embedding(ids)

    model = Wide()
    given = {"ids": torch.randint(0, 2_200_000, (2, 5))}
    exported = OnnxExporter().export(model, given, config=OnnxConfig(dynamic=True))
    path = exported.save(tmp_path)
    assert (tmp_path / "weights.safetensors").stat().st_size > 2 << 30
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    assert torch.equal(torch.from_numpy(session.run(None, {"ids": given["ids"].numpy()})[0]), model(**given))
