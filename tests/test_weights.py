"""Weights are stored once: in place where a file has them, in one copy where none does."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from exporters import weights
from exporters.errors import CheckpointError
from exporters.weight_set import WeightSet, weight_set


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(7, 4)
        self.head = nn.Linear(4, 7, bias=False)
        self.head.weight = self.embedding.weight
        self.register_buffer("steps", torch.tensor(3))


def test_aliases_are_found_by_memory() -> None:
    assert weights.aliases(Tied().state_dict()) == {
        "embedding.weight": "embedding.weight",
        "head.weight": "embedding.weight",
        "steps": "steps",
    }


def test_views_of_one_storage_that_differ_are_no_aliases(tmp_path: Path) -> None:
    whole = torch.arange(6.0)
    state = {"first": whole[:3], "second": whole[3:], "turned": whole.view(2, 3).t()}
    canonical = weights.write(state, tmp_path / "w.safetensors")
    assert canonical == {name: name for name in state}
    loaded = WeightSet.of_files([tmp_path / "w.safetensors"], canonical).load()
    assert all(torch.equal(loaded[name], state[name]) for name in state)


def test_places_are_where_the_bytes_are(tmp_path: Path) -> None:
    path = tmp_path / "w.safetensors"
    save_file({"a": torch.arange(4, dtype=torch.int64), "b": torch.tensor([1.5, 2.5], dtype=torch.bfloat16)}, path)
    data = path.read_bytes()
    places = weights.read_header(path)
    assert torch.frombuffer(bytearray(data[places["a"].offset : places["a"].offset + places["a"].length]), dtype=torch.int64).tolist() == [
        0,
        1,
        2,
        3,
    ]
    assert places["b"].dtype is torch.bfloat16
    assert places["b"].shape == (2,)


@pytest.mark.parametrize("damage", [b"", b"\x00" * 4, b"\xff" * 64, None])
def test_a_file_that_is_no_safetensors_file_is_refused(tmp_path: Path, damage: bytes | None) -> None:
    path = tmp_path / "w.safetensors"
    save_file({"a": torch.zeros(100)}, path)
    path.write_bytes(path.read_bytes()[:-8] if damage is None else damage)
    with pytest.raises(CheckpointError, match="not a whole safetensors file"):
        weights.read_header(path)


def checkpoint(model: nn.Module, path: Path, rename: str = "") -> None:
    state = {name: tensor for name, tensor in model.state_dict().items() if name != "head.weight"}
    save_file({rename + name: tensor for name, tensor in state.items()}, path)


def test_a_file_that_has_the_state_is_used_in_place(tmp_path: Path) -> None:
    model = Tied()
    checkpoint(model, tmp_path / "model.safetensors")
    found = weight_set(model, (tmp_path / "model.safetensors",), tmp_path / "copy.safetensors")
    assert found.files == [tmp_path / "model.safetensors"]
    assert not (tmp_path / "copy.safetensors").exists()
    assert found.bound()["head.weight"] == found.bound()["embedding.weight"]


def test_a_file_that_kept_the_other_of_two_tied_names_is_used_in_place(tmp_path: Path) -> None:
    model = Tied()
    save_file({"head.weight": model.head.weight.detach(), "steps": model.steps}, tmp_path / "model.safetensors")
    found = weight_set(model, (tmp_path / "model.safetensors",), tmp_path / "copy.safetensors")
    assert found.aliases["embedding.weight"] == "head.weight"
    assert not (tmp_path / "copy.safetensors").exists()


@pytest.mark.parametrize("how", ["renamed", "other values", "missing"])
def test_a_file_that_differs_is_copied_once(tmp_path: Path, how: str) -> None:
    model, file, copy = Tied(), tmp_path / "model.safetensors", tmp_path / "copy.safetensors"
    if how == "renamed":
        checkpoint(model, file, rename="model.")
    elif how == "other values":
        checkpoint(Tied(), file)
    else:
        save_file({"steps": model.steps}, file)
    before = file.read_bytes()
    found = weight_set(model, (file,), copy)
    assert found.files == [copy]
    assert file.read_bytes() == before
    loaded = found.load()
    assert all(torch.equal(loaded[name], tensor) for name, tensor in model.state_dict().items())


def test_a_set_survives_json(tmp_path: Path) -> None:
    model = Tied()
    found = weight_set(model, (), tmp_path / "copy.safetensors")
    assert WeightSet.from_json(found.to_json()).bound() == found.bound()
