"""The whole report: what the store knows, compared with what its history knows. Makes a snapshot of it."""

import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from exporters.backends import all_backends
from exporters.code_index import code_index
from exporters.registered import with_registered
from exporters.reports import last_reports
from exporters.store import Store
from exporters.zoo import catalogue, zoo_file
from orchestration.report.changes import Change, Kind, changes, counts
from orchestration.report.clusters import Cluster, cluster
from orchestration.report.costs import StageCost, costs
from orchestration.report.history import History, Standings, moment_of, spread, state_at
from orchestration.report.reach import KnownIssueRow, Reach, known, reach
from orchestration.report.snapshot import STANDINGS, Key, Snapshot, Standing, take
from orchestration.report.software import Upgrades, present, upgrades

DAY = 86_400.0
# a week is over half a day early: what runs weekly doesn't run to the second
_SPANS = {"1 week": 6.5 * DAY, "4 weeks": 27.5 * DAY}
# how many kept snapshots the trends are drawn from
_TREND_POINTS = 52


@dataclass(frozen=True)
class Comparison:
    """The report beside an earlier snapshot.

    Attributes:
        label: what it is compared with: `last report`, `1 week`, `4 weeks`, or as it was asked for.
        at: when that was taken, in seconds since the epoch.
        tallies: by backend, how many of each standing there were then.
        older: by the id of each cause of the report, how many of its models it held back then already.
        upgrades: what is made with other packages or other code since.
    """

    label: str
    at: float
    changes: list[Change]
    tallies: dict[str, dict[Standing, int]]
    older: dict[str, int]
    upgrades: Upgrades

    @property
    def counts(self) -> dict[Kind, int]:
        return counts(self.changes)


@dataclass(frozen=True)
class TrendPoint:
    """By backend how many were verified and how many there were, at a moment."""

    at: float
    verified: dict[str, int]
    total: dict[str, int]


@dataclass(frozen=True)
class FleetReport:
    """Everything that the page, the command line, Dagster and the alert show.

    Attributes:
        name: of the snapshot; empty where nothing was ever exported, of which none is kept.
        is_new: whether anything happened since the snapshot before; if not, that one is shown again and none was made.
        comparisons: with earlier snapshots; the one that is shown first, if there is any, comes first.
        model_types: by model, its architecture and its family.
        failing_since: of each that fails, when it was first seen to, as far back as the history goes; in seconds since the epoch.
    """

    name: str
    is_new: bool
    snapshot: Snapshot
    comparisons: list[Comparison]
    clusters: list[Cluster]
    costs: list[StageCost]
    reach: list[Reach]
    known: list[KnownIssueRow]
    trend: list[TrendPoint]
    model_types: dict[str, tuple[str, str]]
    failing_since: dict[Key, float]

    @property
    def comparison(self) -> Comparison | None:
        """The one that is shown first; None for the first report of all."""
        return self.comparisons[0] if self.comparisons else None

    @property
    def backends(self) -> list[str]:
        """Those with any report, in the order of the families."""
        present = {each.backend for each in self.snapshot.partitions}
        return [*(backend for backend in all_backends() if backend in present), *sorted(present - {*all_backends()})]

    def tally(self, backend: str) -> dict[Standing, int]:
        """How many of a backend's exports are of each standing, zeros included."""
        return tallies(self.snapshot)[backend]

    @property
    def headline(self) -> dict[str, int]:
        """The numbers of the first line."""
        of_all = Counter(each.standing for each in self.snapshot.partitions)
        changed = {str(kind): number for kind, number in self.comparison.counts.items()} if self.comparison else {}
        totals = {"exports": len(self.snapshot.partitions), "models": len({each.model for each in self.snapshot.partitions})}
        return {**totals, **{name: of_all[name] for name in STANDINGS}, **changed}


def tallies(snapshot: Snapshot) -> dict[str, dict[Standing, int]]:
    """By backend, how many exports are of each standing, zeros included."""
    counted = Counter((each.backend, each.standing) for each in snapshot.partitions)
    return {backend: {name: counted[backend, name] for name in STANDINGS} for backend in sorted({backend for backend, _ in counted})}


def make(store: Store, home: Path, *, since: float | None = None, since_label: str = "", now: float | None = None) -> FleetReport:
    """Read the last report of every partition, keep a snapshot if anything has happened, and compare it with those before.

    Args:
        home: zooport's, for its cache.
        since: also compare with how things stood then (seconds since the epoch), and show that first.
        since_label: how that is called.
        now: seconds since the epoch.

    Raises:
        StoreError: the store can't be read or written.
    """
    now = time.time() if now is None else now
    reports = last_reports(store)
    index = with_registered(code_index(home / "cache"))
    snapshot = take(reports, now, present(index))
    history = History(store)
    names = history.names()
    newest = history.load(names[-1]) if names else None
    is_new = newest is None or not snapshot.says_the_same(newest)
    if newest is not None and not is_new:
        snapshot.software = newest.software  # what was upgraded since has made nothing yet
    if not names and not snapshot.partitions:
        name, earlier = "", names  # everything would be new beside a snapshot of nothing
    else:
        if is_new:
            names.append(history.save(snapshot))
        name, earlier = names[-1], names[:-1]
    types = _types(snapshot)
    clusters = cluster(snapshot.partitions, _architectures(types))
    kept = [each for each in map(history.standings, spread(names, _TREND_POINTS)) if each is not None]
    return FleetReport(
        name=name,
        is_new=is_new,
        snapshot=snapshot,
        comparisons=[
            _compare(label, before, snapshot, clusters, types) for label, before in _earlier(history, earlier, since, since_label, now)
        ],
        clusters=clusters,
        costs=costs(snapshot.partitions),
        reach=reach(reports.values(), index),
        known=known(snapshot.by_key()),
        model_types=types,
        trend=[_point(each) for each in kept],
        failing_since=_failing_since(kept, snapshot),
    )


def _earlier(history: History, earlier: list[str], since: float | None, since_label: str, now: float) -> list[tuple[str, Snapshot]]:
    """How each of the moments that are of interest is called, with its snapshot; of two that show the same one the first."""
    moments = [("last report", now), *((label, now - span) for label, span in _SPANS.items())]
    chosen = [(label, state_at(earlier, moment)) for label, moment in moments if earlier and moment_of(earlier[0]) <= moment]
    if since is not None:
        chosen.insert(0, (since_label, state_at(earlier, since)))
    shown: dict[str, tuple[str, Snapshot]] = {}
    for label, name in chosen:
        if name is None or name in shown:
            continue
        before = history.load(name)
        if before is not None:
            shown[name] = label, before
    return list(shown.values())


def _compare(label: str, before: Snapshot, snapshot: Snapshot, clusters: list[Cluster], types: dict[str, tuple[str, str]]) -> Comparison:
    ids = {key: each.id for each in cluster(before.partitions, _architectures(types)) for key in each.partitions}
    older = {each.id: len({model for backend, model in each.partitions if ids.get((backend, model)) == each.id}) for each in clusters}
    found = changes(before, snapshot)
    return Comparison(label, before.at, found, tallies(before), older, upgrades(before.software, snapshot.software))


def _architectures(types: dict[str, tuple[str, str]]) -> dict[str, str]:
    return {model: kind for model, (kind, _) in types.items()}


def _failing_since(kept: list[Standings], snapshot: Snapshot) -> dict[Key, float]:
    since: dict[Key, float] = {}
    for partition in snapshot.partitions:
        if not partition.failing:
            continue
        first = partition.at or snapshot.at
        for standings in reversed(kept):
            then = standings.of.get(partition.key)
            if then is None or then.good or not then.failing:
                break
            first = min(first, standings.at)
        since[partition.key] = first
    return since


def _point(standings: Standings) -> TrendPoint:
    total = Counter(backend for backend, _ in standings.of)
    verified = Counter(backend for (backend, _), each in standings.of.items() if each.good)
    return TrendPoint(standings.at, {backend: verified[backend] for backend in total}, dict(total))


def _types(snapshot: Snapshot) -> dict[str, tuple[str, str]]:
    named = zoo_file.read()
    found: dict[str, tuple[str, str]] = {}
    for model in {each.model for each in snapshot.partitions}:
        if catalogue.has(model):
            entry = catalogue.entry(model)
            found[model] = entry.model_type, entry.family
        else:
            found[model] = ("checkpoints", "checkpoint") if model in named or "/" in model else ("not in the zoo", "")
    return found
