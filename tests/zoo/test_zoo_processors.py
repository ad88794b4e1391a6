"""Checkpoints of sound and vision are given what their own processor makes."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import ASTFeatureExtractor, Wav2Vec2FeatureExtractor

from exporters.zoo import checkpoints, processors
from exporters.zoo.build import build
from exporters.zoo.processors import media_inputs

FORWARD = frozenset({"input_values", "attention_mask", "pixel_values"})


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sound")
    build("Wav2Vec2ForCTC").model.save_pretrained(folder)
    Wav2Vec2FeatureExtractor(return_attention_mask=True).save_pretrained(folder)
    return folder


def test_a_checkpoint_of_sound_is_given_tones_through_its_feature_extractor(sound: Path) -> None:
    sample = checkpoints.load(sound)
    assert sample.source == "tones through its Wav2Vec2FeatureExtractor"
    values, mask = sample.inputs["input_values"], sample.inputs["attention_mask"]
    assert values.shape == mask.shape == (2, 16000)
    # the second row is shorter, and silent where it is padded; what is heard has the mean and variance that the extractor gives it
    assert mask.sum(1).tolist() == [16000, 11200]
    assert values[1, 11200:].eq(0).all()
    torch.testing.assert_close(values[0].mean(), torch.tensor(0.0), atol=1e-4, rtol=0)
    torch.testing.assert_close(values[0].var(unbiased=False), torch.tensor(1.0), atol=1e-3, rtol=0)
    assert {axis.name: axis.sizes for axis in sample.axes} == {"batch": (2, 3, 1), "samples": (16000, 24000, 12800)}
    with torch.no_grad():
        assert sample.model(**sample.inputs).logits.isfinite().all()


def test_a_number_of_frames_that_the_extractor_fixes_is_no_axis(tmp_path: Path) -> None:
    pytest.importorskip("scipy")
    try:
        ASTFeatureExtractor(max_length=64).save_pretrained(tmp_path)
    except ImportError:
        pytest.skip("this extractor needs a package that isn't installed")
    [(_, refused), (leaves, _)] = media_inputs(tmp_path, "input_values", FORWARD)
    assert refused.startswith("rules: its ASTFeatureExtractor can't be used") or leaves is not None
    assert leaves is not None
    assert leaves["other"]["input_values"].axes == ("batch", "", "")


def test_a_folder_without_a_processor_is_given_rules(tmp_path: Path) -> None:
    build("Wav2Vec2ForCTC").model.save_pretrained(tmp_path)
    assert checkpoints.load(tmp_path).source == "rules"


def test_an_image_processor_whose_package_is_not_installed_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(folder: Path, main_input: str) -> Any:
        raise ImportError("\nViTImageProcessor requires the PIL library but it was not found")

    monkeypatch.setattr(processors, "_processor", refuse)
    assert list(media_inputs(tmp_path, "pixel_values", FORWARD)) == [
        (None, "rules: its processor can't be imported (ViTImageProcessor requires the PIL library but it was not found)")
    ]


class Halves:
    """An image processor as transformers': pictures (height, width, 3) uint8 in, `pixel_values` out; here at half their size."""

    def __call__(self, pictures: list[Any], *, return_tensors: str) -> dict[str, torch.Tensor]:
        assert return_tensors == "pt"
        assert all(picture.dtype == np.uint8 and picture.shape[-1] == 3 for picture in pictures)
        values = torch.stack([torch.from_numpy(picture[::2, ::2]).permute(2, 0, 1) / 255 for picture in pictures])
        return {"pixel_values": values, "original_sizes": torch.zeros(len(pictures), 2)}


def test_pictures_go_through_the_image_processor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processors, "_processor", lambda folder, main_input: Halves())
    [(leaves, source)] = media_inputs(tmp_path, "pixel_values", FORWARD)
    assert source == "gradients through its Halves"
    assert leaves is not None
    assert leaves["inputs"].keys() == {"pixel_values"}  # forward takes nothing else
    assert leaves["inputs"]["pixel_values"].axes == ("batch", "", "image_height", "image_width")
    assert leaves["other"]["pixel_values"].tensor.shape == (3, 3, 192, 256)
    assert leaves["inputs"]["pixel_values"].tensor.unique().numel() > 100


def test_a_processor_that_is_broken_leaves_the_rules(tmp_path: Path) -> None:
    (tmp_path / "preprocessor_config.json").write_text(json.dumps({"feature_extractor_type": "Nothing"}))
    assert list(media_inputs(tmp_path, "input_values", FORWARD)) == [(None, "rules")]
