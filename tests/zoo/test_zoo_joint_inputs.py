"""Checkpoints that join text with pictures or sounds are given what their processor makes; where it can't, the rules, and the reason."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from processor_folders import FOLDERS, llava
from transformers import AutoProcessor, ProcessorMixin
from transformers.models.auto.video_processing_auto import AutoVideoProcessor
from zoo_helpers import input_sets, run

from exporters.chain import Request
from exporters.chain import run as run_chain
from exporters.zoo import checkpoints
from exporters.zoo.build import build
from exporters.zoo.overrides import override
from exporters.zoo.sample import Sample

CHAT = (
    "{% for message in messages %}<bos>{% for part in message['content'] %}"
    "{% if part['type'] == 'image' %}<image>{% else %}{{ part['text'] }}{% endif %}{% endfor %}{% endfor %}<eos>"
)


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    made = {name: tmp_path_factory.mktemp(name) for name in FOLDERS}
    for name, make in FOLDERS.items():
        make(made[name])
    return made


@pytest.fixture(scope="module")
def samples(folders: dict[str, Path]) -> dict[str, Sample]:
    return {name: checkpoints.load(folder) for name, folder in folders.items()}


@pytest.mark.parametrize(
    ("name", "source"),
    [
        ("clip", "English and gradients through its CLIPProcessor"),
        ("llava", "English and gradients through its LlavaProcessor"),
        ("qwen2_vl", "English and gradients through its Qwen2VLProcessor"),
        ("qwen2_audio", "English and tones through its Qwen2AudioProcessor"),
        ("clap", "English and tones through its ClapProcessor"),
        ("whisper", "tones through its WhisperFeatureExtractor, English through its tokenizer"),
    ],
)
def test_inputs_come_from_the_processor_and_the_model_takes_them(name: str, source: str, samples: dict[str, Sample]) -> None:
    sample = samples[name]
    assert sample.source == source
    sizes = [axis.sizes for axis in sample.axes]
    assert len(set(sizes)) == len(sizes)
    for inputs in input_sets(sample).values():
        assert all(tensor.is_contiguous() for tensor in inputs.values())
        assert all(torch.isfinite(tensor).all() for tensor in run(sample, inputs).values())


def test_texts_and_images_that_meet_in_a_product_come_in_numbers_of_their_own(samples: dict[str, Sample]) -> None:
    axes = {axis.name: axis.sizes for axis in samples["clip"].axes}
    assert (axes["batch"], axes["images"]) == ((2, 3, 1), (3, 4, 1))
    # what the processor did: the mean and deviation of CLIP's own normalization, which bytes as they are don't have
    pixels = samples["clip"].inputs["pixel_values"]
    assert -2.0 < float(pixels.min()) < -1.0
    assert 1.0 < float(pixels.max()) < 2.3
    ids, mask = samples["clip"].inputs["input_ids"], samples["clip"].inputs["attention_mask"]
    assert (ids[:, 0] == 1).all()
    assert (mask.sum(1) < ids.shape[1]).any()


def test_a_text_has_a_placeholder_for_each_feature_of_its_images(samples: dict[str, Sample]) -> None:
    sample = samples["llava"]
    config: Any = sample.model.config
    features = (config.vision_config.image_size // config.vision_config.patch_size) ** 2
    for inputs in input_sets(sample).values():
        placeholders = int((inputs["input_ids"] == config.image_token_id).sum())
        assert placeholders == inputs["pixel_values"].shape[0] * features


def test_pictures_go_without_the_package_that_videos_need(samples: dict[str, Sample]) -> None:
    sample = samples["qwen2_vl"]
    config: Any = sample.model.config
    merged = config.vision_config.spatial_merge_size**2
    for inputs in input_sets(sample).values():
        features = int(inputs["image_grid_thw"].prod(1).sum()) // merged
        assert int((inputs["input_ids"] == config.image_token_id).sum()) == features
        assert int((inputs["mm_token_type_ids"] == 1).sum()) == features
        starts = (inputs["input_ids"] == config.vision_start_token_id).sum()
        assert int(starts) == len(inputs["image_grid_thw"])  # marked as its config says, for want of a chat template
    assert {"patches", "images", "sequence", "batch"} == {axis.name for axis in sample.axes}
    # and what was set aside while it was loaded is back
    assert AutoVideoProcessor.from_pretrained.__func__.__name__ == "from_pretrained"
    assert ProcessorMixin.check_argument_for_proper_class.__name__ == "check_argument_for_proper_class"


def test_a_text_has_a_placeholder_for_each_feature_of_its_sounds(samples: dict[str, Sample]) -> None:
    sample = samples["qwen2_audio"]
    config: Any = sample.model.config
    mask = sample.inputs["feature_attention_mask"]
    assert mask.sum(1).tolist() == [64, 45]  # the second sound is shorter
    heard = [((int(frames) - 1) // 2 + 1 - 2) // 2 + 1 for frames in mask.sum(1)]
    assert (sample.inputs["input_ids"] == config.audio_token_id).sum(1).tolist() == heard


def test_what_was_written_begins_as_generation_does(samples: dict[str, Sample]) -> None:
    ids = samples["whisper"].inputs["decoder_input_ids"]
    assert (ids[:, 0] == 1).all()
    assert (ids[:, 1] != 1).all()  # its tokenizer puts it there already


def test_a_chat_template_says_how_a_text_names_its_images(tmp_path: Path) -> None:
    llava(tmp_path, chat_template=CHAT)
    sample = checkpoints.load(tmp_path)
    assert sample.source == "English and gradients through its LlavaProcessor"
    ids = sample.inputs["input_ids"]
    assert (ids[:, 0] == 1).all()
    assert ((ids == 2).sum(1) == 1).all()


# ── Where the rules stay ──────────────────────────────────────────────────────


def test_a_folder_without_a_processor_says_so(tmp_path: Path) -> None:
    build("LlavaForConditionalGeneration").model.save_pretrained(tmp_path)
    source = checkpoints.load(tmp_path).source
    assert source.startswith("rules: its processor can't be loaded (")


def test_a_processor_whose_package_is_not_installed_is_said(folders: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: Any, **options: Any) -> Any:
        raise ImportError("\nCLIPImageProcessor requires the PIL library but it was not found")

    monkeypatch.setattr(AutoProcessor, "from_pretrained", refuse)
    sample = checkpoints.load(folders["clip"])
    assert sample.source == "rules: its processor can't be imported (CLIPImageProcessor requires the PIL library but it was not found)"
    assert run(sample, sample.inputs)


def test_a_model_that_refuses_what_its_processor_makes_is_given_the_rules(folders: dict[str, Path], tmp_path: Path) -> None:
    """A processor of another patch size writes too many placeholders."""
    llava(tmp_path)
    file = tmp_path / "processor_config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "patch_size": 4}))
    sample = checkpoints.load(tmp_path)
    assert sample.source.startswith("rules: the model refuses what came of English and gradients through its LlavaProcessor (")
    assert run(sample, sample.inputs)


def test_a_tokenizer_that_knows_no_text_here_leaves_the_rules(folders: dict[str, Path], tmp_path: Path) -> None:
    llava(tmp_path)
    file = tmp_path / "tokenizer.json"
    words = json.loads(file.read_text())
    kept = {token: index for token, index in words["model"]["vocab"].items() if index < 6}
    words["model"] |= {"vocab": kept, "merges": []}
    file.write_text(json.dumps(words))
    assert checkpoints.load(tmp_path).source == "rules: its LlavaProcessor doesn't know the words of any text here"


def test_what_a_processor_makes_goes_before_what_is_declared_for_the_tiny_model(samples: dict[str, Sample]) -> None:
    declared = override("clap").inputs["tensors"]["input_features"]["axes"]
    assert samples["clap"].inputs["input_features"].shape[2] == 1001 != declared[2]


# ── And through the chain ─────────────────────────────────────────────────────


UNTRACED = "Qwen2VLForConditionalGeneration can't be traced with any inputs: get_rope_index walks the tokens in Python"


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[pytest.mark.xfail(strict=True, reason=UNTRACED)] if name == "qwen2_vl" else []) for name in sorted(FOLDERS)],
)
def test_it_exports_and_matches_at_other_sizes(name: str, folders: dict[str, Path], tmp_path: Path) -> None:
    report = run_chain(Request(model=str(folders[name]), backend="onnx", home=str(tmp_path)))
    assert (report.outcome, report.error) == ("verified", None)
    assert "through its" in report.inputs
    again = run_chain(Request(model=str(folders[name]), backend="onnx", home=str(tmp_path)))
    assert again.inputs == report.inputs  # known without building the sample
    assert all(stage.cached for stage in again.stages)
