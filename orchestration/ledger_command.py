"""`zooport workarounds` and `zooport stale`: the ledger, read."""

import json
import sys
from collections import Counter
from dataclasses import asdict

from rich.table import Table

from exporters import code_index as indexed
from exporters.backends import STAGES
from exporters.deeds import Count, count
from exporters.home import home, store_of
from exporters.staleness import PartitionState, survey
from exporters.store import Store
from orchestration.console import console_on

# ── Workarounds ───────────────────────────────────────────────────────────────


def show_workarounds(*, unused: bool, as_json: bool) -> None:
    """Print a row a registration with its reach; with `unused` those that did nothing in all that was exported."""
    rows = count(_store(), _index())
    if unused:
        rows = [row for row in rows if not row.models]
    if as_json:
        json.dump([_as_json(row) for row in rows], sys.stdout, indent=1)
        print()
        return
    table = Table(box=None, header_style="dim", pad_edge=False)
    for column in ("workaround", "kind", "stage", "models", "times", "where", "upstream"):
        table.add_column(column, overflow="fold", justify="right" if column in ("models", "times") else "left")
    for row in rows:
        each = row.workaround
        where, upstream = f"{each.file}:{each.line}", each.fields.get("Upstream", "")
        times = sum(row.models.values())
        table.add_row(each.name, each.kind, ", ".join(row.stages), str(len(row.models)), str(times), where, upstream)
    console = console_on(sys.stdout)
    console.print(table)
    idle = sum(not row.models for row in rows)
    store = _store()
    some = any(True for family in STAGES for _ in store.refs(family))
    told = f"{idle} did nothing in what was exported so far" if some else "nothing was exported here yet"
    console.print(f"[dim]{len(rows)} workarounds; {told}[/]")


def _as_json(row: Count) -> dict[str, object]:
    each = row.workaround
    return {
        "name": each.name,
        "kind": each.kind,
        "backend": each.scope,
        "stages": list(row.stages),
        "targets": list(each.targets),
        "file": each.file,
        "line": each.line,
        "upstream": each.fields.get("Upstream", ""),
        "why": each.fields.get("Why", ""),
        "fingerprint": each.fingerprint,
        "models": row.models,
    }


# ── Staleness ─────────────────────────────────────────────────────────────────


def show_stale(*, as_json: bool) -> None:
    """Print what would be made again if everything that was exported were exported now, and what has changed."""
    states = list(survey(_store(), _index()))
    stale = [state for state in states if not state.fresh]
    if as_json:
        summary = {"partitions": len(states), "fresh": len(states) - len(stale), "stale": [_state_as_json(state) for state in stale]}
        json.dump(summary, sys.stdout, indent=1)
        print()
        return
    console = console_on(sys.stdout)
    if stale:
        table = Table(box=None, header_style="dim", pad_edge=False)
        for column in ("model", "backend", "from", "because"):
            table.add_column(column, overflow="fold")
        for state in stale:
            first = state.first_stale
            assert first is not None
            table.add_row(state.name, state.backend, first.stage, "; ".join(first.causes) or "it was never made")
        console.print(table)
        causes = Counter(cause for state in stale for stage in state.stages for cause in stage.causes)
        for cause, number in causes.most_common(10):
            console.print(f"[dim]{number:5} stages: {cause}[/]")
    fresh = f"{len(states) - len(stale)} of {len(states)} partitions are fresh"
    console.print(f"[dim]{fresh if states else 'nothing was exported here yet'}[/]")


def _state_as_json(state: PartitionState) -> dict[str, object]:
    first = state.first_stale
    return {
        "name": state.name,
        "model": state.model,
        "backend": state.backend,
        "from": first.stage if first else None,
        "stages": [asdict(stage) for stage in state.stages],
    }


# ── Where from ────────────────────────────────────────────────────────────────


def _store() -> Store:
    return Store(store_of(home()))


def _index() -> indexed.CodeIndex:
    return indexed.code_index(home() / "cache")
