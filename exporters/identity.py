"""What a sample is, in two digests: one of everything that a trace can see, one of the weights' values.

Together they say when a trace has to be made again, whatever was edited in the code that builds samples.
"""

import functools
import hashlib
import inspect
import json
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from types import CellType, FunctionType, MethodType, ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np
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
        source: where its inputs come from, as `Sample.source` says it.
    """

    digest: str
    weights: str
    files: dict[str, str]
    source: str = "rules"


def identify(sample: "Sample", *, values: bool) -> Identity:
    """The identity of a sample; with the weights' digest if `values`, which reads them all."""
    model = sample.model
    files = code_files(model)
    state = model.state_dict()
    told = _Values(model)
    inputs = {name: _inputs(given, told) for name, given in {"": sample.inputs, **sample.others, **_named(sample.wholes)}.items()}
    digest = json_digest(
        {
            "code": sorted(files.items()),
            "structure": told.modules,
            "weights": [(name, list(tensor.shape), str(tensor.dtype)) for name, tensor in state.items()],
            "ties": weights.aliases(state),
            "inputs": inputs,
            "axes": [asdict(axis) for axis in sample.axes],
        }
    )
    weights_digest = json_digest([(name, _bytes(tensor)) for name, tensor in state.items()]) if values else ""
    return Identity(digest, weights_digest, files, sample.source)


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


class _Values:
    """A model's modules as JSON: everything on them that a forward can read, whatever it is nested in.

    An object is told once, by its class and what it holds; where it occurs again, by its number. Modules that the model has under a name
    are told where they are; one that it hides in a plain list is told with its weights.
    """

    def __init__(self, model: nn.Module) -> None:
        named = list(model.named_modules())
        self._numbers = {id(module): number for number, (_, module) in enumerate(named)}
        self._told: list[Any] = []  # kept alive, so that no other object gets the same id
        self.modules = [(name, _class(module), sorted(self._facts(module), key=lambda fact: fact[0])) for name, module in named]

    def _facts(self, module: nn.Module) -> Iterator[tuple[str, Any]]:
        """Plain values, its config, tensors that aren't saved."""
        for name, buffer in module._buffers.items():
            if buffer is not None and name in module._non_persistent_buffers_set:
                yield f"buffer {name}", _bytes(buffer)
        for name, value in vars(module).items():
            if name not in _ORIGIN and name not in ("_parameters", "_buffers", "_modules"):
                yield name, self.plain(value)

    def plain(self, value: Any) -> Any:
        """A value as JSON; of what holds nothing that can be read, its text without addresses."""
        match value:
            case None | bool() | int() | float() | str():
                return value if value == value else "nan"
            case Mapping():
                return {_text(key): self.plain(part) for key, part in value.items() if str(key) not in _ORIGIN}
            case list() | tuple():
                return [self.plain(part) for part in value]
            case set() | frozenset():
                return sorted(json.dumps(self.plain(part), sort_keys=True) for part in value)
            case torch.Tensor():
                return _bytes(value)
            case np.ndarray():
                return [str(value.dtype), list(value.shape), hashlib.sha256(np.ascontiguousarray(value).tobytes()).hexdigest()]
            case type():
                return f"{value.__module__}.{value.__qualname__}"
            case ModuleType():
                return value.__name__  # its text says where it is installed
        if id(value) in self._numbers:
            return ["again", self._numbers[id(value)]]
        self._numbers[id(value)] = len(self._numbers)
        self._told.append(value)
        held = self.plain(_held(value))
        return [_class(value), held or _text(value)]


def _text(value: Any) -> str:
    return _ADDRESS.sub("", str(value))


def _class(value: Any) -> str:
    return f"{type(value).__module__}.{type(value).__qualname__}"


def _held(value: Any) -> dict[str, Any]:
    """What an object holds: of a config its fields, of a module its weights too, of a function what it was made with."""
    match value:
        case FunctionType():
            # its code is the model's own source file, or a package's, which the key names with its version
            cells = [cell.cell_contents for cell in value.__closure__ or () if cell != CellType()]
            return {
                "name": f"{value.__module__}.{value.__qualname__}",
                "with": [cells, value.__defaults__, value.__kwdefaults__, vars(value)],
            }
        case MethodType():
            return {"function": value.__func__, "of": value.__self__}
        case functools.partial():
            return {"function": value.func, "with": [value.args, value.keywords]}
    if hasattr(value, "to_dict"):  # a config
        return dict(value.to_dict())
    slots = [name for kind in type(value).__mro__ for name in np.atleast_1d(getattr(kind, "__slots__", ()))]
    held = {name: getattr(value, name) for name in slots if hasattr(value, name)}
    return dict(sorted((held | getattr(value, "__dict__", {})).items()))


# ── Tensors ───────────────────────────────────────────────────────────────────


def _inputs(given: Mapping[str, Any], told: _Values) -> list[Any]:
    pytrees.register_all()
    leaves, spec = pytree.tree_flatten(dict(given))
    return [_text(spec), [_bytes(leaf) if isinstance(leaf, torch.Tensor) else told.plain(leaf) for leaf in leaves]]


def _bytes(tensor: torch.Tensor) -> list[Any]:
    """Dtype, shape, strides and sha256 of the values."""
    plain = tensor.detach().cpu().contiguous()
    data = plain.flatten().view(torch.uint8) if plain.numel() else torch.empty(0, dtype=torch.uint8)
    return [str(tensor.dtype), list(tensor.shape), list(tensor.stride()), hashlib.sha256(data.numpy()).hexdigest()]
