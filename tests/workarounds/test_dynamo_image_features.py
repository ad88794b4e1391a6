"""_patch_image_features: any number of images."""

import copy
from functools import lru_cache
from typing import Any

import pytest
import torch
from torch import nn
from workaround_helpers import assert_restores, export_onnx, fired, leave_out

from exporters.errors import ExportError
from exporters.utils import apply_patches
from exporters.zoo.build import build
from exporters.zoo.sample import Sample

NAME = "dynamo:_patch_image_features"


@lru_cache(maxsize=1)
def sample() -> Sample:
    return build("LlavaForConditionalGeneration")


@pytest.mark.parametrize("images", [1, 3])
def test_the_same_features_joined(images: int) -> None:
    model = sample().model.model
    pixels = torch.randn(images, *sample().inputs["pixel_values"].shape[1:])
    with torch.no_grad():
        expected = model.get_image_features(pixel_values=pixels)
        with apply_patches("dynamo"):
            actual = model.get_image_features(pixel_values=pixels)
    assert len(expected.pooler_output) == images
    assert len(actual.pooler_output) == 1
    torch.testing.assert_close(actual.pooler_output[0], torch.cat(expected.pooler_output))
    torch.testing.assert_close(actual.last_hidden_state, expected.last_hidden_state)
    assert not model.multi_modal_projector._forward_hooks


def test_images_of_several_sizes_are_left_alone() -> None:
    class Model:
        multi_modal_projector = nn.Identity()

    seen: dict[str, Any] = {}

    def original(self: Any, **given: Any) -> str:
        seen.update(given, hooks=len(self.multi_modal_projector._forward_hooks))
        return "split"

    from exporters.models.llava import _patch_image_features

    assert _patch_image_features(original)(Model(), image_sizes=torch.tensor([[4, 4]])) == "split"
    assert seen["hooks"] == 0


def test_originals_come_back() -> None:
    sample()
    assert_restores(NAME)


@pytest.mark.e2e
def test_effect() -> None:
    given, others = sample().inputs, sample().others
    exported = export_onnx(sample().model, given, *others.values())
    assert NAME in fired(exported)
    for inputs in (given, *others.values()):
        with torch.no_grad():
            expected = sample().model(**copy.deepcopy(inputs))
        actual = exported(**inputs)
        torch.testing.assert_close(actual.logits, expected.logits, atol=1e-4, rtol=1e-3)
        torch.testing.assert_close(
            torch.cat(list(actual.image_outputs.pooler_output)), torch.cat(expected.image_outputs.pooler_output), atol=1e-4, rtol=1e-3
        )


@pytest.mark.e2e
def test_canary(monkeypatch: pytest.MonkeyPatch) -> None:
    leave_out(monkeypatch, NAME)
    with pytest.raises(ExportError, match="pixel_values"):
        export_onnx(sample().model, sample().inputs, *sample().others.values())
