"""Inputs as a user would pass them."""

from collections.abc import Callable

import pytest
import torch
from zoo_helpers import ROWS, input_sets

from exporters.zoo import catalogue
from exporters.zoo.inputs import SIZES, image_tokens, images_of_rows, row_lengths
from exporters.zoo.sample import Sample

SampleOf = Callable[[str], Sample]
TEXT = [name for name in ROWS if catalogue.entry(name).main_input == "input_ids" and "@" not in name]


def test_no_two_axes_have_the_same_sizes() -> None:
    assert len(set(SIZES.values())) == len(SIZES)


def test_row_one_is_padded_by_two() -> None:
    assert row_lengths(3, 10) == [10, 8, 9]
    assert row_lengths(1, 7) == [7]


@pytest.mark.parametrize("name", TEXT)
def test_ids_are_ordinary_and_padded(name: str, sample_of: SampleOf) -> None:
    sample = sample_of(name)
    text = sample.model.config.get_text_config()
    for inputs in input_sets(sample).values():
        ids, mask = inputs["input_ids"], inputs["attention_mask"]
        assert ids.dtype == mask.dtype == torch.int64
        assert 0 <= int(ids.min()) <= int(ids.max()) < text.vocab_size
        for row, real in zip(ids, mask.bool(), strict=True):
            assert row[real].unique().numel() > 3
            assert row[~real].unique().numel() <= 1
        if ids.shape[0] > 1:
            assert mask[0].all()
            assert mask[1].sum() == mask.shape[1] - 2


@pytest.mark.parametrize("name", ["T5ForConditionalGeneration", "NllbMoeForConditionalGeneration", "CLIPModel"])
def test_text_of_an_encoder_ends_with_eos(name: str, sample_of: SampleOf) -> None:
    sample = sample_of(name)
    eos = sample.model.config.get_text_config().eos_token_id
    ids, mask = sample.inputs["input_ids"], sample.inputs["attention_mask"]
    last = mask.sum(1) - 1
    assert ids[torch.arange(2), last].tolist() == [eos, eos]


@pytest.mark.parametrize("name", ["T5ForConditionalGeneration", "NllbMoeForConditionalGeneration", "WhisperForConditionalGeneration"])
def test_decoder_starts_with_its_start_token(name: str, sample_of: SampleOf) -> None:
    sample = sample_of(name)
    config = sample.model.config
    start = getattr(config, "decoder_start_token_id", None)
    assert set(sample.inputs["decoder_input_ids"][:, 0].tolist()) == {start if start is not None else config.pad_token_id}


def test_two_sentences_where_token_types_are_known(sample_of: SampleOf) -> None:
    types = sample_of("BertForSequenceClassification").inputs["token_type_ids"]
    assert types[0].unique().tolist() == [0, 1]
    assert "token_type_ids" not in sample_of("GPT2LMHeadModel").inputs


def test_images_are_spread_over_rows() -> None:
    assert images_of_rows(2, 3) == [2, 1]
    assert images_of_rows(3, 4) == [2, 1, 1]


def test_a_placeholder_for_every_image_feature(sample_of: SampleOf) -> None:
    sample = sample_of("LlavaForConditionalGeneration")
    config = sample.model.config
    for inputs in input_sets(sample).values():
        placeholders = (inputs["input_ids"] == config.image_token_id).sum(1)
        per_row = images_of_rows(inputs["input_ids"].shape[0], inputs["pixel_values"].shape[0])
        assert placeholders.tolist() == [count * image_tokens(config) for count in per_row]


def test_padded_pixels_are_masked_and_zero(sample_of: SampleOf) -> None:
    inputs = sample_of("DetrForObjectDetection").inputs
    mask = inputs["pixel_mask"].bool()
    assert mask[0].all()
    assert not mask[1].all()
    assert not inputs["pixel_values"][1][:, ~mask[1]].any()


def test_padded_sound_is_silent(sample_of: SampleOf) -> None:
    inputs = sample_of("Wav2Vec2ForCTC").inputs
    assert not inputs["input_values"][1, -200:].any()
    assert "attention_mask" not in inputs  # as its feature extractor: group norm was trained without


def test_shortest_sound_gives_a_frame(sample_of: SampleOf) -> None:
    sample = sample_of("Wav2Vec2ForCTC")
    shortest = next(axis for axis in sample.axes if axis.name == "samples").min
    assert sample.model(torch.randn(1, shortest)).logits.shape[1] == 1
