"""Checkpoint folders as the hub has them, made without it: a tiny model with its own tokenizer, image processor or feature extractor."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer, models, pre_tokenizers, processors, trainers
from transformers import (
    ClapFeatureExtractor,
    ClapProcessor,
    CLIPImageProcessor,
    CLIPProcessor,
    LlavaProcessor,
    PreTrainedTokenizerFast,
    Qwen2AudioProcessor,
    Qwen2VLImageProcessor,
    WhisperFeatureExtractor,
    WhisperProcessor,
)

from exporters.zoo.build import build
from exporters.zoo.texts import CORPORA

SPECIALS = ("<pad>", "<bos>", "<eos>", "<unk>")
VOCABULARY = 200  # of the tiny models' 256


def tokenizer(*more: str, ends: bool = True) -> PreTrainedTokenizerFast:
    """Byte pairs of English, its special tokens first; `more` follow them. Texts end with `<eos>` if `ends`."""
    trained = Tokenizer(models.BPE(unk_token="<unk>"))
    trained.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(vocab_size=VOCABULARY, special_tokens=[*SPECIALS, *more], show_progress=False)
    trained.train_from_iterator([text for texts in CORPORA["English"].values() for text in texts], trainer)
    if ends:
        trained.post_processor = processors.TemplateProcessing(single="<bos> $A <eos>", special_tokens=[("<bos>", 1), ("<eos>", 2)])
    return PreTrainedTokenizerFast(
        tokenizer_object=trained,
        pad_token="<pad>",
        bos_token="<bos>",
        eos_token="<eos>",
        unk_token="<unk>",
        extra_special_tokens=list(more),
    )


def _images(size: int) -> Any:
    return CLIPImageProcessor(size={"shortest_edge": size}, crop_size={"height": size, "width": size})


def _spectrogram(config: Any) -> WhisperFeatureExtractor:
    """A second of sound as two frames a position of the encoder."""
    frames = 2 * config.max_source_positions
    return WhisperFeatureExtractor(feature_size=config.num_mel_bins, chunk_length=1, hop_length=16000 // frames)


def clip(folder: Path) -> None:
    """Text and images apart: two towers that meet in a product."""
    model: Any = build("CLIPModel").model
    model.config.text_config.eos_token_id = 2
    model.save_pretrained(folder)
    CLIPProcessor(_images(model.config.vision_config.image_size), tokenizer()).save_pretrained(folder)


def llava(folder: Path, *, chat_template: str | None = None) -> None:
    """Images in the text: a placeholder for each feature."""
    model: Any = build("LlavaForConditionalGeneration").model
    words = tokenizer("<image>", ends=False)
    model.config.image_token_index = words.convert_tokens_to_ids("<image>")
    model.config.image_token_id = model.config.image_token_index
    seen = model.config.vision_config
    model.save_pretrained(folder)
    LlavaProcessor(
        _images(seen.image_size),
        words,
        patch_size=seen.patch_size,
        vision_feature_select_strategy=model.config.vision_feature_select_strategy,
        num_additional_image_tokens=1,
        chat_template=chat_template,
    ).save_pretrained(folder)


def qwen2_vl(folder: Path) -> None:
    """Images in the text, of any size: as many placeholders as the grid of each asks for. Its part for videos needs torchvision."""
    model: Any = build("Qwen2VLForConditionalGeneration").model
    marks = ("<|vision_start|>", "<|vision_end|>", "<|image_pad|>", "<|video_pad|>")
    words = tokenizer(*marks, ends=False)
    for field, mark in zip(("vision_start_token_id", "vision_end_token_id", "image_token_id", "video_token_id"), marks, strict=True):
        setattr(model.config, field, words.convert_tokens_to_ids(mark))
    seen = model.config.vision_config
    model.save_pretrained(folder)
    words.save_pretrained(folder)
    images = Qwen2VLImageProcessor(
        patch_size=seen.patch_size,
        merge_size=seen.spatial_merge_size,
        temporal_patch_size=seen.temporal_patch_size,
        min_pixels=(2 * seen.patch_size) ** 2,
        max_pixels=(8 * seen.patch_size) ** 2,
    )
    images.save_pretrained(folder)
    file = folder / "preprocessor_config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "processor_class": "Qwen2VLProcessor"}))


def qwen2_audio(folder: Path) -> None:
    """Sounds in the text: a placeholder for each feature."""
    model: Any = build("Qwen2AudioForConditionalGeneration").model
    words = tokenizer("<|AUDIO|>", "<|audio_bos|>", "<|audio_eos|>", ends=False)
    model.config.audio_token_id = words.convert_tokens_to_ids("<|AUDIO|>")
    model.config.audio_token_index = model.config.audio_token_id
    seen = model.config.audio_config
    model.save_pretrained(folder)
    Qwen2AudioProcessor(_spectrogram(seen), words).save_pretrained(folder)


def clap(folder: Path) -> None:
    """Text and sounds apart."""
    model: Any = build("ClapModel").model
    model.save_pretrained(folder)
    seen = model.config.audio_config
    ClapProcessor(ClapFeatureExtractor(feature_size=seen.num_mel_bins, truncation="rand_trunc"), tokenizer()).save_pretrained(folder)


def whisper(folder: Path) -> None:
    """A sound in, text out."""
    model: Any = build("WhisperForConditionalGeneration").model
    model.config.decoder_start_token_id = 1
    model.save_pretrained(folder)
    WhisperProcessor(_spectrogram(model.config), tokenizer()).save_pretrained(folder)


FOLDERS: dict[str, Callable[[Path], None]] = {make.__name__: make for make in (clip, llava, qwen2_vl, qwen2_audio, clap, whisper)}
