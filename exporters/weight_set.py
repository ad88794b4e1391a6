"""The weights of one model, wherever they lie: which files, and where in them each tensor is."""

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from torch import nn

from exporters import weights
from exporters.errors import StoreError
from exporters.weights import TensorPlace


@dataclass
class WeightSet:
    """Safetensors files and the tensors in them.

    Attributes:
        files: absolute paths; their names are distinct.
        places: from a tensor's name to the index of its file and its place there.
        aliases: from every name of the model's state to the name under which `places` has it.
    """

    files: list[Path]
    places: dict[str, tuple[int, TensorPlace]]
    aliases: dict[str, str] = field(default_factory=dict)

    @classmethod
    def of_files(cls, files: list[Path], aliases: Mapping[str, str] | None = None) -> "WeightSet":
        places = {name: (index, place) for index, file in enumerate(files) for name, place in weights.read_header(file).items()}
        return cls([file.resolve() for file in files], places, dict(aliases or {}))

    def bound(self) -> dict[str, tuple[str, TensorPlace]]:
        """From every name of the model's state to a file name and the place in that file."""
        return {
            name: (self.files[self.places[stored][0]].name, self.places[stored][1])
            for name, stored in self.aliases.items()
            if stored in self.places
        }

    def load(self) -> dict[str, torch.Tensor]:
        """Every tensor of the model's state, mapped from the files: no page is read before it is touched."""
        tensors: dict[str, torch.Tensor] = {}
        for file in self.files:
            with safe_open(file, framework="pt") as opened:
                tensors.update({name: opened.get_tensor(name) for name in opened.keys()})  # noqa: SIM118 (not a mapping)
        return {name: tensors[stored] for name, stored in self.aliases.items()}

    def folder(self, scratch: Path) -> Path:
        """One folder in which all files are found: their own, or one of links in `scratch`."""
        parents = {file.parent for file in self.files}
        if len(parents) == 1:
            return parents.pop()
        links = scratch / "weights"
        links.mkdir(exist_ok=True)
        for file in self.files:
            if not (links / file.name).exists():
                (links / file.name).hardlink_to(file)
        return links

    def to_json(self) -> dict[str, Any]:
        return {"files": [str(file) for file in self.files], "aliases": self.aliases}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "WeightSet":
        """Raises CheckpointError if a file is gone or damaged."""
        return cls.of_files([Path(file) for file in data["files"]], data["aliases"])


def weight_set(model: nn.Module, files: tuple[Path, ...], copy_to: Path) -> WeightSet:
    """The weight set of a model: `files` used in place where they hold its state as it is, otherwise one copy at `copy_to`.

    A checkpoint whose tensors are renamed or converted when transformers loads them gets the copy; so do zoo models, which have no file.

    Args:
        files: the checkpoint's safetensors files, only read; empty if it has none.
        copy_to: a safetensors file, written aside and renamed.

    Raises:
        StoreError: the copy can't be written.
    """
    state = model.state_dict(keep_vars=False)
    canonical = weights.aliases(state)
    if files:
        found = WeightSet.of_files(list(files), canonical)
        renamed = _stored_under_alias(canonical, found.places)
        if renamed is not None:
            found.aliases = renamed
            if _same_values(state, found):
                return found
    if not copy_to.exists():
        aside = copy_to.with_name(f".{copy_to.name}.{uuid.uuid4().hex}")
        try:
            copy_to.parent.mkdir(parents=True, exist_ok=True)
            weights.write(state, aside)
            aside.replace(copy_to)
        except OSError as error:
            raise StoreError(f"can't write {copy_to}: {error}", next="free some space, or set ZOOPORT_HOME elsewhere") from error
        finally:
            aside.unlink(missing_ok=True)
    return WeightSet.of_files([copy_to], canonical)


def _stored_under_alias(canonical: Mapping[str, str], places: Mapping[str, Any]) -> dict[str, str] | None:
    """The aliases with each group named as the file names it (it may have kept another of two tied names), or None if one is missing."""
    stored: dict[str, str] = {}
    for name, first in canonical.items():
        if name in places:
            stored.setdefault(first, name)
    if any(first not in stored for first in canonical.values()):
        return None
    return {name: stored[first] for name, first in canonical.items()}


def _same_values(state: Mapping[str, torch.Tensor], found: WeightSet) -> bool:
    """Whether the files hold the model's tensors bit by bit."""
    loaded = found.load()
    return all(
        loaded[name].dtype == tensor.dtype
        and loaded[name].shape == tensor.shape
        and (loaded[name].data_ptr() == tensor.data_ptr() or torch.equal(_bits(loaded[name]), _bits(tensor)))
        for name, tensor in state.items()
    )


def _bits(tensor: torch.Tensor) -> torch.Tensor:
    """The bytes, so that NaNs compare equal to themselves."""
    return tensor.detach().contiguous().flatten().view(torch.uint8) if tensor.dim() else tensor.detach().reshape(1).view(torch.uint8)
