"""How far each workaround reaches, and which known issues have lost their reason."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from exporters import known_issues
from exporters.code_index import CodeIndex
from exporters.report import Report
from orchestration.report.snapshot import Key, Partition


@dataclass(frozen=True)
class Reach:
    """A workaround and where it did anything in the last exports.

    Attributes:
        kind: `patch`, `fx_node_fix`, `fx_program_fix`, `translation` or `ir_fix`; empty for one that isn't registered any more.
        times: how often it was called, changed a node or was used, over all of them.
    """

    name: str
    kind: str
    where: str
    upstream: str
    models: int
    times: int
    backends: tuple[str, ...]


def reach(reports: Iterable[Report], index: CodeIndex) -> list[Reach]:
    """Every workaround of the index, then those that did something and have gone since; the ones that reach most models first."""
    models: dict[str, set[str]] = defaultdict(set)
    backends: dict[str, set[str]] = defaultdict(set)
    times: dict[str, int] = defaultdict(int)
    for report in reports:
        for stage in report.stages:
            for _, counts in stage.deeds:
                for name, number in counts.items():
                    models[name].add(report.model)
                    backends[name].add(report.backend)
                    times[name] += number
    registered = {each.name: each for each in index.workarounds}
    rows = []
    for name in registered.keys() | models.keys():
        each = registered.get(name)
        kind, where, upstream = (each.kind, f"{each.file}:{each.line}", each.fields.get("Upstream", "")) if each else ("", "", "")
        rows.append(Reach(name, kind, where, upstream, len(models[name]), times[name], tuple(sorted(backends[name]))))
    return sorted(rows, key=lambda row: (not row.kind, -row.models, -row.times, row.name))


@dataclass(frozen=True)
class KnownIssueRow:
    """An entry of `exporters.known_issues` for one backend on which its model was tried.

    Attributes:
        passes: whether the last export went all the way in spite of it: then the entry can go.
    """

    model: str
    backend: str
    reason: str
    outcome: str
    passes: bool


def known(partitions: Mapping[Key, Partition]) -> list[KnownIssueRow]:
    """Every entry that covers an export, those that pass now first."""
    rows = []
    for (backend, model), partition in partitions.items():
        reason = known_issues.skip_reason(model, backend, dynamic=partition.shapes == "dynamic")
        if reason:
            rows.append(KnownIssueRow(model, backend, reason, partition.outcome, partition.good))
    return sorted(rows, key=lambda row: (not row.passes, row.model, row.backend))
