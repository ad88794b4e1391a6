"""The ledger: what each workaround did to each partition, and which of them a stage's result depends on.

A stage is made again when something that can change its result has changed. For code outside workarounds that is its fingerprint; for
workarounds it is the *recipe*: the fingerprints of those that matter to this partition, by what its last run showed (`Record`).

- A patch matters if it was called. One that was in reach and not called left no trace of its body: a run up to the first call of it is
  the same run. One that was not there, or replaced something else, matters if its target can occur in this model.
- A node fix, a translation or an IR fix matters if a graph that its pass read had one of the operators that it declares; it is shown no
  other. A program fix reads everything, and matters wherever its pass ran.
- A workaround that mattered and is gone leaves the recipe, one that now matters enters it: both are changes.

The full argument, and where it leans on the contract of workarounds, is docs/decisions/006-fingerprints.md.
"""

from collections.abc import Iterable, Iterator
from typing import Any

from pydantic import BaseModel, Field

from exporters.backends import scopes_of
from exporters.code_index import CodeIndex, Workaround
from exporters.report import Deeds, StageReport
from exporters.store import json_digest
from exporters.utils import MODELING_MODULE, patch_identity

Recipe = list[tuple[str, str]]

# what a recipe calls the set of operators that have a translation of ours: which there are decides what is decomposed
TRANSLATED = "onnx:_ONNX_TRANSLATION_TABLE"


class Record(BaseModel):
    """What was seen of the workarounds while a stage was made.

    Attributes:
        patches: those that could have been called, as `exporters.utils.patch_identity` has them; None if the stage applies none.
        read: the operators that the passes of a kind read, by `<kind> <scope>`; there only where such a pass ran.
        modules: modeling modules of transformers that were loaded when patches were applied.
    """

    deeds: Deeds = Field(default_factory=Deeds)
    patches: list[str] | None = None
    read: dict[str, list[str]] = Field(default_factory=dict)
    modules: list[str] = Field(default_factory=list)


class Reference(BaseModel):
    """What the store keeps for a (stage, backend, model): which artifact, and what it was made of.

    Attributes:
        model: as it was asked for: a class of the zoo, a checkpoint's name or folder.
        parts: everything but workarounds that can change the result: input, weights, config, packages, code.
        recipe: name and fingerprint of the workarounds that matter, in the order in which they apply.
        made_at: seconds since the epoch.
        made_by: the run that made it, as whoever started it calls it; empty for the command line.
    """

    digest: str
    model: str
    parts: dict[str, Any]
    recipe: Recipe
    record: Record
    report: StageReport
    made_at: float
    made_by: str = ""


# ── Recipes ───────────────────────────────────────────────────────────────────


def recipe(record: Record, index: CodeIndex, backend: str, stage: str) -> Recipe:
    """The workarounds of `index` that matter to a stage which once ran as `record` shows."""
    scopes = scopes_of(backend)
    rows = [(each.name, each.fingerprint) for each in index.workarounds if each.scope in scopes and matters(each, record)]
    if backend == "onnx" and stage == "decomposed_graph":
        translated = sorted(target for each in index.workarounds if each.kind == "translation" for target in each.targets)
        rows.append((TRANSLATED, json_digest(translated)))
    return rows


def recipe_version(parts: dict[str, Any], rows: Recipe) -> str:
    """A digest of what a stage is made with: all of its key but the artifact before it; of a trace, which has none, the sample too."""
    first = "max_sizes" in parts["config"]
    own = {name: part for name, part in parts.items() if first or name != "input"}
    return f"sha256:{json_digest([own, rows])}"


def matters(workaround: Workaround, record: Record) -> bool:
    """Whether a workaround as it is now could change what `record` is of."""
    if workaround.kind == "patch":
        if record.patches is None:
            return False
        if patch_identity(workaround.name, workaround.targets) in record.patches:
            return workaround.name in record.deeds.called
        return any(_can_occur(target, record.modules) for target in workaround.targets)
    operators = record.read.get(f"{workaround.kind} {workaround.scope}")
    if operators is None:
        return False
    return not workaround.targets or not set(workaround.targets).isdisjoint(operators)


def _can_occur(target: str, modules: Iterable[str]) -> bool:
    """Whether something that was never replaced could be called: not if it lies in a modeling module that wasn't loaded."""
    module = MODELING_MODULE.match(target)
    return module is None or module[0] in modules


def differences(reference: Reference, parts: dict[str, Any], now: Recipe) -> list[str]:
    """What has changed since a stage was made, in words; nothing if its artifact can be taken."""
    return [*changed_parts(reference.parts, parts), *_changed_workarounds(dict(reference.recipe), dict(now))] or (
        [] if [tuple(row) for row in reference.recipe] == now else ["the order of workarounds"]
    )


def changed_parts(before: dict[str, Any], after: dict[str, Any]) -> Iterator[str]:
    """Which parts of a key differ, in words."""
    for name in sorted(before.keys() | after.keys()):
        old, new = before.get(name), after.get(name)
        if old == new:
            continue
        if isinstance(old, dict) and isinstance(new, dict):
            for key in sorted(old.keys() | new.keys()):
                if old.get(key) != new.get(key):
                    yield f"{name}: {key} {old.get(key, 'absent')} -> {new.get(key, 'absent')}"
        else:
            yield name


def _changed_workarounds(before: dict[str, str], after: dict[str, str]) -> Iterator[str]:
    for name in sorted(before.keys() | after.keys()):
        if name not in after:
            yield f"workaround {name}: removed"
        elif name not in before:
            yield f"workaround {name}: new"
        elif before[name] != after[name]:
            yield f"workaround {name}: changed"
