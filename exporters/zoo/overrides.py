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
            `model_type` may name another class.
        inputs: options of the input rules: `varies` (sizes that vary beyond the usual ones), `images` (`free`: their
            number is not the batch's), `bounds` (axis -> `min`, `max`, `why`).
        outputs: `without` (names of outputs that don't count for parity) and `why`.
    """

    why: str = ""
    config: dict[str, Any] = field(default_factory=dict)
    inputs: dict[str, Any] = field(default_factory=dict)
    outputs: dict[str, Any] = field(default_factory=dict)


@lru_cache(maxsize=1)
def _table() -> dict[str, Override]:
    text = resources.files("exporters.zoo").joinpath("overrides.json").read_text(encoding="utf-8")
    return {model_type: Override(**row) for model_type, row in json.loads(text).items()}


def override(model_type: str) -> Override:
    """What is declared for `model_type`; an empty `Override` where the generic rules do."""
    return _table().get(model_type, Override())
