"""Weights, stored once: safetensors files, who is an alias of whom, and what a graph points at."""

import json
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import save_file

from exporters.errors import CheckpointError

FILE = "weights.safetensors"

# safetensors' dtype codes, https://github.com/huggingface/safetensors#format
_DTYPES = {
    "BF16": torch.bfloat16,
    "BOOL": torch.bool,
    "F16": torch.float16,
    "F32": torch.float32,
    "F64": torch.float64,
    "F8_E4M3": torch.float8_e4m3fn,
    "F8_E5M2": torch.float8_e5m2,
    "I16": torch.int16,
    "I32": torch.int32,
    "I64": torch.int64,
    "I8": torch.int8,
    "U8": torch.uint8,
}


@dataclass(frozen=True)
class TensorPlace:
    """Where a tensor's bytes lie: offset and length in bytes, little endian, contiguous."""

    dtype: torch.dtype
    shape: tuple[int, ...]
    offset: int
    length: int


def read_header(path: Path) -> dict[str, TensorPlace]:
    """The places of all tensors in a safetensors file, without reading any.

    Raises:
        CheckpointError: the file is not a whole safetensors file.
    """
    try:
        with path.open("rb") as file:
            (length,) = struct.unpack("<Q", file.read(8))
            size = path.stat().st_size
            if 8 + length > size:
                raise ValueError(f"its header would be {length} bytes long")
            header = json.loads(file.read(length))
            places = {}
            for name, entry in header.items():
                if name == "__metadata__":
                    continue
                begin, end = entry["data_offsets"]
                if 8 + length + end > size:
                    raise ValueError(f"{name} ends beyond the file")
                places[name] = TensorPlace(_DTYPES[entry["dtype"]], tuple(entry["shape"]), 8 + length + begin, end - begin)
            return places
    except (OSError, ValueError, KeyError, struct.error) as error:
        raise CheckpointError(f"{path} is not a whole safetensors file: {error}", next="fetch or make the file again") from error


def aliases(state: Mapping[str, torch.Tensor]) -> dict[str, str]:
    """From each name to the first name that shares its storage, shape and strides; a tensor of its own maps to itself.

    A tied output head is the embedding's alias. Tensors without memory (meta, fake, empty) are their own.
    """
    first: dict[tuple[object, ...], str] = {}
    canonical = {}
    for name, tensor in state.items():
        has_memory = tensor.device.type == "cpu" and tensor.numel() > 0 and not torch._subclasses.fake_tensor.is_fake(tensor)
        key = (tensor.data_ptr(), tuple(tensor.shape), tensor.stride(), tensor.dtype) if has_memory else (name,)
        canonical[name] = first.setdefault(key, name)
    return canonical


def write(state: Mapping[str, torch.Tensor], path: Path) -> dict[str, str]:
    """Write each distinct tensor once to a safetensors file; the aliases. Raises OSError where the disk does."""
    canonical = aliases(state)
    tensors = {name: tensor.detach().contiguous() for name, tensor in state.items() if canonical[name] == name}
    # two views into one storage are two tensors here, which safetensors refuses: give each memory of its own
    owners: set[int] = set()
    for name, tensor in tensors.items():
        if tensor.numel() and tensor.untyped_storage().data_ptr() in owners:
            tensors[name] = tensor.clone()
        owners.add(tensor.untyped_storage().data_ptr())
    try:
        save_file(tensors, path)
    except SafetensorError as error:  # what it makes of an error of the system
        raise OSError(str(error)) from error
    return canonical
