"""The decode step: one token from a filled cache, equal to the last position of the whole text."""

import copy
from collections.abc import Callable

import pytest
import torch
from zoo_helpers import input_sets, run

from exporters.zoo.inputs import SETS
from exporters.zoo.overrides import override
from exporters.zoo.probe import _decode_differs
from exporters.zoo.probe import leaves as _leaves
from exporters.zoo.sample import Sample
from exporters.zoo.variants import make_sample

NAME = "LlamaForCausalLM@decode"
SampleOf = Callable[[str], Sample]


def test_inputs_are_one_token_a_cache_and_the_mask_over_both(sample_of: SampleOf) -> None:
    for inputs in input_sets(sample_of(NAME)).values():
        past = inputs["cache"].get_seq_length()
        assert set(inputs) == {"input_ids", "attention_mask", "cache"}
        assert inputs["input_ids"].shape[1] == 1
        assert inputs["attention_mask"].shape[1] == past + 1
        assert all(layer.keys.is_contiguous() and not layer.keys.requires_grad for layer in inputs["cache"].layers)


def test_padding_is_on_the_left(sample_of: SampleOf) -> None:
    mask = sample_of(NAME).inputs["attention_mask"]
    assert mask[1].tolist() == [0, 0] + [1] * (mask.shape[1] - 2)


def test_one_token_equals_the_last_position_of_the_whole(sample_of: SampleOf) -> None:
    sample = sample_of(NAME)
    for name, inputs in zip(SETS, input_sets(sample).values(), strict=True):
        texts = sample.wholes[name]
        assert torch.equal(texts["input_ids"][:, -1:], inputs["input_ids"])
        with torch.no_grad():
            expected = sample.model(**texts).logits[:, -1:]
        torch.testing.assert_close(run(sample, inputs)["logits"], expected, atol=1e-5, rtol=1e-5)


def test_a_call_appends_to_the_cache_that_it_is_given(sample_of: SampleOf) -> None:
    """Why whoever runs a sample copies it first."""
    sample = sample_of(NAME)
    cache = copy.deepcopy(sample.inputs["cache"])
    before = cache.get_seq_length()
    with torch.no_grad():
        sample.model(**{**sample.inputs, "cache": cache})
    assert (cache.get_seq_length(), sample.inputs["cache"].get_seq_length()) == (before + 1, before)


def test_past_and_total_have_bounds_that_agree(sample_of: SampleOf) -> None:
    axes = {axis.name: axis for axis in sample_of(NAME).axes}
    assert axes["past"].max == axes["total"].max - 1
    assert axes["past"].min == axes["total"].min - 1


@pytest.mark.parametrize(
    ("name", "given"),
    [
        ("T5ForConditionalGeneration@decode", {"attention_mask", "decoder_input_ids", "encoder_outputs", "cache"}),
        ("WhisperForConditionalGeneration@decode", {"decoder_input_ids", "encoder_outputs", "cache"}),
        ("LlavaForConditionalGeneration@decode", {"input_ids", "attention_mask", "cache"}),  # the image is past
    ],
)
def test_a_step_is_given_what_it_still_needs(name: str, given: set[str], sample_of: SampleOf) -> None:
    assert set(sample_of(name).inputs) == given


def test_a_step_doesn_t_pad_what_counts_from_the_first_token(sample_of: SampleOf) -> None:
    assert sample_of("RobertaForCausalLM@decode").inputs["attention_mask"].all()


def test_what_is_past_fills_a_sliding_window(sample_of: SampleOf) -> None:
    sample = sample_of("MistralForCausalLM@decode")
    lengths = {inputs["cache"].layers[0].keys.shape[2] for inputs in input_sets(sample).values()}
    assert lengths == {sample.model.config.sliding_window - 1}


# ── What is declared of a step ────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("name", "part", "given"),
    [
        ("BlipForConditionalGeneration@decode", "BlipTextLMHeadModel", {"input_ids", "attention_mask", "encoder_hidden_states", "cache"}),
        ("Blip2ForConditionalGeneration@decode", "OPTForCausalLM", {"inputs_embeds", "attention_mask", "cache"}),
        ("ClvpModelForConditionalGeneration@decode", "ClvpForCausalLM", {"inputs_embeds", "cache"}),
    ],
)
def test_a_step_of_a_part_is_given_what_reaches_it_in_the_whole(name: str, part: str, given: set[str], sample_of: SampleOf) -> None:
    sample = sample_of(name)
    assert type(sample.model).__name__ == part
    assert set(sample.inputs) == given
    assert not _decode_differs(sample)


@pytest.mark.parametrize(
    ("name", "cache"),
    [
        ("ParakeetForRNNT@decode", "decoder_cache"),  # filled token by token
        ("NemotronAsrStreamingForRNNT@decode", "decoder_cache"),  # handed to it
        ("ReformerModelWithLMHead@decode", "past_buckets_states"),
        ("XLNetLMHeadModel@decode", "mems"),
        ("XLMWithLMHeadModel@decode", "cache"),  # handed to it, and not handed back
        ("EvollaForProteinText2Text@decode", "cache"),  # through its keyword arguments
        ("FSMTForConditionalGeneration@decode", "cache"),  # whose whole is causal only without one
        ("BambaForCausalLM@decode", "cache"),  # told where the token stands
    ],
)
def test_a_cache_of_another_name_or_kind_is_filled_all_the_same(name: str, cache: str, sample_of: SampleOf) -> None:
    sample = sample_of(name)
    assert sample.inputs[cache] is not None
    assert not _decode_differs(sample)
    for path, tensor in _leaves(sample.inputs[cache]):
        assert tensor.is_contiguous(), path


def test_a_step_without_its_past_is_another(sample_of: SampleOf) -> None:
    """What the comparison with the whole would say of a step that forgot everything."""
    sample = sample_of("ParakeetForRNNT@decode")
    for state in (sample.inputs["decoder_cache"].hidden_state, sample.inputs["decoder_cache"].cell_state):
        assert state.abs().max() > 0.01
    forgetful = copy.deepcopy(sample.inputs)
    forgetful["decoder_cache"].hidden_state.zero_()
    forgetful["decoder_cache"].cell_state.zero_()
    assert not torch.allclose(run(sample, forgetful)["logits"], run(sample, sample.inputs)["logits"], atol=1e-3)


def test_other_cached_decoders_need_no_code_of_their_own(sample_of: SampleOf) -> None:
    model = sample_of("MixtralForCausalLM").model
    sample = make_sample(model, "decode", "input_ids", override("mixtral"), seed=0)
    assert torch.isfinite(run(sample, sample.inputs)["logits"]).all()
