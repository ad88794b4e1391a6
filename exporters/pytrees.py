"""Flattening of caches and other stateful containers for `torch.export`, by a walk over their attributes.

`transformers` registers its `ModelOutput`s itself. A cache has no such registration: this module registers its class when
it meets one, with every tensor in it as a leaf and everything else as context.
"""

import importlib
import sys
from collections.abc import Iterable
from typing import Any

import torch
from torch._subclasses.fake_tensor import unset_fake_temporarily
from torch.export.dynamic_shapes import _IntWrapper  # what torch.export puts in an integer leaf's place
from torch.utils import _pytree as pytree

# Python counters that change from call to call: leaves, so that they neither freeze a tree spec nor hide in it.
_COUNTERS = {"cumulative_length", "cumulative_length_int", "entry_count", "_seen_tokens"}

# Attributes of cache layers that others determine: the batch size of a static layer is its keys' (as context it would freeze the
# batch), the window's size as a tensor is the window's size (a trace makes it anew, as a tensor that belongs to the trace), the config is
# the model's, and only a cache that is still empty reads it.
_DERIVED = {"batch_size", "_sliding_window_tensor", "config"}

# Caches that derive from none of transformers' own, by the module that defines them.
_CACHES_APART = {
    "transformers.models.parakeet.generation_parakeet": "ParakeetRNNTDecoderCache",
    "transformers.models.reformer.modeling_reformer": "ReformerDynamicCache",
}
_CONTAINERS = {"Cache", "CacheLayerMixin", "LinearAttentionCacheLayerMixin", "DummyLayer", *_CACHES_APART.values()}


class CacheContext(dict):
    """What a flattened container is besides its tensors: nested, JSON-able, compared by value.

    `leaf_paths` are the dotted attribute paths of the leaves, in order.
    """

    @property
    def leaf_paths(self) -> list[str]:
        return list(self["leaves"])


# ── The walk ──────────────────────────────────────────────────────────────────


def _is_container(value: Any) -> bool:
    """Whether the walk goes into an object: the cache classes of transformers and of models that bring their own."""
    return any(base.__name__ in _CONTAINERS for base in type(value).__mro__)


def _flatten_to_context(value: Any, path: str, leaves: list[tuple[str, Any]]) -> Any:
    """Append the leaves under `value` to `leaves`, with their dotted paths, and return the JSON-able rest.

    A type that the walk can't reach gets a branch here and one in `_unflatten_from_context`.

    Raises:
        TypeError: for a value that is neither a leaf, a plain constant nor a container; it names the path.
    """
    # a counter, or one of a dict of them
    is_counter = not _COUNTERS.isdisjoint(path.split(".")[-2:]) and not isinstance(value, bool)
    if isinstance(value, torch.Tensor | torch.SymInt) or (is_counter and isinstance(value, int | _IntWrapper)):
        leaves.append((path, value))
        return {"leaf": len(leaves) - 1}
    if value is None or isinstance(value, bool | int | float | str):
        return {"value": value}
    if isinstance(value, torch.dtype):
        return {"dtype": str(value).removeprefix("torch.")}
    if isinstance(value, torch.device):
        return {"device": str(value)}
    if isinstance(value, type):
        return {"class": f"{value.__module__}:{value.__qualname__}"}
    if isinstance(value, list | tuple):
        items = [_flatten_to_context(item, f"{path}.{index}" if path else str(index), leaves) for index, item in enumerate(value)]
        return {"tuple" if isinstance(value, tuple) else "list": items}
    if isinstance(value, dict):
        return {"dict": [[key, _flatten_to_context(item, f"{path}.{key}" if path else str(key), leaves)] for key, item in value.items()]}
    if _is_container(value):
        attributes = {key: item for key, item in vars(value).items() if key not in _DERIVED}
        kind = type(value)
        return {
            "object": f"{kind.__module__}:{kind.__qualname__}",
            "attributes": {
                key: _flatten_to_context(attributes[key], f"{path}.{key}" if path else key, leaves) for key in sorted(attributes)
            },
        }
    raise TypeError(f"{path} of type {type(value).__qualname__} can't be flattened for torch.export; add a branch to exporters/pytrees.py")


def _unflatten_from_context(context: Any, leaves: list[Any]) -> Any:
    """The inverse of `_flatten_to_context`."""
    match context:
        case {"leaf": index}:
            return leaves[index]
        case {"value": value}:
            return value
        case {"dtype": name}:
            return getattr(torch, name)
        case {"device": name}:
            return torch.device(name)
        case {"class": name}:
            return _import(name)
        case {"list": items}:
            return [_unflatten_from_context(item, leaves) for item in items]
        case {"tuple": items}:
            return tuple(_unflatten_from_context(item, leaves) for item in items)
        case {"dict": items}:
            return {key: _unflatten_from_context(item, leaves) for key, item in items}
        case {"object": name, "attributes": attributes}:
            value = object.__new__(_import(name))
            for key, item in attributes.items():
                setattr(value, key, _unflatten_from_context(item, leaves))
            _derive(value)
            return value
    raise TypeError(f"{context!r} is no context of exporters/pytrees.py")


def _derive(value: Any) -> None:
    """Set the attributes of a rebuilt layer that `_DERIVED` left out."""
    if hasattr(value, "max_cache_len") and isinstance(getattr(value, "keys", None), torch.Tensor):
        value.batch_size = value.keys.shape[0]
    if isinstance(getattr(value, "sliding_window", None), int):
        with unset_fake_temporarily():
            value._sliding_window_tensor = torch.tensor(value.sliding_window, dtype=torch.long)


def _import(name: str) -> type:
    module, _, qualname = name.partition(":")
    found: Any = importlib.import_module(module)
    for part in qualname.split("."):
        found = getattr(found, part)
    return found


# ── Registration ──────────────────────────────────────────────────────────────


def _flatten(value: Any) -> tuple[list[Any], CacheContext]:
    found: list[tuple[str, Any]] = []
    tree = _flatten_to_context(value, "", found)
    return [leaf for _, leaf in found], CacheContext(leaves=[path for path, _ in found], tree=tree)


def _flatten_with_keys(value: Any) -> tuple[list[tuple[pytree.KeyEntry, Any]], CacheContext]:
    leaves, context = _flatten(value)
    return [(pytree.GetAttrKey(path.replace(".", "_")), leaf) for path, leaf in zip(context.leaf_paths, leaves, strict=True)], context


def _unflatten(leaves: Iterable[Any], context: CacheContext) -> Any:
    return _unflatten_from_context(context["tree"], list(leaves))


def register(kind: type) -> None:
    """Register a cache class as a pytree node, once; a class that somebody registered already is left alone."""
    if kind in pytree.SUPPORTED_NODES:
        return
    pytree.register_pytree_node(
        kind,
        _flatten,
        _unflatten,
        serialized_type_name=f"{kind.__module__}.{kind.__qualname__}",
        to_dumpable_context=dict,
        from_dumpable_context=CacheContext,
        flatten_with_keys_fn=_flatten_with_keys,
    )


def register_all() -> None:
    """Register every cache class that exists now: those of `transformers.cache_utils`, and those of imported modeling modules."""
    cache_utils = sys.modules.get("transformers.cache_utils")
    if cache_utils is None:
        return  # nobody has made a cache yet
    pending = [cache_utils.Cache, *(getattr(sys.modules[module], name) for module, name in _CACHES_APART.items() if module in sys.modules)]
    while pending:
        kind = pending.pop()
        register(kind)
        pending.extend(kind.__subclasses__())


def named_types(spec: pytree.TreeSpec) -> list[str]:
    """`module:qualname` of every class in a spec that isn't a builtin, sorted: what has to be imported before it is loaded."""
    names = set()
    pending = [spec]
    while pending:
        node = pending.pop()
        if node.type is not None and node.type.__module__ not in ("builtins", "collections"):
            names.add(f"{node.type.__module__}:{node.type.__qualname__}")
        pending.extend(node.children())
    return sorted(names)


def register_named(names: Iterable[str]) -> None:
    """Import and register the classes that `named_types` listed, so that a spec which names them can be loaded."""
    for name in names:
        _import(name)
    register_all()
