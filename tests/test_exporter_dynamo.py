"""DynamoExporter: caches of every kind, dynamic axes, and a model that is afterwards what it was before."""

import copy
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils import _pytree as pytree
from transformers import LlamaConfig, LlamaForCausalLM, MistralConfig, MistralForCausalLM, StaticCache, T5Config, T5ForConditionalGeneration
from transformers.modeling_outputs import BaseModelOutput

from exporters import DynamoConfig, DynamoExporter, varying
from exporters.errors import ExportError, SignatureMismatch, UsageError
from exporters.parity import compare


def tiny_llama() -> LlamaForCausalLM:
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=60,
        hidden_size=16,
        intermediate_size=24,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        pad_token_id=0,
    )
    return LlamaForCausalLM(config).eval()


def decode_inputs(model: nn.Module, batch: int, past: int) -> dict[str, Any]:
    with torch.no_grad():
        cache = model(input_ids=torch.randint(1, 60, (batch, past)), use_cache=True).cache
    return {"input_ids": torch.randint(1, 60, (batch, 1)), "attention_mask": torch.ones(batch, past + 1, dtype=torch.long), "cache": cache}


def assert_equal_to_eager(model: nn.Module, exported: Any, inputs: dict[str, Any]) -> None:
    with torch.no_grad():
        expected = model(**copy.deepcopy(inputs))
    actual = exported(**copy.deepcopy(inputs))
    assert type(actual) is type(expected)
    assert pytree.tree_structure(actual) == pytree.tree_structure(expected)
    leaves = pytree.tree_leaves(expected)
    result = compare([str(index) for index in range(len(leaves))], leaves, pytree.tree_leaves(actual))
    assert result.ok, result.message


# ── Caches ────────────────────────────────────────────────────────────────────


def test_a_decode_step_with_a_dynamic_cache_returns_what_the_model_returns() -> None:
    model = tiny_llama()
    sample, other, single = decode_inputs(model, 2, 5), decode_inputs(model, 3, 9), decode_inputs(model, 1, 3)
    shapes = varying(sample, {"other": other, "single": single})
    exported = DynamoExporter().export(model, sample, config=DynamoConfig(dynamic=True, dynamic_shapes=shapes.dynamic_shapes))
    for inputs in (sample, other, single):
        assert_equal_to_eager(model, exported, inputs)
    assert [info.name for info in exported.signature.inputs][:3] == ["input_ids", "attention_mask", "cache.0.keys"]
    assert exported.signature.outputs[1].name == "cache.0.keys.out"


def test_a_static_cache_is_updated() -> None:
    model = tiny_llama()
    cache = StaticCache(config=model.config, max_cache_len=16)
    with torch.no_grad():
        model(input_ids=torch.randint(1, 60, (2, 5)), cache=cache)
    inputs = {"input_ids": torch.randint(1, 60, (2, 1)), "cache": cache}
    exported = DynamoExporter().export(model, inputs)
    assert_equal_to_eager(model, exported, inputs)


def test_an_encoder_decoder_cache_flattens_and_rebuilds() -> None:
    torch.manual_seed(0)
    config = T5Config(vocab_size=60, d_model=16, d_kv=8, d_ff=24, num_layers=2, num_heads=2, decoder_start_token_id=0, pad_token_id=0)
    model = T5ForConditionalGeneration(config).eval()

    def inputs(batch: int, source: int, past: int) -> dict[str, Any]:
        with torch.no_grad():
            first = model(input_ids=torch.randint(1, 60, (batch, source)), decoder_input_ids=torch.randint(1, 60, (batch, past)))
        return {
            "decoder_input_ids": torch.randint(1, 60, (batch, 1)),
            "encoder_outputs": BaseModelOutput(last_hidden_state=first.encoder_last_hidden_state),
            "attention_mask": torch.ones(batch, source, dtype=torch.long),
            "cache": first.cache,
        }

    sample, other = inputs(2, 5, 3), inputs(3, 8, 6)
    shapes = varying(sample, {"other": other})
    exported = DynamoExporter().export(model, sample, config=DynamoConfig(dynamic=True, dynamic_shapes=shapes.dynamic_shapes))
    for given in (sample, other):
        assert_equal_to_eager(model, exported, given)


@pytest.mark.parametrize("past", [4, 11])
def test_a_sliding_window_cache_is_right_at_its_state_and_refused_in_another(past: int) -> None:
    torch.manual_seed(0)
    config = MistralConfig(
        vocab_size=60,
        hidden_size=16,
        intermediate_size=24,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        sliding_window=6,
    )
    model = MistralForCausalLM(config).eval()
    inputs = decode_inputs(model, 2, past)
    exported = DynamoExporter().export(model, inputs)
    assert_equal_to_eager(model, exported, inputs)
    with pytest.raises(SignatureMismatch):
        exported(**decode_inputs(model, 2, past + 1))


# ── The model afterwards ──────────────────────────────────────────────────────


def state_of(model: nn.Module) -> dict[str, Any]:
    return {
        "tensors": {name: (id(t), t.dtype, t.device, t.requires_grad, t.clone()) for name, t in model.state_dict(keep_vars=True).items()},
        "training": [module.training for module in model.modules()],
        "attributes": [set(vars(module)) for module in model.modules()],
        "hooks": [len(module._forward_hooks) for module in model.modules()],
        "config": model.config.to_dict() if hasattr(model, "config") else None,
        "attention": getattr(getattr(model, "config", None), "_attn_implementation", None),
    }


def assert_same_state(before: dict[str, Any], after: dict[str, Any]) -> None:
    for name, (identity, dtype, device, grad, value) in before["tensors"].items():
        now = after["tensors"][name]
        assert now[:4] == (identity, dtype, device, grad)
        assert torch.equal(now[4], value)
    for key in ("training", "attributes", "hooks", "config", "attention"):
        assert after[key] == before[key], key


@pytest.mark.parametrize("training", [False, True])
def test_the_model_and_its_inputs_are_left_as_they_were(training: bool) -> None:
    model = tiny_llama().train(training)
    inputs = decode_inputs(model.eval(), 2, 5)
    model.train(training)
    kept = copy.deepcopy(inputs)
    before = state_of(model)
    DynamoExporter().export(model, inputs, config=DynamoConfig(dynamic=True))
    assert_same_state(before, state_of(model))
    assert "forward" not in vars(model)
    assert torch.equal(inputs["cache"].layers[0].keys, kept["cache"].layers[0].keys)
    assert inputs.keys() == kept.keys()


class Stateful(nn.Module):
    """Keeps a tensor of one call for the next, as Qwen2-VL does."""

    def __init__(self, fail: bool = False) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.rope_deltas: torch.Tensor | None = None
        self.fail = fail

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.linear(x)
        if self.rope_deltas is not None:
            y = y + self.rope_deltas.sum()
        self.rope_deltas = y.detach()
        self.seen = y
        if self.fail:
            raise RuntimeError("forward fails")
        return y


def test_tensors_that_forward_leaves_on_the_model_are_taken_back() -> None:
    model = Stateful()
    model(torch.ones(2, 4))
    kept, seen = model.rope_deltas, model.seen
    exported = DynamoExporter().export(model, {"x": torch.ones(2, 4)})
    assert model.rope_deltas is kept
    assert model.seen is seen
    # the state of the call before is no part of the graph
    assert torch.allclose(exported(x=torch.ones(2, 4)), model.linear(torch.ones(2, 4)))


def test_the_model_is_left_as_it_was_after_a_failure_too() -> None:
    model = Stateful(fail=True)
    before = set(vars(model))
    with pytest.raises(ExportError, match="forward fails") as caught:
        DynamoExporter().export(model, {"x": torch.ones(2, 4)})
    assert caught.value.stage == "traced_program"
    assert set(vars(model)) == before
    assert model.rope_deltas is None


# ── Inputs ────────────────────────────────────────────────────────────────────


class Picky(nn.Module):
    def forward(self, a: torch.Tensor, b: torch.Tensor, flag: bool = False, **kwargs: Any) -> tuple[torch.Tensor, torch.Tensor]:
        return (a + b, a - b) if flag else (a, b * 2)


def test_constants_are_bound_and_checked() -> None:
    inputs = {"a": torch.ones(2, 3), "b": torch.ones(2, 3), "flag": True}
    exported = DynamoExporter().export(Picky(), inputs, config=DynamoConfig(dynamic=True))
    assert [info.name for info in exported.signature.inputs] == ["a", "b"]
    assert [info.name for info in exported.signature.outputs] == ["output_0", "output_1"]
    assert torch.equal(exported(a=torch.ones(4, 5), b=torch.ones(4, 5))[0], torch.full((4, 5), 2.0))
    with pytest.raises(SignatureMismatch, match="flag=False"):
        exported(**{**inputs, "flag": False})


@pytest.mark.parametrize("change", [{"b": None}, {"c": torch.ones(1)}])
def test_missing_and_unknown_arguments_are_named(change: dict[str, Any]) -> None:
    exported = DynamoExporter().export(Picky(), {"a": torch.ones(2), "b": torch.ones(2)})
    with pytest.raises(SignatureMismatch, match=r"b|c"):
        exported(**{"a": torch.ones(2), "b": torch.ones(2), **change})


def test_inputs_without_a_tensor_are_refused() -> None:
    with pytest.raises(UsageError, match="no input holds a tensor"):
        DynamoExporter().export(Picky(), {"flag": True})


def test_dynamic_shapes_override() -> None:
    inputs = {"a": torch.ones(2, 3), "b": torch.ones(2, 3)}
    config = DynamoConfig(dynamic=True, dynamic_shapes={name: {0: torch.export.Dim("rows", max=64)} for name in inputs})
    program = DynamoExporter().export(Picky(), inputs, config=config).program
    shapes = [tuple(node.meta["val"].shape) for node in program.graph.nodes if node.op == "placeholder"]
    assert all(not isinstance(shape[0], int) and shape[1] == 3 for shape in shapes)
    with pytest.raises(UsageError, match="dynamic_shapes names c"):
        DynamoExporter().export(Picky(), inputs, config=DynamoConfig(dynamic_shapes={"c": {0: torch.export.Dim.AUTO}}))


def test_every_axis_is_automatic_without_more() -> None:
    program = DynamoExporter().export(Picky(), {"a": torch.ones(2, 3), "b": torch.ones(2, 3)}, config=DynamoConfig(dynamic=True)).program
    shape = next(tuple(node.meta["val"].shape) for node in program.graph.nodes if node.op == "placeholder")
    assert not any(isinstance(size, int) for size in shape)


# ── A fresh process ───────────────────────────────────────────────────────────


def test_a_saved_program_loads_in_a_process_that_only_imported_exporters(tmp_path: Path) -> None:
    model = tiny_llama()
    inputs = decode_inputs(model, 2, 5)
    exported = DynamoExporter().export(model, inputs, config=DynamoConfig(dynamic=True))
    assert exported.save(tmp_path / "saved").name == "program.pt2"
    code = (
        "import exporters, sys\n"
        "loaded = exporters.load(sys.argv[1])\n"
        "import torch\n"
        "tensors = torch.load(sys.argv[1] + '/inputs.bin')\n"
        "leaves = loaded._runtime.run(tensors)\n"
        "outputs = loaded.signature.unflatten(leaves)\n"
        "print(type(outputs).__name__, type(outputs.cache).__name__, tuple(outputs.cache.layers[0].keys.shape))\n"
        "torch.save(leaves, sys.argv[1] + '/outputs.bin')\n"
    )
    torch.save(exported.signature.flatten(inputs), tmp_path / "saved" / "inputs.bin")
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code, str(tmp_path / "saved")], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split(maxsplit=2) == ["CausalLMOutputWithPast", "DynamicCache", "(2, 1, 6, 8)\n"]
    with torch.no_grad():
        expected = pytree.tree_leaves(model(**copy.deepcopy(inputs)))
    for mine, theirs in zip(torch.load(tmp_path / "saved" / "outputs.bin"), expected, strict=True):
        assert torch.allclose(mine, theirs, atol=1e-5)


def test_a_saved_program_brings_the_module_of_its_custom_operators(tmp_path: Path) -> None:
    from exporters.zoo.build import build

    sample = build("MixtralForCausalLM")
    exported = DynamoExporter().export(sample.model, sample.inputs)
    assert any("grouped_mm_fallback" in name for name in exported.stages[0].operators())
    exported.save(tmp_path)
    code = "import sys, exporters; exporters.load(sys.argv[1])"
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", code, str(tmp_path)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-1500:]
