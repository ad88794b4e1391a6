"""Shrink any transformers config to a tiny one of the same kind, by rules on the names of its fields.

A config is never mutated: it is made anew from the fields that change, so that `__post_init__` computes again what it
derives. One width everywhere makes projections between parts fit without knowing which parts there are.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from transformers import CONFIG_MAPPING, PreTrainedConfig

WIDTH = 64
HEADS = 4
HEAD_DIM = WIDTH // HEADS
EXPERT_WIDTH = 32
LAYERS = 2
VOCABULARY = 256
POSITIONS = 256
EXPERTS = 4
IMAGE = 32
PATCH = 8
HIERARCHICAL_IMAGE = 64
STAGE_STEP = 16  # width of a hierarchical network's first stage, and of one of its heads
FIRST_SPECIAL = 5  # ids below are the usual pad, bos, eos, unk and mask
LABELS = 6

# ── Upper bounds by field name ────────────────────────────────────────────────
# An integer field shrinks to the bound, and stays what it is when it is smaller.

_CAPS: dict[str, int] = {
    **dict.fromkeys(
        (
            "hidden_size", "d_model", "n_embd", "dim", "embed_dim", "embedding_size", "projection_dim", "decoder_hidden_size",
            "pooler_output_size", "output_hidden_size", "classifier_proj_size", "codevector_dim", "proj_codevector_dim",
            "xvector_output_dim", "intermediate_size", "n_inner", "hidden_dim", "d_ff", "ffn_dim", "encoder_ffn_dim", "decoder_ffn_dim",
        ),
        WIDTH,
    ),
    **dict.fromkeys(("moe_intermediate_size", "expert_dim", "shared_expert_intermediate_size"), EXPERT_WIDTH),
    **dict.fromkeys(
        ("num_attention_heads", "n_head", "n_heads", "num_heads", "encoder_attention_heads", "decoder_attention_heads"),
        HEADS,
    ),
    **dict.fromkeys(("head_dim", "d_kv", "time_step_rank", "q_lora_rank", "kv_lora_rank", "state_size"), HEAD_DIM),
    **dict.fromkeys(
        ("num_hidden_layers", "n_layer", "n_layers", "num_layers", "encoder_layers", "decoder_layers", "num_decoder_layers"),
        LAYERS,
    ),
    **dict.fromkeys(("vocab_size",), VOCABULARY),
    **dict.fromkeys(("max_position_embeddings", "n_positions", "max_source_positions", "max_target_positions"), POSITIONS),
    **dict.fromkeys(("num_experts", "num_local_experts", "n_routed_experts"), EXPERTS),
    **dict.fromkeys(("num_experts_per_tok",), 2),
    **dict.fromkeys(("sliding_window", "attention_chunk_size", "num_queries"), 8),
}  # fmt: skip

# ── Rules that look at more than one field ────────────────────────────────────


def _kv_heads(config: PreTrainedConfig, value: int) -> int:
    """Multi-head, grouped and multi-query attention stay what they are."""
    heads = getattr(config, "num_attention_heads", value)
    if value == heads:
        return HEADS
    return 1 if value == 1 else HEADS // 2


def _embed_dim(config: PreTrainedConfig, value: int) -> int:
    """In a hierarchical network the first stage's width, which doubles from stage to stage."""
    return min(value, STAGE_STEP if _hierarchical(config) else WIDTH)


def _depths(config: PreTrainedConfig, value: list[int]) -> list[int]:
    return [1] * len(value)


def _stage_widths(config: PreTrainedConfig, value: list[int]) -> list[int]:
    return [min(STAGE_STEP * stage, WIDTH) for stage in range(1, len(value) + 1)]


def _heads(config: PreTrainedConfig, value: int | list[int]) -> int | list[int]:
    """Heads of width 16 in every stage."""
    if isinstance(value, int):
        return min(value, HEADS)
    if isinstance(getattr(config, "embed_dim", None), int):
        return [2**stage for stage in range(len(value))]
    return [width // STAGE_STEP for width in _stage_widths(config, value)]


def _conv_widths(config: PreTrainedConfig, value: list[int]) -> list[int]:
    return [EXPERT_WIDTH] * len(value)


def _image_size(config: PreTrainedConfig, value: int | list[int]) -> int | list[int]:
    size = IMAGE if isinstance(getattr(config, "patch_size", None), int) and not _hierarchical(config) else HIERARCHICAL_IMAGE
    return size if isinstance(value, int) else [size] * len(value)


def _patch_size(config: PreTrainedConfig, value: int | list[int]) -> int | list[int]:
    """Where a fixed image is cut into patches; the patches of a hierarchical network are its strides and stay."""
    if _hierarchical(config) or not hasattr(config, "image_size"):
        return value
    return PATCH if isinstance(value, int) else [PATCH] * len(value)


def _layer_types(config: PreTrainedConfig, value: list[str]) -> list[str]:
    """One layer of each kind, and at least two."""
    kinds = list(dict.fromkeys(value))
    return kinds if len(kinds) >= LAYERS else kinds * LAYERS


def _hierarchical(config: PreTrainedConfig) -> bool:
    return isinstance(getattr(config, "depths", None), (list, tuple))


_RULES: dict[str, Callable[[PreTrainedConfig, Any], Any]] = {
    "num_key_value_heads": _kv_heads,
    "embed_dim": _embed_dim,
    "depths": _depths,
    "hidden_sizes": _stage_widths,
    "num_attention_heads": _heads,
    "num_heads": _heads,
    "conv_dim": _conv_widths,
    "image_size": _image_size,
    "patch_size": _patch_size,
    "layer_types": _layer_types,
}


def _shrunk(config: PreTrainedConfig, name: str, value: Any) -> Any:
    """The tiny value of one field; the value itself where no rule knows it."""
    rule = _RULES.get(name)
    if rule is not None and value is not None:
        return rule(config, list(value) if isinstance(value, tuple) else value)
    if name in _CAPS and isinstance(value, int) and not isinstance(value, bool):
        return min(value, _CAPS[name])
    return value


# ── Whole configs ─────────────────────────────────────────────────────────────


def _vocabulary(config: PreTrainedConfig) -> int | None:
    """The shrunk vocabulary of the text part."""
    size = getattr(config.get_text_config(), "vocab_size", None)
    return min(size, VOCABULARY) if isinstance(size, int) else None


def _special_ids(config: PreTrainedConfig, changes: Mapping[str, Any], fields: list[str]) -> dict[str, int]:
    """Ids of their own, from 5, for the special tokens that the shrunk vocabulary no longer has."""
    vocabulary = _vocabulary(config)
    named = [name for name in fields if name.endswith(("_token_id", "_token_index")) and name not in changes]
    lost = [name for name in named if vocabulary is not None and isinstance(value := getattr(config, name), int) and value >= vocabulary]
    fresh: dict[int, int] = {}
    # fields that shared an id (gpt2's bos and eos) go on sharing one
    return {name: fresh.setdefault(getattr(config, name), FIRST_SPECIAL + len(fresh)) for name in lost}


def _said(name: str, value: Any, default: Any) -> bool:
    """Whether the constructor must be told: it isn't the class's default, and either a rule knows the field or it is no size.

    Other sizes stay unsaid: they follow from fields that have been shrunk.
    """
    if value == default:
        return False
    return name in _RULES or name in _CAPS or isinstance(value, (str, bool, float)) or name.startswith("out_")


def shrink(config: PreTrainedConfig, overrides: Mapping[str, Any] | None = None) -> PreTrainedConfig:
    """A tiny config of the same class.

    Args:
        config: any config; it is not changed.
        overrides: fields to set instead of what the rules give, nested for sub-configs (`Override.config`).

    Returns:
        A new instance, made through the constructor.
    """
    overrides = dict(overrides or {})
    model_type = overrides.pop("model_type", config.model_type)
    if model_type != config.model_type:
        config = CONFIG_MAPPING[model_type]()
    default = type(config)()
    fields = [field.name for field in dataclasses.fields(config)]

    changes: dict[str, Any] = {}
    for name in fields:
        value = getattr(config, name, None)
        if isinstance(value, PreTrainedConfig):
            changes[name] = shrink(value, overrides.pop(name, None))
            continue
        small = _shrunk(config, name, value)
        if _said(name, small, getattr(default, name, None)):
            changes[name] = small
    if isinstance(changes.get("layer_types"), list):
        changes["num_hidden_layers"] = len(changes["layer_types"])
    changes.update(overrides)
    changes.update(_special_ids(config, changes, fields))
    return type(config)(**changes)


def tiny(config_class: type[PreTrainedConfig], overrides: Mapping[str, Any] | None = None) -> PreTrainedConfig:
    """The tiny version of a class's default config, with a few labels for whatever classifies.

    Raises:
        ValueError: where the config's own validation refuses what the rules and overrides give.
    """
    return shrink(config_class(), {"num_labels": LABELS, **(overrides or {})})
