"""What vision encoders compute from the grids of several images equals what a loop over the images gives."""

import copy
from typing import Any

import pytest
import torch
from transformers import vision_utils
from transformers.models.minicpmv4_7 import modeling_minicpmv4_7
from transformers.models.muse_glimmer import modeling_muse_glimmer
from workaround_helpers import assert_restores, leave_out

from exporters import DynamoConfig, DynamoExporter, varying
from exporters.exported import Exported
from exporters.utils import apply_patches
from exporters.zoo.build import build
from exporters.zoo.sample import Sample

# frames, height, width of each image: one, several, frames of a video, smaller than a window, no whole number of windows
GRIDS = [[[1, 2, 2]], [[1, 4, 2], [2, 2, 6], [1, 2, 2]], [[3, 6, 4], [1, 4, 8]], [[1, 10, 6], [2, 8, 2]]]


def both(module: Any, name: str, *args: Any, **kwargs: Any) -> tuple[Any, Any]:
    """What a function of a module gives, and what it gives with the patches installed."""
    expected = getattr(module, name)(*copy.deepcopy(args), **copy.deepcopy(kwargs))
    with apply_patches("dynamo"):
        return expected, getattr(module, name)(*copy.deepcopy(args), **copy.deepcopy(kwargs))


@pytest.mark.parametrize("grid", GRIDS)
@pytest.mark.parametrize(("side", "temporal"), [(2, False), (1, False), (2, True)])
def test_positions(grid: list[list[int]], side: int, temporal: bool) -> None:
    expected, actual = both(vision_utils, "get_vision_position_ids", torch.tensor(grid), side, include_temporal=temporal)
    assert torch.equal(actual, expected)


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32])
@pytest.mark.parametrize("grid", GRIDS)
@pytest.mark.parametrize(("merge", "window"), [(1, 2), (1, 3), (2, 4), (2, 8), (1, 64)])
def test_windows(grid: list[list[int]], merge: int, window: int, dtype: torch.dtype) -> None:
    expected, actual = both(vision_utils, "get_vision_window_index", torch.tensor(grid, dtype=dtype), merge, window, 1)
    for got, wanted in zip(actual, expected, strict=True):
        assert torch.equal(got, wanted)
        assert got.dtype is wanted.dtype


@pytest.mark.parametrize("grid", GRIDS)
def test_shuffle_index(grid: list[list[int]]) -> None:
    expected, actual = both(modeling_muse_glimmer, "get_vision_pixel_shuffle_index", torch.tensor(grid), 2)
    assert torch.equal(actual, expected)


@pytest.mark.parametrize("grid", GRIDS)
@pytest.mark.parametrize(("mode", "align", "merge", "padding"), [("bilinear", True, 2, "border"), ("bicubic", False, 1, "zeros")])
def test_interpolation(grid: list[list[int]], mode: str, align: bool, merge: int, padding: str) -> None:
    name = "get_vision_interpolation_indices_and_weights"
    expected, actual = both(vision_utils, name, torch.tensor(grid), 5, mode, align, merge, padding)
    assert all(torch.equal(got, wanted) for got, wanted in zip(actual, expected, strict=True))


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32])
@pytest.mark.parametrize("side", [1, 2, 7, 14, 24, 32, 70])
def test_nearest_positions(side: int, dtype: torch.dtype) -> None:
    """Every size up to more than the table has: fractions that fall on a boundary, too."""
    sizes = torch.tensor([[height, 1 + height % 5] for height in range(1, 2 * side + 3)], dtype=dtype)
    expected, actual = both(modeling_minicpmv4_7, "get_vision_nearest_position_ids", sizes, side)
    assert torch.equal(actual, expected)


@pytest.mark.parametrize(
    ("module", "name", "args", "given"),
    [
        (vision_utils, "get_vision_position_ids", (2,), {"position_ids": torch.arange(4)}),
        (vision_utils, "get_vision_window_index", (1, 2, 1), {"window_index": torch.arange(4), "cu_window_seqlens": torch.tensor([0, 4])}),
        (modeling_muse_glimmer, "get_vision_pixel_shuffle_index", (2,), {"pixel_shuffle_index": torch.arange(4)}),
        (modeling_minicpmv4_7, "get_vision_nearest_position_ids", (2,), {"position_ids": torch.arange(4)}),
        (
            vision_utils,
            "get_vision_interpolation_indices_and_weights",
            (2,),
            {"interp_indices": torch.ones(4), "interp_weights": torch.ones(4)},
        ),
    ],
)
def test_what_is_given_is_kept(module: Any, name: str, args: tuple[Any, ...], given: dict[str, torch.Tensor]) -> None:
    kwargs = dict(given)
    with apply_patches("dynamo"):
        result = getattr(module, name)(torch.tensor([[1, 2, 2]]), *args, kwargs=kwargs)
    assert all(got is wanted for got, wanted in zip(result if isinstance(result, tuple) else [result], given.values(), strict=True))
    assert not kwargs


@pytest.mark.parametrize(
    "name",
    [
        "_patch_grid_positions",
        "_patch_interpolation",
        "_patch_muse_image_pieces",
        "_patch_nearest_positions",
        "_patch_shuffle_index",
        "_patch_window_index",
    ],
)
def test_originals_come_back(name: str) -> None:
    assert_restores(f"dynamo:{name}")


@pytest.mark.parametrize("images", [1, 2, 3])
def test_muse_image_pieces(images: int) -> None:
    """One piece that is the concatenation of the original's."""
    sample = build("MuseGlimmerForConditionalGeneration")
    model, grid = sample.model.model, sample.inputs["image_grid_thw"][:1].repeat(images, 1)
    pixels = sample.inputs["pixel_values"][: int(grid[0].prod())].repeat(images, 1)
    with torch.no_grad():
        expected, actual = both(model, "get_image_features", pixels, grid)
    torch.testing.assert_close(torch.cat(list(actual.pooler_output)), torch.cat(list(expected.pooler_output)), atol=1e-5, rtol=1e-4)
    assert len(actual.pooler_output) == 1


def export(name: str) -> tuple[Sample, Exported]:
    sample = build(name)
    config = DynamoConfig(dynamic=True, dynamic_shapes=varying(sample.inputs, sample.others, sample.axes).dynamic_shapes)
    return sample, DynamoExporter().export(sample.model, sample.inputs, config=config)


@pytest.mark.e2e
def test_two_images() -> None:
    sample, exported = export("MuseGlimmerForConditionalGeneration")
    assert "dynamo:_patch_interpolation" in exported.stages[0].seen.fired
    given = sample.others["batch_1"]
    with torch.no_grad():
        expected = sample.model(**copy.deepcopy(given)).logits
    torch.testing.assert_close(exported(**copy.deepcopy(given)).logits, expected, atol=1e-4, rtol=1e-3)


@pytest.mark.e2e
def test_canary_of_interpolation(monkeypatch: pytest.MonkeyPatch) -> None:
    leave_out(monkeypatch, "dynamo:_patch_interpolation")
    sample, exported = export("MuseGlimmerForConditionalGeneration")
    with pytest.raises(AssertionError, match="Guard failed"):
        exported(**copy.deepcopy(sample.others["batch_1"]))
