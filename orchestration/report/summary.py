"""The changes in few words: models together where they stop at one stage for one cause. For the command line, Dagster and the alert."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from rich.filesize import decimal

from orchestration.report.changes import KINDS, Change, Kind
from orchestration.report.clusters import Cluster, in_common
from orchestration.report.fleet import FleetReport

# kinds whose rows say why, as do new ones that fail; of the others only which models, by backend
_WITH_CAUSE: set[Kind] = {"broken", "worse", "better"}
# kinds whose rows have two figures
_WITH_FIGURES: set[Kind] = {"slower", "bigger", "drifted"}


@dataclass(frozen=True)
class Group:
    """Models that changed in one way, at one place.

    Attributes:
        stage: at which they stop, or which costs more; empty where no stage is concerned.
        cause: what their messages have in common (`orchestration.report.clusters.in_common`).
        example: one of their messages as it is, where `cause` leaves something out.
        figures: of each model, then and now; empty for kinds that have none.
        fresh: how many models the cause holds back that it didn't before, in the whole fleet.
        older: how many it held back before already.
    """

    kind: Kind
    backend: str
    stage: str
    cause: str
    models: tuple[str, ...]
    example: str = ""
    figures: tuple[str, ...] = ()
    fresh: int = 0
    older: int = 0

    @property
    def where(self) -> str:
        return f"{self.backend} {self.stage}".strip()

    @property
    def fails(self) -> bool:
        """Whether it is something to repair."""
        return self.kind in ("broken", "worse") or (self.kind == "new" and bool(self.stage))


def groups(made: FleetReport, kinds: Sequence[Kind] = tuple(KINDS)) -> list[Group]:
    """What changed in the comparison that is shown first; by kind, those with most models first."""
    if made.comparison is None:
        return []
    cluster_of = {key: each for each in made.clusters for key in each.partitions}
    found: dict[tuple[Kind, str, str, str], list[Change]] = defaultdict(list)
    for change in made.comparison.changes:
        if change.kind not in kinds:
            continue
        cause = cluster_of.get((change.backend, change.model)) if _has_cause(change) else None
        why = cause.id if cause else change.message if _has_cause(change) else ""
        stage = change.stage if _has_cause(change) or change.kind in _WITH_FIGURES else ""
        found[change.kind, change.backend, stage, why].append(change)
    order = list(KINDS)
    rows = [_group(members, stage, cluster_of, made.comparison.older) for (_, _, stage, _), members in found.items()]
    return sorted(rows, key=lambda row: (order.index(row.kind), -len(row.models), row.where, row.cause))


def _group(members: list[Change], stage: str, cluster_of: dict[tuple[str, str], Cluster], older: dict[str, int]) -> Group:
    first = members[0]
    models = tuple(change.model for change in members)
    figures = tuple(f"{figure(change.kind, change.before)} -> {figure(change.kind, change.after)}" for change in members)
    if first.kind in _WITH_FIGURES:
        return Group(first.kind, first.backend, stage, "", models, figures=figures)
    if not _has_cause(first):
        return Group(first.kind, first.backend, stage, "", models)
    cause = cluster_of.get((first.backend, first.model))
    if cause is None:
        return Group(first.kind, first.backend, stage, first.message, models)
    said = in_common(cause.cause, [change.message for change in members])
    prefix = f"{cause.kind}: " if cause.kind else ""
    before = older.get(cause.id, 0)
    return Group(
        first.kind,
        first.backend,
        stage,
        prefix + said,
        models,
        example="" if said == first.message else first.message,
        fresh=len(cause.models) - before,
        older=before,
    )


def _has_cause(change: Change) -> bool:
    return change.kind in _WITH_CAUSE or (change.kind == "new" and bool(change.stage))


def figure(kind: Kind, value: str | float) -> str:
    """A figure of a change with its unit: CPU seconds, bytes or an absolute difference."""
    if isinstance(value, str):
        return value
    return f"{value:.1f} s" if kind == "slower" else decimal(int(value)) if kind == "bigger" else f"{value:.1e}"


def grave(made: FleetReport) -> list[Group]:
    """What somebody may want to act on or be glad of: broken, worse, new and failing, fixed."""
    found = groups(made, ("broken", "worse", "new", "fixed"))
    return sorted((each for each in found if each.fails or each.kind == "fixed"), key=lambda each: not each.fails)


def all_of(made: FleetReport) -> list[Group]:
    """Every group: what has to be repaired first, then what was fixed, then the rest in the order of the kinds."""
    first = grave(made)
    return [*first, *(each for each in groups(made) if each not in first)]


def some(models: Sequence[str], most: int) -> str:
    """The first few names, and how many more there are."""
    rest = len(models) - most
    return ", ".join(models[:most]) + (f" and {rest} more" if rest > 0 else "")


def sentence(made: FleetReport) -> str:
    """How much of each kind changed: `12 broken, 3 fixed`."""
    if made.comparison is None:
        return "the first report"
    return ", ".join(f"{number} {kind}" for kind, number in made.comparison.counts.items() if number) or "nothing changed"
