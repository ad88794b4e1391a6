"""Longformer and LED attend to the whole sequence under a mask: the numbers are those of their windows."""

import pytest
import torch
from torch import nn
from workaround_helpers import assert_restores, leave_out

from exporters import DynamoConfig, DynamoExporter, varying
from exporters.exported import Exported
from exporters.utils import apply_patches
from exporters.zoo.build import build

ATTENTION, PADDING = "dynamo:_patch_window_attention", "dynamo:_patch_window_padding"


def model(name: str, dtype: torch.dtype = torch.float32) -> nn.Module:
    return build(name).model.to(dtype)


def run(model: nn.Module, length: int, kind: str) -> torch.Tensor:
    """The last hidden state of random tokens, some of them padding, some with global attention."""
    generator = torch.Generator().manual_seed(length)
    ids = torch.randint(3, 90, (3, length), generator=generator)
    attention, everywhere = torch.ones_like(ids), torch.zeros_like(ids)
    if "padded" in kind:
        attention[1, length // 2 :] = 0
        attention[2, : length // 3] = 0
    if "global" in kind:
        everywhere[0, 0] = everywhere[1, length // 3] = everywhere[1, -1] = 1
    inputs = {"input_ids": ids, "attention_mask": attention, "global_attention_mask": everywhere}
    with torch.no_grad():
        return model(**inputs).last_hidden_state


@pytest.mark.parametrize("kind", ["plain", "padded", "global", "padded and global"])
@pytest.mark.parametrize("length", [1, 5, 8, 19, 32])
@pytest.mark.parametrize("name", ["LongformerForMaskedLM", "LEDForConditionalGeneration"])
def test_semantics(name: str, length: int, kind: str) -> None:
    whole = model(name)
    encoder = whole.get_submodule("longformer" if name.startswith("Longformer") else "led.encoder")
    expected = run(encoder, length, kind)
    with apply_patches("dynamo"):
        actual = run(encoder, length, kind)
    torch.testing.assert_close(actual, expected, atol=1e-5, rtol=1e-4)


def test_half() -> None:
    encoder = model("LongformerForMaskedLM", torch.float16).get_submodule("longformer")
    expected = run(encoder, 19, "padded and global")
    with apply_patches("dynamo"):
        actual = run(encoder, 19, "padded and global")
    torch.testing.assert_close(actual, expected, atol=2e-2, rtol=2e-2)


def test_attentions_are_the_original_s() -> None:
    encoder = model("LongformerForMaskedLM").get_submodule("longformer")
    encoder.config.output_attentions = True
    try:
        ids = torch.arange(3, 13)[None]
        with torch.no_grad():
            expected = encoder(ids).attentions
            with apply_patches("dynamo"):
                actual = encoder(ids).attentions
    finally:
        encoder.config.output_attentions = False
    assert len(actual) == len(expected)
    assert all(torch.equal(got, wanted) for got, wanted in zip(actual, expected, strict=True))


def export() -> tuple[nn.Module, Exported]:
    sample = build("LongformerForMaskedLM")
    shapes = varying(sample.inputs, sample.others, sample.axes)
    config = DynamoConfig(dynamic=True, dynamic_shapes=shapes.dynamic_shapes)
    return sample.model, DynamoExporter().export(sample.model, sample.inputs, config=config)


def logits(model: nn.Module, exported: Exported, length: int) -> tuple[torch.Tensor, torch.Tensor]:
    inputs = {name: torch.ones(2, length, dtype=torch.int64) for name in exported.signature.arguments}
    inputs["input_ids"] = torch.randint(3, 90, (2, length), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        return model(**inputs).logits, exported(**inputs).logits


@pytest.mark.e2e
def test_effect_at_a_whole_number_of_windows() -> None:
    model, exported = export()
    assert {ATTENTION, PADDING} <= set(exported.stages[0].seen.fired)
    for length in (16, 11):
        expected, actual = logits(model, exported, length)
        torch.testing.assert_close(actual, expected, atol=1e-4, rtol=1e-3)


@pytest.mark.e2e
def test_canary_of_the_padding(monkeypatch: pytest.MonkeyPatch) -> None:
    leave_out(monkeypatch, PADDING)
    with pytest.raises(Exception, match=r"Guard failed|Constraints violated|guard"):
        logits(*export(), 16)


@pytest.mark.parametrize("name", [ATTENTION, PADDING])
def test_originals_come_back(name: str) -> None:
    assert_restores(name)
