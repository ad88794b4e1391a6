"""Shrink any transformers config to a tiny one of the same kind.

A config is never mutated: it is made anew from the fields that change, so that `__post_init__` computes again what it
derives. Fields shrink by the rules of `field_rules`; what several fields must agree on (one layer of each kind, special
tokens, rotary sections) is settled here.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

from transformers import CONFIG_MAPPING, PreTrainedConfig

from exporters.zoo.field_rules import HEAD_DIM, HEADS, INDEX_LISTS, LAYERS, POSITIONS, VOCABULARY, WIDTH, knows, shrunk
from exporters.zoo.overrides import override
from exporters.zoo.request import text_config

__all__ = ["HEADS", "LAYERS", "VOCABULARY", "WIDTH", "shrink", "tiny"]

FIRST_SPECIAL = 5  # ids below are the usual pad, bos, eos, unk and mask
LABELS = 6
_OF_EACH = ("backbone_out_indices", "intermediate_hidden_state_indices")  # a part for each of these layers, so that none can go
_SPECIAL = ("_token_id", "_token_index", "_token", "_patch_id")
# sizes that may be None and that no model does without
_FILLED = {
    "head_dim": HEAD_DIM,
    "vocab_size": VOCABULARY,
    "decoder_hidden_size": WIDTH,
    "num_key_value_heads": HEADS,
    "num_experts_per_tok": 2,
}
_PLACES = ("image_token_id", "image_token_index", "video_token_id", "video_token_index", "audio_token_id")
_DEPTH_FIELDS = ("num_hidden_layers", "n_layer", "n_layers", "num_layers", "encoder_layers", "decoder_layers", "depth", "layers")

# ── One layer of each kind ────────────────────────────────────────────────────


def _per_layer_lists(config: PreTrainedConfig, fields: list[str], layers: int) -> dict[str, list[Any]]:
    """The fields that have an entry a layer."""
    found = {}
    for name in fields:
        value = getattr(config, name, None)
        if isinstance(value, (list, tuple)) and len(value) == layers and layers > LAYERS and (name == "layer_types" or not knows(name)):
            found[name] = list(value)
    return found


def _layer_differences(config: PreTrainedConfig) -> dict[int, dict[str, Any]]:
    """What a heterogeneous config says of single layers, by layer."""
    spec = vars(config).get("_heterogeneity_spec")
    return {} if spec is None else dict(spec.per_layer_overrides)


def _shrunk_differences(config: PreTrainedConfig, chosen: list[int]) -> dict[int, dict[str, Any]]:
    """The same for the layers that are kept; a head that is wider than in other layers stays wider."""
    small = {}
    for place, layer in enumerate(chosen):
        changes = {name: shrunk(config, name, value) for name, value in _layer_differences(config).get(layer, {}).items()}
        if isinstance(changes.get("head_dim"), int):
            changes["head_dim"] = 2 * HEAD_DIM
        if changes:
            small[place] = changes
    return small


def _chosen_layers(lists: Mapping[str, list[Any]], layers: int) -> list[int]:
    """The first layer of each kind, and at least two layers: a layer is of another kind where any list has a value not seen before."""
    telling = [values for values in lists.values() if len({str(value) for value in values}) <= 4]
    seen: set[tuple[int, str]] = set()
    chosen = []
    for layer in range(layers):
        here = {(which, str(values[layer])) for which, values in enumerate(telling)}
        if here - seen:
            chosen.append(layer)
            seen |= here
    return chosen if len(chosen) >= LAYERS else sorted({*chosen, *range(LAYERS)})[:LAYERS]


def _layers(config: PreTrainedConfig, fields: list[str]) -> dict[str, Any]:
    """Depth and every list with an entry a layer, cut to the layers that are kept."""
    changes: dict[str, Any] = {}
    depth_field = next((name for name in _DEPTH_FIELDS if name in fields and isinstance(getattr(config, name, None), int)), None)
    if depth_field is None:
        return changes
    depth = getattr(config, depth_field)
    lists = _per_layer_lists(config, fields, depth)
    differences = _layer_differences(config)
    if differences:
        lists["per_layer_config"] = [differences.get(layer, {}) for layer in range(depth)]
    if not lists:
        return changes
    chosen = _chosen_layers(lists, depth)
    lists.pop("per_layer_config", None)
    if differences:
        changes["per_layer_config"] = _shrunk_differences(config, chosen)
    changes.update({name: [values[layer] for layer in chosen] for name, values in lists.items()})
    changes[depth_field] = len(chosen)
    return changes


def _indices(config: PreTrainedConfig, fields: list[str], depth: int | None) -> dict[str, list[int]]:
    """Lists of layer indices, clamped to the depth; as many of them as there are layers to name."""
    changes = {}
    for name in fields:
        value = getattr(config, name, None)
        if depth is None or not INDEX_LISTS.fullmatch(name) or name.startswith("_") or not isinstance(value, (list, tuple)) or not value:
            continue
        if all(isinstance(index, int) and -depth <= index < depth for index in value):
            continue
        kept = sorted({min(index, depth - 1) for index in value if isinstance(index, int) and index >= 0})
        changes[name] = kept if len(kept) == len(value) else list(range(max(0, depth - len(value)), depth))
    return changes


# ── Backbones ─────────────────────────────────────────────────────────────────


def _without_timm(config: PreTrainedConfig, given: Any) -> PreTrainedConfig:
    """A ResNet with as many outputs in place of a backbone of the timm package, which a tiny model need not depend on."""
    if config.model_type != "timm_backbone" or (isinstance(given, Mapping) and "model_type" in given):
        return config
    indices = sorted({min(max(index, 1), 4) for index in (getattr(config, "out_indices", None) or [4])} or {4})
    count = len(getattr(config, "out_indices", None) or [4])
    stages = indices if len(indices) == count else list(range(5 - count, 5))
    features = [f"stage{stage}" for stage in stages]
    return CONFIG_MAPPING["resnet"](layer_type="basic", out_features=features, **_RESNET)


_RESNET: dict[str, Any] = {"embedding_size": 16, "hidden_sizes": [16, 32, 48, 64], "depths": [1, 1, 1, 1]}


def _backbone_outputs(config: PreTrainedConfig, default: Any, depth: int | None) -> dict[str, Any]:
    """Which stages a backbone hands out: as many as before, the last ones, and layers enough for them."""
    indices = getattr(config, "_out_indices", None)
    if indices == getattr(default, "_out_indices", None) and len(indices or ()) < 2:
        return {}  # the last one, as every backbone does that isn't told otherwise
    features = getattr(config, "_out_features", None)
    stages = getattr(config, "stage_names", None)
    if not features or not stages:
        return {}
    if isinstance(getattr(config, "depths", None), (list, tuple)) or depth is None or len(stages) - 1 == depth:
        return {"out_features": list(features)}  # stages stay as many as they are
    depth = max(depth, len(features))
    names = [stages[0], *(f"stage{index}" for index in range(1, depth + 1))]
    return {"num_hidden_layers": depth, "out_features": names[-len(features) :]}


# ── Rotary embeddings ─────────────────────────────────────────────────────────


def _rope(value: Any, half: int) -> Any:
    """Rotary parameters for heads of `2 * half`: sections add up to it, factors are as many, positions are the tiny ones."""
    if not isinstance(value, dict):
        return value
    small = {}
    rotated = max(1, int(half * value.get("partial_rotary_factor", 1.0)))
    for name, item in value.items():
        if isinstance(item, dict):
            small[name] = _rope(item, half)
        elif name == "mrope_section" and isinstance(item, (list, tuple)):
            small[name] = _sections(list(item), rotated)
        elif name in ("long_factor", "short_factor") and isinstance(item, (list, tuple)):
            small[name] = list(item)[:rotated]
        elif name == "original_max_position_embeddings" and isinstance(item, int):
            small[name] = min(item, POSITIONS // 4)
        else:
            small[name] = item
    return small


def _has_sections(config: PreTrainedConfig) -> bool:
    """Whether positions are counted in time, rows and columns, each with its own part of a head."""
    return "mrope_section" in (getattr(type(config), "ignore_keys_at_rope_validation", None) or ())


def _with_sections(rope: dict[str, Any], half: int) -> dict[str, Any]:
    """`rope` with sections that fit, where it leaves them to the code, whose default is for heads of 128."""
    if "mrope_section" in rope or any(isinstance(value, dict) for value in rope.values()):
        return rope
    rotated = max(1, int(half * rope.get("partial_rotary_factor", 1.0)))
    return {**rope, "mrope_section": _sections([1, 1, 1], rotated)}


def _sections(sections: list[int], half: int) -> list[int]:
    """Sections in the same proportions that add up to `half`."""
    whole = sum(sections)
    small = [max(1, section * half // whole) for section in sections]
    small[0] += half - sum(small)
    return small


# ── Special tokens ────────────────────────────────────────────────────────────


def _vocabulary(config: PreTrainedConfig) -> int | None:
    """The shrunk vocabulary of the text part."""
    size = getattr(text_config(config), "vocab_size", None)
    return min(size, VOCABULARY) if isinstance(size, int) else None


def _special_ids(config: PreTrainedConfig, overrides: Mapping[str, Any], fields: list[str], fresh: dict[int, int]) -> dict[str, Any]:
    """Ids of their own, from 5, for the special tokens that the shrunk vocabulary no longer has."""
    vocabulary = _vocabulary(config)
    named = [name for name in fields if name.endswith(_SPECIAL) and name not in overrides]
    small: dict[str, Any] = {}
    for name in named:
        value = getattr(config, name)
        listed = isinstance(value, (list, tuple))
        old = value[0] if listed and value else value
        if old is None and name in _PLACES:
            old = -1 - _PLACES.index(name)  # the config leaves it open, and a text needs it
        elif vocabulary is None or isinstance(old, bool) or not isinstance(old, int) or old < vocabulary:
            continue
        if vocabulary is not None:
            # fields that shared an id (gpt2's bos and eos) go on sharing one
            new = fresh.setdefault(old, FIRST_SPECIAL + len(fresh))
            small[name] = [new] if listed else new
    return small


# ── Whole configs ─────────────────────────────────────────────────────────────


def _declared_default(config: PreTrainedConfig, name: str) -> Any:
    field = type(config).__dataclass_fields__[name]
    return field.default


def _said(config: PreTrainedConfig, name: str, small: Any, default: Any) -> bool:
    """Whether the constructor must be told: it isn't the class's default, and it doesn't follow from other fields."""
    value = _value(config, name)
    if small == default or name.startswith("_"):
        return False
    if isinstance(small, (str, bool, float)) or name.startswith("out_"):
        return True
    if _declared_default(config, name) is None and value is not None:
        # None is there to be computed: a size follows from sizes that have shrunk, unless the parent config gave it
        given = value != default
        return (given or not isinstance(small, int)) and (knows(name) or (given and isinstance(small, (list, tuple))))
    return knows(name) or isinstance(small, (int, list, tuple))


def shrink(config: PreTrainedConfig, overrides: Mapping[str, Any] | None = None, fresh: dict[int, int] | None = None) -> PreTrainedConfig:
    """A tiny config of the same class.

    Args:
        config: any config; it is not changed.
        overrides: fields to set instead of what the rules give, nested for sub-configs (`Override.config`); before what is declared
            for the config's own model type.
        fresh: new special ids by old ones, of the whole config that this is a part of.

    Returns:
        A new instance, made through the constructor.
    """
    overrides = dict(overrides or {})
    fresh = {} if fresh is None else fresh
    model_type = overrides.pop("model_type", config.model_type)
    if model_type != config.model_type:
        config = CONFIG_MAPPING[model_type]()
    overrides = {**override(config.model_type).part, **overrides}
    kept = set(overrides.pop("keep", ()))
    config, default = _readable(config), _default(type(config))
    fields = [field.name for field in dataclasses.fields(config)]

    changes: dict[str, Any] = {}
    for name in fields:
        value = _value(config, name)
        if name in kept and not isinstance(value, PreTrainedConfig):
            if value != _value(default, name):
                changes[name] = value
            continue
        if isinstance(value, PreTrainedConfig):
            told = overrides.pop(name) if isinstance(overrides.get(name), Mapping) else None
            changes[name] = shrink(_without_timm(value, told), told, fresh)
            continue
        small = _FILLED[name] if value is None and name in _FILLED else shrunk(config, name, value)
        if _said(config, name, small, _value(default, name)):
            changes[name] = small
    changes.update({name: value for name, value in _layers(config, fields).items() if name not in kept})
    depth = _depth(config, changes, overrides, fields)
    changes.update({name: value for name, value in _backbone_outputs(config, default, depth).items() if name not in kept})
    deeper = max((len(_value(config, name) or ()) for name in fields if name in _OF_EACH), default=0)
    if deeper > LAYERS and "num_hidden_layers" in fields:
        changes["num_hidden_layers"] = max(deeper, changes.get("num_hidden_layers", 0))
    depth = _depth(config, changes, overrides, fields)
    changes.update({name: value for name, value in _indices(config, fields, depth).items() if name not in kept})
    changes.update(overrides)
    if "rope_parameters" in fields and "rope_parameters" not in overrides:
        rope = _rope(config.rope_parameters, _head_dim(config, changes) // 2)
        if rope is not None:
            changes["rope_parameters"] = rope if not _has_sections(config) else _with_sections(rope, _head_dim(config, changes) // 2)
    changes.update(_special_ids(config, overrides, fields, fresh))
    return type(config)(**changes)


def _default(config_class: type[PreTrainedConfig]) -> Any:
    """What the constructor gives untold; nothing at all where it refuses to be told nothing."""
    try:
        return _readable(config_class())
    except ValueError:
        return SimpleNamespace()


def _readable(config: PreTrainedConfig) -> PreTrainedConfig:
    """A copy that gives the common value of what differs from layer to layer, which a heterogeneous config refuses to."""
    readable = copy.copy(config)
    vars(readable)["allow_global_per_layer_attribute_access"] = True
    return readable


def _value(config: Any, name: str) -> Any:
    return getattr(config, name, None)


def _depth(config: PreTrainedConfig, changes: Mapping[str, Any], overrides: Mapping[str, Any], fields: list[str]) -> int | None:
    """How many layers the tiny config will have; None where it isn't one number."""
    for name in _DEPTH_FIELDS:
        value = overrides.get(name, changes.get(name, getattr(config, name, None))) if name in fields else None
        if isinstance(value, int):
            return value
    return None


def _head_dim(config: PreTrainedConfig, changes: Mapping[str, Any]) -> int:
    head_dim = changes.get("head_dim")
    if isinstance(head_dim, int):
        return head_dim
    width = changes.get("hidden_size", getattr(config, "hidden_size", None))
    heads = changes.get("num_attention_heads", getattr(config, "num_attention_heads", None))
    return width // heads if isinstance(width, int) and isinstance(heads, int) and heads else HEAD_DIM


def tiny(
    config_class: type[PreTrainedConfig], overrides: Mapping[str, Any] | None = None, *, head: str = "", decodes: bool = False
) -> PreTrainedConfig:
    """The tiny version of a class's default config, with a few labels for whatever classifies.

    Args:
        config_class: of the model.
        overrides: `Override.config`.
        head: name of the model class, whose ending says what its head wants of the config.
        decodes: whether the class generates text with nothing but a decoder.

    Raises:
        ValueError: where the config's own validation refuses what the rules and overrides give.
    """
    overrides = dict(overrides or {})
    config = config_class(**overrides.pop("default", {}))
    facts: dict[str, Any] = {}
    if "QuestionAnswering" not in head:  # which has a label for the start and one for the end
        facts["num_labels"] = LABELS
    if decodes and getattr(config, "is_decoder", None) is False and not config.is_encoder_decoder:
        facts["is_decoder"] = True  # or it attends to what follows, and keeps no cache
    if head.endswith("ForMaskedImageModeling") and getattr(config, "use_mask_token", None) is False:
        facts["use_mask_token"] = True
    config = shrink(config, {**facts, **overrides})
    if head.endswith("ForSequenceClassification"):
        config = _with_padding(config)
    return config


def _with_padding(config: PreTrainedConfig) -> PreTrainedConfig:
    """`config` with a padding token, without which the last token of a row isn't found."""
    for text in (text_config(config), config):
        if getattr(text, "pad_token_id", 0) is None:
            text.pad_token_id = 0  # the config is ours, made by shrink
    return config
