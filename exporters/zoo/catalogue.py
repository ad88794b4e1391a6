"""The names of the zoo and what is known of each without building it. Imports neither torch nor transformers.

`catalogue.json` is generated: `python -m exporters.zoo.generate` writes it anew after an upgrade of transformers.
"""

import difflib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib import resources

from exporters.errors import UnknownModel


@dataclass(frozen=True)
class Entry:
    """One model of the zoo.

    Attributes:
        name: class name, with `@variant` for a variant of it: `LlamaForCausalLM@decode`.
        model_type: transformers' name of the architecture (`nllb-moe`).
        module: where its code is among transformers' models (`nllb_moe.modeling_nllb_moe`).
        family: `text`, `vision`, `audio`, `video`, `multimodal`, …
        main_input: name of the forward argument that carries the data.
        task: what it does, in transformers' words: `text-classification`, …
        generates: whether it has `generate`.
        decodes: whether it also takes a cache of the steps before; such a class has a variant `decode`.
        requires: package without which its module can't even be imported; empty for nearly all.
        internal: whether transformers keeps it to itself: an encoder, decoder or wrapper that public classes are made of.
    """

    name: str
    model_type: str
    module: str
    family: str
    main_input: str
    task: str
    generates: bool
    decodes: bool = False
    requires: str = ""
    internal: bool = False

    @property
    def class_name(self) -> str:
        """The class without its variant."""
        return self.name.partition("@")[0]

    @property
    def variant(self) -> str:
        """What follows the `@`; empty for the class itself."""
        return self.name.partition("@")[2]


@lru_cache(maxsize=1)
def _entries() -> dict[str, Entry]:
    text = resources.files("exporters.zoo").joinpath("catalogue.json").read_text(encoding="utf-8")
    table = json.loads(text)
    fields = table["fields"]
    entries: dict[str, Entry] = {}
    for key in ("classes", "internal"):
        internal = key == "internal"
        for values in table[key]:
            row = dict(zip(fields, values, strict=True))
            name = row.pop("name")
            for full_name in [name, f"{name}@decode"] if row["decodes"] and not internal else [name]:
                entries[full_name] = Entry(name=full_name, internal=internal, **row)
    return entries


def names(*, internal: bool = False) -> list[str]:
    """Every name of the zoo, a class before its variants; or those of the internal classes, which `entry` and `build` know as well."""
    return [name for name, entry in _entries().items() if entry.internal == internal]


def has(name: str) -> bool:
    """Whether `entry` knows `name`."""
    return name in _entries()


def entry(name: str) -> Entry:
    """What is known of `name`.

    Raises:
        UnknownModel: with near matches, if the zoo has no such name.
    """
    entries = _entries()
    if name in entries:
        return entries[name]
    raise unknown(name, names())


def unknown(name: str, known: Sequence[str]) -> UnknownModel:
    """What to raise for a name that isn't among `known`: with those near it."""
    near = difflib.get_close_matches(name, known, n=3, cutoff=0.5)
    if not near:
        # a wrong case or a part of the name is too far for difflib's ratio
        near = [other for other in known if name and name.lower() in other.lower()][:3]
    hint = f"did you mean {' or '.join(near)}?" if near else "`zooport zoo` lists the names"
    return UnknownModel(f"no model called {name!r} in the zoo", next=hint)
