"""What an override may declare: tensors, parts, steps, reasons."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from exporters.zoo.build import build
from exporters.zoo.other_inputs import declared
from exporters.zoo.overrides import _table, override


def request(**config: Any) -> Any:
    generator = torch.Generator().manual_seed(0)
    return SimpleNamespace(
        config=SimpleNamespace(**config),
        sizes={"batch": 2, "sequence": 10, "samples": 3200},
        made={},
        normal=lambda shape: torch.randn(shape, generator=generator),
        uniform=lambda shape: torch.rand(shape, generator=generator),
        integers=lambda low, high, shape: torch.randint(low, high, shape, generator=generator),
    )


@pytest.mark.parametrize(
    ("axes", "shape", "names"),
    [
        (["batch", "sequence", 4], (2, 10, 4), ("batch", "sequence", "")),
        (["batch*4", "@width"], (8, 6), ("batch*4", "")),
        (["samples/320", "@width*2"], (10, 12), ("samples/320", "")),
    ],
)
def test_axes_are_names_numbers_and_config_paths(axes: list[Any], shape: tuple[int, ...], names: tuple[str, ...]) -> None:
    leaf = declared(request(width=6), "x", {"axes": axes})
    assert (tuple(leaf.tensor.shape), leaf.axes) == (shape, names)


def test_contents() -> None:
    def made(**spec: Any) -> torch.Tensor:
        return declared(request(), "x", {"axes": ["batch", "sequence"], **spec}).tensor

    ids = made(of="ids", **{"from": 5, "below": 9})
    assert (int(ids.min()) >= 5, int(ids.max()) < 9, ids.dtype) == (True, True, torch.int64)
    assert made(of="mask").sum(1).tolist() == [10, 8]
    assert made(of="some", count=3).sum(1).tolist() == [3, 3]
    assert made(of="last")[:, -1].tolist() == [1, 1]
    assert made(of="ones", dtype="bool").dtype == torch.bool
    assert made(of="normal").dtype == torch.float32


def test_values_are_written_out_for_each_row() -> None:
    leaf = declared(request(), "x", {"values": [1, 4, 4], "each": "batch"})
    assert leaf.tensor.tolist() == [[1, 4, 4], [1, 4, 4]]
    assert leaf.axes == ("batch", "")


def test_a_grid_has_a_column_and_a_row_for_each_patch() -> None:
    leaf = declared(request(), "x", {"axes": ["batch", 6, 2], "of": "grid", "grid": [2, 3]})
    assert leaf.tensor[0].tolist() == [[0, 0], [1, 0], [2, 0], [0, 1], [1, 1], [2, 1]]


def test_a_part_gets_what_reaches_it() -> None:
    sample = build("UVDocBridge")
    assert type(sample.model).__name__ == "UVDocBridge"
    assert list(sample.others) == ["other", "batch_1"]
    with torch.no_grad():
        assert sample.model(**sample.inputs) is not None


def test_a_class_adds_to_what_its_model_type_declares() -> None:
    general, special = override("seamless_m4t"), override("seamless_m4t", "SeamlessM4TModel")
    assert special.inputs["bins"] == general.inputs["bins"]
    assert special.inputs["without"] == ["input_ids"]


def test_every_entry_has_a_reason_and_only_known_names() -> None:
    from exporters.zoo import catalogue

    known = {catalogue.entry(name).model_type for name in catalogue.names()} | {
        catalogue.entry(name).class_name for name in catalogue.names()
    }
    parts = {name for name, row in _table().items() if row.part and not (row.config or row.inputs)}
    assert [name for name, row in _table().items() if not row.why] == []
    assert sorted(set(_table()) - known - parts) == []
