"""The changes in few words: models together where they stop at one stage for one cause. For the command line, Dagster and the alert."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from orchestration.report.changes import KINDS, Kind
from orchestration.report.fleet import FleetReport

# kinds whose rows say why, as do new ones that fail; of the others only which models, by backend
_WITH_CAUSE: set[Kind] = {"broken", "worse", "better"}


@dataclass(frozen=True)
class Group:
    """Models that changed in one way, at one place.

    Attributes:
        stage: at which they stop; empty where they don't.
        cause: what their messages have in common.
    """

    kind: Kind
    backend: str
    stage: str
    cause: str
    models: tuple[str, ...]

    @property
    def where(self) -> str:
        return f"{self.backend} {self.stage}".strip()


def groups(made: FleetReport, kinds: Sequence[Kind] = tuple(KINDS)) -> list[Group]:
    """What changed in the comparison that is shown first; by kind, those with most models first."""
    if made.comparison is None:
        return []
    cause_of = {key: f"{each.kind}: {each.cause}" for each in made.clusters for key in each.partitions}
    found: dict[tuple[Kind, str, str, str], list[str]] = defaultdict(list)
    for change in made.comparison.changes:
        with_cause = change.kind in _WITH_CAUSE or (change.kind == "new" and bool(change.stage))
        cause = cause_of.get((change.backend, change.model), change.message) if with_cause else ""
        found[change.kind, change.backend, change.stage if with_cause else "", cause].append(change.model)
    rows = [Group(kind, backend, stage, cause, tuple(models)) for (kind, backend, stage, cause), models in found.items()]
    order = list(KINDS)
    return sorted(
        (row for row in rows if row.kind in kinds), key=lambda row: (order.index(row.kind), -len(row.models), row.where, row.cause)
    )


def grave(made: FleetReport) -> list[Group]:
    """What somebody may want to act on or be glad of: broken, worse, new and failing, fixed."""
    found = groups(made, ("broken", "worse", "new", "fixed"))
    return sorted((each for each in found if each.kind != "new" or each.stage), key=lambda each: each.kind == "fixed")


def some(models: Sequence[str], most: int) -> str:
    """The first few names, and how many more there are."""
    rest = len(models) - most
    return ", ".join(models[:most]) + (f" and {rest} more" if rest > 0 else "")


def sentence(made: FleetReport) -> str:
    """How much of each kind changed: `12 broken, 3 fixed`."""
    if made.comparison is None:
        return "the first report"
    return ", ".join(f"{number} {kind}" for kind, number in made.comparison.counts.items() if number) or "nothing changed"
