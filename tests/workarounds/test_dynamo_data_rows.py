"""Rows that are a quotient: VideoMAE's patches by video, MusicGen's codebooks by example."""

import copy
from typing import Any

import pytest
import torch
from workaround_helpers import assert_restores, leave_out

from exporters import DynamoConfig, DynamoExporter, OnnxConfig, OnnxExporter, varying
from exporters.exported import Exported
from exporters.utils import apply_patches
from exporters.zoo.build import build
from exporters.zoo.sample import Sample

VIDEO, CODEBOOKS = "dynamo:_patch_rows_of_data", "dynamo:_patch_codebook_rows"


def export(name: str, backend: str = "dynamo") -> tuple[Sample, Exported]:
    sample = build(name)
    dynamic: dict[str, Any] = {"dynamic": True, "dynamic_shapes": varying(sample.inputs, sample.others, sample.axes).dynamic_shapes}
    if backend == "onnx":
        return sample, OnnxExporter().export(sample.model, sample.inputs, config=OnnxConfig(**dynamic))
    return sample, DynamoExporter().export(sample.model, sample.inputs, config=DynamoConfig(**dynamic))


def eager(sample: Sample, inputs: dict[str, Any]) -> Any:
    with torch.no_grad():
        return sample.model(**copy.deepcopy(inputs))


def masked(sample: Sample, counts: list[int]) -> dict[str, torch.Tensor]:
    """Inputs with so many masked patches in each video."""
    inputs = copy.deepcopy(sample.inputs)
    mask = torch.zeros_like(inputs["bool_masked_pos"])
    for row, count in zip(mask, counts, strict=True):
        row[:count] = True
    return {**inputs, "bool_masked_pos": mask}


@pytest.mark.e2e
@pytest.mark.parametrize("backend", ["dynamo", "onnx"])
def test_videos(backend: str) -> None:
    """Any number of masked patches; a number that can't be shared out is refused, as eager refuses it."""
    sample, exported = export("VideoMAEForPreTraining", backend)
    for counts in ([3, 3], [5, 5], [2, 6]):
        given = masked(sample, counts)
        torch.testing.assert_close(exported(**given).logits, eager(sample, given).logits, atol=1e-4, rtol=1e-3)
    uneven = masked(sample, [3, 4])
    with pytest.raises(RuntimeError):
        eager(sample, uneven)
    with pytest.raises(Exception, match=r"[Rr]eshape|[Rr]untime assertion|Eq\("):
        exported(**uneven)


def test_videos_outside_of_a_trace() -> None:
    sample = build("VideoMAEForPreTraining")
    expected = eager(sample, sample.inputs)
    with apply_patches("dynamo"):
        assert torch.equal(eager(sample, sample.inputs).logits, expected.logits)
        with pytest.raises(RuntimeError):
            eager(sample, masked(sample, [3, 4]))


@pytest.mark.e2e
def test_one_example_of_codes() -> None:
    sample, exported = export("MusicgenForCausalLM")
    assert CODEBOOKS in exported.stages[0].seen.fired
    for given in (sample.inputs, *sample.others.values()):
        actual = exported(**copy.deepcopy(given))
        torch.testing.assert_close(actual.logits, eager(sample, given).logits, atol=1e-4, rtol=1e-3)


@pytest.mark.e2e
def test_canary_of_codes(monkeypatch: pytest.MonkeyPatch) -> None:
    leave_out(monkeypatch, CODEBOOKS)
    sample, exported = export("MusicgenForCausalLM")
    with pytest.raises(AssertionError, match="Guard failed"):
        exported(**copy.deepcopy(sample.others["batch_1"]))


def test_codes_outside_of_a_trace() -> None:
    sample = build("MusicgenForCausalLM")
    expected = eager(sample, sample.inputs)
    with apply_patches("dynamo"):
        assert torch.equal(eager(sample, sample.inputs).logits, expected.logits)


@pytest.mark.parametrize("name", [VIDEO, CODEBOOKS])
def test_originals_come_back(name: str) -> None:
    assert_restores(name)
