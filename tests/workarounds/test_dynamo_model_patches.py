"""Patches of models that froze a size or read one from data: each equals the original, and its model exports only with it."""

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils import _pytree as pytree
from transformers import CanineConfig, CsmDepthDecoderConfig, DbrxConfig
from transformers.models.canine.modeling_canine import CanineAttention
from transformers.models.csm.modeling_csm import CsmCodebooksHead
from transformers.models.dbrx.modeling_dbrx import DbrxExperts
from workaround_helpers import assert_restores, leave_out

from exporters import DynamoConfig, DynamoExporter, varying
from exporters.errors import ExportError
from exporters.exported import Exported
from exporters.utils import apply_patches
from exporters.zoo.build import build
from exporters.zoo.sample import Sample

# workaround -> a model that needs it
MODELS = {
    "_patch_packed_attention": "GlmOcrVisionModel",
    "_patch_grid_positions": "GlmOcrVisionModel",
    "_patch_dbrx_expert_loop": "DbrxForCausalLM",
    "_patch_codebook_heads": "CsmDepthDecoderForCausalLM",
    "_patch_local_attention": "CanineForMultipleChoice",
    "_patch_max_pool1d": "CanineForMultipleChoice",
    "_patch_mask_of_nothing": "InformerForPrediction",
    "_patch_validation": "InformerForPrediction",
    "_patch_image_pieces": "Gemma4ForConditionalGeneration",
    "_patch_window_attention": "LongformerForMaskedLM",
    "_patch_window_index": "MuseGlimmerForConditionalGeneration",
    "_patch_nearest_positions": "MiniCPMV4_7VisionModel",
    "_patch_shuffle_index": "MuseGlimmerForConditionalGeneration",
    "_patch_muse_image_pieces": "MuseGlimmerForConditionalGeneration",
    "_patch_rows_of_data": "VideoMAEForPreTraining",
}

# their exports take half a minute and more
LONG = {"Gemma4ForConditionalGeneration", "InformerForPrediction", "MuseGlimmerForConditionalGeneration", "GlmOcrVisionModel"}


def random(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(5))


def patched(function: Callable[..., Any], *args: Any) -> tuple[Any, Any]:
    """What the original gives, and what it gives with the patches installed."""
    with torch.no_grad():
        expected = function(*copy.deepcopy(args))
        with apply_patches("dynamo"):
            return expected, function(*copy.deepcopy(args))


def export(sample: Sample) -> Exported:
    shapes = varying(sample.inputs, sample.others, sample.axes)
    return DynamoExporter().export(sample.model, sample.inputs, config=DynamoConfig(dynamic=True, dynamic_shapes=shapes.dynamic_shapes))


# ── Effect and canary ─────────────────────────────────────────────────────────


@pytest.mark.e2e
@pytest.mark.parametrize(
    "model", [pytest.param(model, marks=pytest.mark.slow if model in LONG else ()) for model in sorted(set(MODELS.values()))]
)
def test_effect(model: str) -> None:
    sample = build(model)
    exported = export(sample)
    fired = {name.partition(":")[2] for name in exported.stages[0].seen.fired}
    assert {name for name, needed_by in MODELS.items() if needed_by == model} <= fired
    for given in (sample.inputs, *sample.others.values()):
        with torch.no_grad():
            expected: Any = sample.model(**copy.deepcopy(given))
        actual = exported(**copy.deepcopy(given))
        if sample.select is not None:
            expected, actual = sample.select(expected, given), sample.select(actual, given)
        for got, wanted in zip(pytree.tree_leaves(actual), pytree.tree_leaves(expected), strict=True):
            torch.testing.assert_close(got, wanted, atol=1e-4, rtol=1e-3, equal_nan=True)


@pytest.mark.e2e
@pytest.mark.parametrize(("name", "model"), MODELS.items())
def test_canary(name: str, model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    leave_out(monkeypatch, f"dynamo:{name}")
    with pytest.raises(ExportError):
        export(build(model))


@pytest.mark.parametrize("name", sorted(MODELS))
def test_originals_come_back(name: str) -> None:
    assert_restores(f"dynamo:{name}")


# ── Semantics ─────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("tokens", [1, 2, 7])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_dbrx_experts(tokens: int, dtype: torch.dtype) -> None:
    config = DbrxConfig(d_model=8, ffn_config={"ffn_hidden_size": 6, "moe_num_experts": 4, "moe_top_k": 2, "hidden_size": 8})
    module = DbrxExperts(config.ffn_config).eval()
    for parameter in module.parameters():
        nn.init.normal_(parameter, std=0.3, generator=torch.Generator().manual_seed(2))
    module.to(dtype)
    chosen = torch.stack([torch.arange(tokens) % 3, torch.full((tokens,), 3)], dim=-1)
    expected, actual = patched(module, random(1, tokens, 8).to(dtype), chosen, random(tokens, 2).abs().to(dtype))
    torch.testing.assert_close(actual, expected, atol=5e-3 if dtype is torch.float16 else 1e-5, rtol=1e-2)


@pytest.mark.parametrize("positions", [1, 4])
def test_codebook_heads(positions: int) -> None:
    config = CsmDepthDecoderConfig(hidden_size=8, vocab_size=11, num_codebooks=6)
    module = CsmCodebooksHead(config.hidden_size, config.num_codebooks, config.vocab_size)
    nn.init.normal_(module.weight)
    expected, actual = patched(module, random(3, positions, 8), torch.arange(1, positions + 1))
    torch.testing.assert_close(actual, expected)


@pytest.mark.parametrize("length", [3, 8, 21])
def test_local_attention(length: int) -> None:
    """Several windows, one of them all padding."""
    config = CanineConfig(hidden_size=16, num_attention_heads=2)
    module = CanineAttention(
        config, local=True, attend_from_chunk_width=8, attend_from_chunk_stride=8, attend_to_chunk_width=8, attend_to_chunk_stride=8
    )
    mask = torch.ones(2, length, length)
    mask[1, :, 8:] = 0
    mask[1, :, 2] = 0
    expected, actual = patched(module.eval(), random(2, length, 16), mask)
    torch.testing.assert_close(actual[0], expected[0], atol=1e-5, rtol=1e-4)


def test_pooling() -> None:
    class Pool(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return nn.functional.max_pool1d(x, 3, stride=2, padding=1)

    sample, other = {"x": random(2, 3, 10)}, {"x": random(2, 3, 17)}
    shapes = varying(sample, {"other": other})
    exported = DynamoExporter().export(Pool(), sample, config=DynamoConfig(dynamic=True, dynamic_shapes=shapes.dynamic_shapes))
    for given in (sample, other):
        torch.testing.assert_close(exported(**given), Pool()(**given))


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_packed_attention(attention: str) -> None:
    """Images of different sizes and a video of two frames, each attending to itself alone."""
    sample = build("GlmOcrVisionModel")
    model = sample.model
    model.set_attn_implementation(attention)  # type: ignore[operator]
    grid = torch.tensor([[1, 4, 4], [2, 2, 4], [1, 2, 2]])
    states = random(int(grid.prod(-1).sum()), sample.inputs["hidden_states"].shape[-1])
    expected, actual = patched(lambda *args: model(args[0], grid_thw=args[1]), states, grid)
    torch.testing.assert_close(actual.last_hidden_state, expected.last_hidden_state, atol=1e-4, rtol=1e-3)


@pytest.mark.parametrize("dim", [1, 2])
def test_a_distribution_without_checks(dim: int) -> None:
    from transformers import time_series_utils as outputs

    def likelihood(kind: str, *parameters: torch.Tensor) -> torch.Tensor:
        output = getattr(outputs, kind)(dim)
        return output.distribution(parameters, loc=torch.zeros(()), scale=torch.full((), 2.0)).log_prob(torch.full((3, dim), 4.0))

    valid = random(3, dim).abs() + 1
    for kind, parameters in {"NormalOutput": 2, "StudentTOutput": 3, "NegativeBinomialOutput": 2}.items():
        if kind == "NegativeBinomialOutput" and dim > 1:
            continue  # has no axis of events to scale along
        expected, actual = patched(likelihood, kind, *[valid] * parameters)
        torch.testing.assert_close(actual, expected)
    with apply_patches("dynamo"):
        assert likelihood("NormalOutput", valid, -valid).isnan().all()
        # nobody else's
        with pytest.raises(ValueError, match="scale"):
            torch.distributions.Normal(valid, -valid)
    with pytest.raises(ValueError, match="scale"):
        likelihood("NormalOutput", valid, -valid)


@pytest.mark.parametrize("padded", [False, True])
def test_a_mask_of_nothing(padded: bool) -> None:
    """What eager returns: no mask where none is given, the original's where one is."""
    from transformers import AutoformerConfig
    from transformers.models.autoformer import modeling_autoformer

    config = AutoformerConfig(d_model=16, encoder_layers=1, decoder_layers=1, prediction_length=4)
    config._attn_implementation = "sdpa"
    given = torch.tensor([[1, 1, 1], [1, 1, 0]]) if padded else None

    def mask() -> Any:
        return modeling_autoformer.create_bidirectional_mask(config=config, inputs_embeds=random(2, 3, 16), attention_mask=given)

    expected, actual = patched(mask)
    assert (expected is None) == (actual is None) == (not padded)
    if padded:
        assert torch.equal(expected, actual)


@pytest.mark.parametrize("images", [1, 2, 3])
def test_image_pieces(images: int) -> None:
    """One piece that is the concatenation of the original's."""
    sample = build("Gemma4ForConditionalGeneration")
    pixels, positions = sample.inputs["pixel_values"], sample.inputs["image_position_ids"]
    repeats = [index % len(pixels) for index in range(images)]
    expected, actual = patched(sample.model.model.get_image_features, pixels[repeats], positions[repeats])
    assert torch.equal(torch.cat(list(expected.pooler_output)), torch.cat(list(actual.pooler_output)))
