"""What a local checkpoint folder holds, read without importing torch: enough to name, cache and refuse it."""

import hashlib
import json
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from exporters.errors import CheckpointError

CONFIG = "config.json"
# As transformers prefers them: one file or an index of shards, safetensors first.
_WEIGHTS = ("model.safetensors", "model.safetensors.index.json", "pytorch_model.bin", "pytorch_model.bin.index.json")
_LONGEST_HEADER = 100_000_000  # bytes; what the safetensors format itself allows


@dataclass(frozen=True)
class CheckpointInfo:
    """What loading a folder will read.

    Attributes:
        path: the folder, absolute.
        name: the folder's name.
        architecture: first of the config's `architectures`; None where it names none.
        model_type: transformers' name of the architecture; None where the config names none.
        config_digest: `sha256:…` of config.json's bytes.
        weight_files: absolute paths of the files with the weights, shards in the order of their names.
    """

    path: Path
    name: str
    architecture: str | None
    model_type: str | None
    config_digest: str
    weight_files: tuple[Path, ...]

    @property
    def safetensors(self) -> bool:
        """Whether the weights can be used where they lie."""
        return all(file.suffix == ".safetensors" for file in self.weight_files)


def describe(path: str | Path) -> CheckpointInfo:
    """Look at a checkpoint folder: its config, and that its weight files are there and whole as far as their headers tell.

    Raises:
        CheckpointError: no such folder, no or no readable config, no weights, a shard that is missing, a truncated file.
    """
    folder = Path(path).expanduser().absolute()
    if not folder.is_dir():
        raise CheckpointError(f"{folder} is not a folder", next="give a folder with config.json and weights, as save_pretrained writes it")
    config_file = folder / CONFIG
    if not config_file.is_file():
        raise CheckpointError(f"{folder} has no {CONFIG}", next="give a folder with config.json and weights, as save_pretrained writes it")
    config = _read_json(config_file)
    architectures = config.get("architectures") or []
    return CheckpointInfo(
        path=folder,
        name=folder.name,
        architecture=architectures[0] if architectures else None,
        model_type=config.get("model_type"),
        config_digest=f"sha256:{hashlib.sha256(config_file.read_bytes()).hexdigest()}",
        weight_files=_weight_files(folder),
    )


def _read_json(file: Path) -> dict[str, Any]:
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{file} can't be read: {error}", next="copy or download the file again") from error
    if not isinstance(content, dict):
        raise CheckpointError(f"{file} is no JSON object", next="copy or download the file again")
    return content


def _weight_files(folder: Path) -> tuple[Path, ...]:
    for name in _WEIGHTS:
        file = folder / name
        if not file.is_file():
            continue
        files = _shards(file) if name.endswith(".index.json") else (file,)
        for each in files:
            _check_whole(each)
        return files
    raise CheckpointError(f"{folder} has a config but no weights", next=f"put one of {', '.join(_WEIGHTS)} beside the config")


def _shards(index: Path) -> tuple[Path, ...]:
    weight_map = _read_json(index).get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise CheckpointError(f"{index} names no shards", next="copy or download the file again")
    files = tuple(index.parent / name for name in sorted(set(weight_map.values())))
    missing = [file.name for file in files if not file.is_file()]
    if missing:
        raise CheckpointError(
            f"{index.parent} lacks {', '.join(missing)}, which {index.name} names", next="copy or download the shards again"
        )
    return files


def _check_whole(file: Path) -> None:
    """Refuse an empty file, and a safetensors file whose length isn't what its header says."""
    size = file.stat().st_size
    if size == 0:
        raise CheckpointError(f"{file} is empty", next="copy or download the file again")
    if file.suffix != ".safetensors":
        return  # a pickle tells only when it is read
    with file.open("rb") as stream:
        prefix = stream.read(8)
        length = struct.unpack("<Q", prefix)[0] if len(prefix) == 8 else 0
        header_bytes = stream.read(length) if 0 < length <= _LONGEST_HEADER else b""
    try:
        header = json.loads(header_bytes)
        expected = 8 + length + max((tensor["data_offsets"][1] for key, tensor in header.items() if key != "__metadata__"), default=0)
    except (ValueError, TypeError, KeyError, AttributeError, IndexError) as error:
        raise CheckpointError(f"{file} is damaged: its header is no safetensors header", next="copy or download the file again") from error
    if expected != size:
        raise CheckpointError(f"{file} is damaged: {size} bytes where its header says {expected}", next="copy or download the file again")
