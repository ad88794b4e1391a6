"""What of a whole store is out of date, and why: from its references alone, without torch, thousands of partitions in seconds."""

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from pydantic import ValidationError

from exporters import ledger, source
from exporters.backends import STAGES, family_of
from exporters.code_index import CodeIndex
from exporters.errors import ZooportError
from exporters.keys import Options, SampleReference, baked_weights, sample_parts, stage_parts
from exporters.ledger import Reference
from exporters.source import Source
from exporters.store import Store, json_digest

# `behind`: nothing of its own has changed, but a stage before it has to be made again and may come out the same
State = Literal["fresh", "stale", "behind", "missing"]


@dataclass(frozen=True)
class StageState:
    """One stage of one partition.

    Attributes:
        causes: of a stale one, what has changed since it was made.
        recipe: what it would be made with now (`exporters.ledger.recipe_version`); empty where it was never made.
    """

    stage: str
    state: State
    causes: tuple[str, ...] = ()
    recipe: str = ""


@dataclass(frozen=True)
class PartitionState:
    """One model for one backend.

    Attributes:
        name: under which the store keeps it.
        model: as it was asked for when it was last exported.
        stages: in order; those after the first that is stale or missing are `behind`, or stale on their own account.
    """

    name: str
    model: str
    backend: str
    stages: tuple[StageState, ...] = field(default_factory=tuple)

    @property
    def fresh(self) -> bool:
        return all(stage.state == "fresh" for stage in self.stages)

    @property
    def first_stale(self) -> StageState | None:
        """Where a run would start, if anything needs one."""
        return next((stage for stage in self.stages if stage.state != "fresh"), None)


def survey(store: Store, index: CodeIndex, *, family: str = "") -> Iterator[PartitionState]:
    """The state of every partition that the store has anything of, by backend and name.

    A partition is judged by the options that it was last exported with.

    Args:
        family: only this one's; of all by default.
    """
    samples, partitions = _read(store, [family] if family else [*STAGES])
    for (backend, name), references in sorted(partitions.items()):
        if family in ("", family_of(backend)):
            yield _judge(backend, name, references, samples.get(name), index)


def _read(store: Store, families: Sequence[str]) -> tuple[dict[str, dict[str, Any]], dict[tuple[str, str], dict[str, Reference]]]:
    samples: dict[str, dict[str, Any]] = {}
    partitions: dict[tuple[str, str], dict[str, Reference]] = {}
    for parts, content in (each for part in ("samples", *families) for each in store.refs(part)):
        match parts:
            case ("samples", name) if content is not None:
                samples[name] = content
            case (family, stage, backend, name) if stage in STAGES.get(family, ()):
                known = partitions.setdefault((backend, name), {})
                with contextlib.suppress(ValidationError):  # another version's, or damaged: for this one the stage is missing
                    known[stage] = Reference.model_validate(content)
    return samples, {key: references for key, references in partitions.items() if references}


def _judge(backend: str, name: str, references: dict[str, Reference], sample: dict[str, Any] | None, index: CodeIndex) -> PartitionState:
    stages = STAGES[family_of(backend)]
    model = next(iter(references.values())).model
    try:
        origin = source.resolve(model)
    except ZooportError as error:
        gone = StageState(stages[0], "stale", (f"the model: {error}",))
        return PartitionState(name, model, backend, (gone, *(StageState(stage, "behind") for stage in stages[1:])))
    states: list[StageState] = []
    known, unknown = _known_sample(origin, sample, index)
    options = _options(backend, references)
    # of a sample that has to be built again, what it is built from stands for what it is
    digest = known.digest if known else json_digest(sample_parts(origin, index))
    for stage in stages:
        reference = references.get(stage)
        behind = any(state.state != "fresh" for state in states)
        if reference is None:
            states.append(StageState(stage, "missing"))
            continue
        input_digest = reference.parts["input"] if behind else digest
        weights = baked_weights(stage, origin, known) if known else reference.parts["weights"]
        parts = stage_parts(stage, options, input_digest, weights, index)
        rows = ledger.recipe(reference.record, index, backend, stage)
        causes = tuple(ledger.differences(reference, parts, rows))
        if known is None and stage == stages[0]:
            causes = (*unknown, *(cause for cause in causes if cause != "input"))
        state: State = "stale" if causes else "behind" if behind else "fresh"
        states.append(StageState(stage, state, causes, ledger.recipe_version(parts, rows)))
        digest = reference.digest
    return PartitionState(name, model, backend, tuple(states))


def _known_sample(origin: Source, content: dict[str, Any] | None, index: CodeIndex) -> tuple[SampleReference | None, tuple[str, ...]]:
    """The sample's digests where they still hold, or why nobody knows without building it."""
    try:
        known = SampleReference(**content) if content else None
    except TypeError:
        known = None
    if known is None:
        return None, ("the sample: not looked at yet",)
    parts = sample_parts(origin, index)
    if known.still_holds(parts):
        return known, ()
    changed = tuple(f"the sample: {each}" for each in ledger.changed_parts(known.parts, parts))
    return None, changed or ("the sample: the model's own code",)


def _options(backend: str, references: dict[str, Reference]) -> Options:
    """The options that a partition was last exported with, as far as its stages read them."""
    config: dict[str, Any] = {}
    for reference in references.values():
        config |= reference.parts.get("config", {})
    return Options(backend, config.get("dynamic", True), config.get("max_sizes", {}), config.get("opset", 0), config.get("optimize", True))
