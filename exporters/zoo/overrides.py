"""What the generic rules can't know about a model type, as data (`overrides.json`), each with the reason."""

import json
from dataclasses import dataclass, field
from functools import lru_cache
from importlib import resources
from typing import Any


@dataclass(frozen=True)
class Override:
    """Declared facts on one model type.

    Attributes:
        why: the reason, one sentence.
        config: config fields to set instead of what shrinking gives; a nested table for a sub-config, whose
            `model_type` may name another class. `keep` lists fields that don't shrink, `default` what the config class itself needs.
        part: the same, wherever a config of this type is a part of another one.
        inputs: options of the input rules: `varies` (sizes that vary beyond the usual ones), `images` (`free`: their
            number is not the batch's), `bounds` (axis -> `min`, `max`, `why`).
        decode: options of the decode step: `padding` (`none` where positions of padded rows aren't counted on), `keeps` (inputs that
            every step is given again), `whole` (of which a step is given all, and takes the last),
            `drops` (what only the first call is given), `positions` (whether it must be told where the token stands), `constants` (of a
            step alone), `cache` (the parameter that takes it, where it isn't `cache` or `state`), `ask` (by which arguments it is asked
            for), `by_token` (whether a cache is filled a token at a time), `part` (the part that `generate` hands its steps to).
        part_of: class of the same module that gives this one its inputs, where they are intermediate values.
        missing: by `forward` or variant, why a class can't work at this pin: what is missing, and where.
        outputs: `without` (names of outputs that don't count for parity) and `why`.
    """

    why: str = ""
    part: dict[str, Any] = field(default_factory=dict)
    config: dict[str, Any] = field(default_factory=dict)
    inputs: dict[str, Any] = field(default_factory=dict)
    outputs: dict[str, Any] = field(default_factory=dict)
    decode: dict[str, Any] = field(default_factory=dict)
    part_of: str = ""
    missing: dict[str, str] = field(default_factory=dict)


@lru_cache(maxsize=1)
def _table() -> dict[str, Override]:
    text = resources.files("exporters.zoo").joinpath("overrides.json").read_text(encoding="utf-8")
    return {model_type: Override(**row) for model_type, row in json.loads(text).items()}


def override(model_type: str, class_name: str = "") -> Override:
    """What is declared for `model_type`, and over it what is declared for the class; an empty `Override` where the generic rules do."""
    general = _table().get(model_type, Override())
    special = _table().get(class_name)
    if special is None:
        return general
    return Override(
        why=special.why,
        part=general.part,
        config={**general.config, **special.config},
        inputs={**general.inputs, **special.inputs},
        outputs=special.outputs or general.outputs,
        decode={**general.decode, **special.decode},
        part_of=special.part_of,
        missing={**general.missing, **special.missing},
    )
