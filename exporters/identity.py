"""What a sample is, in two digests: one of everything that a trace can see, one of the weights' values.

Together they say when a trace has to be made again, whatever was edited in the code that builds samples.
"""

import hashlib
import inspect
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.utils import _pytree as pytree

from exporters import pytrees, weights
from exporters.store import json_digest

if TYPE_CHECKING:
    from exporters.zoo.sample import Sample

# fields of a config that say where it came from, not what the model is
_ORIGIN = {"_name_or_path", "name_or_path", "transformers_version", "_commit_hash"}
_ADDRESS = re.compile(r" at 0x[0-9a-f]+")


@dataclass(frozen=True)
class Identity:
    """A sample's digests.

    Attributes:
        digest: the model's code, config, structure, the names, shapes, dtypes and ties of its weights, the values of tensors that a
            trace bakes in, its inputs, and the axes that vary.
        weights: the values of parameters and persistent buffers; empty where it wasn't asked for.
        files: the source files of the model's code, by path with their sha256; relative to the folder that holds their package, absolute
            where there is none.
    """

    digest: str
    weights: str
    files: dict[str, str]


def identify(sample: "Sample", *, values: bool) -> Identity:
    """The identity of a sample; with the weights' digest if `values`, which reads them all."""
    model = sample.model
    files = code_files(model)
    state = model.state_dict()
    inputs = {name: _inputs(given) for name, given in {"": sample.inputs, **sample.others, **_named(sample.wholes)}.items()}
    digest = json_digest(
        {
            "code": sorted(files.items()),
            "structure": [(name, *_module(module, set(state))) for name, module in model.named_modules()],
            "weights": [(name, list(tensor.shape), str(tensor.dtype)) for name, tensor in state.items()],
            "ties": weights.aliases(state),
            "inputs": inputs,
            "axes": [asdict(axis) for axis in sample.axes],
        }
    )
    return Identity(digest, json_digest([(name, _bytes(tensor)) for name, tensor in state.items()]) if values else "", files)


def _named(wholes: Mapping[str, Any]) -> dict[str, Any]:
    return {f"whole {name}": given for name, given in wholes.items()}


# ── Code ──────────────────────────────────────────────────────────────────────


def code_files(model: nn.Module) -> dict[str, str]:
    """The files in which the classes of a model's modules, and of what they derive from, are written; torch's own left out."""
    classes = {kind for module in model.modules() for kind in type(module).__mro__}
    modules = {kind.__module__ for kind in classes} - {"builtins", "typing", "abc"}
    found = {}
    for name in sorted(modules):
        if name.partition(".")[0] == "torch" or name not in sys.modules:
            continue
        file = inspect.getsourcefile(sys.modules[name])
        if file is not None and Path(file).exists():
            found[portable_path(Path(file), name)] = hashlib.sha256(Path(file).read_bytes()).hexdigest()
    return found


def portable_path(file: Path, module: str) -> str:
    """A module's file from the folder that holds its package on: the same in every environment."""
    root = sys.modules.get(module.partition(".")[0])
    top = getattr(root, "__file__", None)
    if top is None:
        return str(file)
    folder = Path(top).parent.parent
    return str(file.relative_to(folder)) if file.is_relative_to(folder) and Path(top).name == "__init__.py" else str(file)


# ── Structure ─────────────────────────────────────────────────────────────────


def _module(module: nn.Module, persistent: set[str]) -> tuple[str, list[Any]]:
    """A module's class and everything on it that a forward can read: plain values, its config, tensors that aren't saved."""
    facts = sorted(_facts(module), key=lambda fact: fact[0])
    return f"{type(module).__module__}.{type(module).__qualname__}", facts


def _facts(module: nn.Module) -> Iterator[tuple[str, Any]]:
    for name, buffer in module._buffers.items():
        if buffer is not None and name in module._non_persistent_buffers_set:
            yield f"buffer {name}", _bytes(buffer)
    for name, value in vars(module).items():
        if name in _ORIGIN or name in ("_parameters", "_buffers", "_modules"):
            continue
        if isinstance(value, torch.Tensor):
            yield name, _bytes(value)
        elif hasattr(value, "to_dict"):  # a config
            yield name, _plain({key: part for key, part in value.to_dict().items() if key not in _ORIGIN})
        else:
            yield name, _plain(value)


def _plain(value: Any) -> Any:
    """A value as JSON; of what JSON doesn't know, its text without addresses."""
    match value:
        case None | bool() | int() | float() | str():
            return value if value == value else "nan"
        case Mapping():
            return {str(key): _plain(part) for key, part in value.items() if str(key) not in _ORIGIN}
        case list() | tuple():
            return [_plain(part) for part in value]
        case set() | frozenset():
            return sorted(str(_plain(part)) for part in value)
        case torch.Tensor():
            return _bytes(value)
    return _ADDRESS.sub("", repr(value)) if type(value).__module__ in ("builtins", "torch") else f"{type(value).__module__}.{type(value)}"


# ── Tensors ───────────────────────────────────────────────────────────────────


def _inputs(given: Mapping[str, Any]) -> list[Any]:
    pytrees.register_all()
    leaves, spec = pytree.tree_flatten(dict(given))
    return [_ADDRESS.sub("", repr(spec)), [_bytes(leaf) if isinstance(leaf, torch.Tensor) else _plain(leaf) for leaf in leaves]]


def _bytes(tensor: torch.Tensor) -> list[Any]:
    """Dtype, shape, strides and sha256 of the values."""
    plain = tensor.detach().cpu().contiguous()
    data = plain.flatten().view(torch.uint8) if plain.numel() else torch.empty(0, dtype=torch.uint8)
    return [str(tensor.dtype), list(tensor.shape), list(tensor.stride()), hashlib.sha256(data.numpy()).hexdigest()]
