"""The report as one HTML file that needs nothing else: styles, script and data are in it."""

import json
import math
from importlib import resources
from pathlib import Path
from typing import Any

import jinja2

from exporters.backends import STAGES, family_of
from exporters.errors import StoreError, UnknownBackend
from exporters.report import OUTCOMES
from exporters.store import write_whole
from orchestration.report.changes import KINDS
from orchestration.report.clusters import Cluster
from orchestration.report.fleet import FleetReport
from orchestration.report.snapshot import STANDINGS, Key, Partition

_PACKAGE = "orchestration.report"
# one script in the page, in this order
_SCRIPTS = ("page_tools.js", "page_changes.js", "page_models.js", "page_rest.js", "page_link.js")


def render(report: FleetReport) -> str:
    """The whole page."""
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    return environment.from_string(_file("page.html.j2")).render(
        style=_file("page.css"),
        script="\n".join(map(_file, _SCRIPTS)),
        data=_embedded(data_of(report)),
        exports=len(report.snapshot.partitions),
    )


def write_page(target: Path, text: str) -> None:
    """Write the page whole; its folder is made.

    Raises:
        StoreError: it can't be written.
    """
    try:
        write_whole(target, text)
    except OSError as error:
        raise StoreError(f"can't write {target}: {error.strerror or error}", next="name a file that can be written") from error


def _file(name: str) -> str:
    return resources.files(_PACKAGE).joinpath(name).read_text(encoding="utf-8")


def _embedded(data: dict[str, Any]) -> str:
    """JSON that may stand in a script element: nothing in it ends the element or begins a comment."""
    text = json.dumps(_plain(data), separators=(",", ":"), allow_nan=False)
    return (
        text.replace("<", "\\u003c")
        .replace(">", "\\u003e")
        .replace("&", "\\u0026")
        .replace("\u2028", "\\u2028")
        .replace("\u2029", "\\u2029")
    )


def _plain(value: Any) -> Any:
    """Infinities, which JSON hasn't, as text."""
    if isinstance(value, float) and not math.isfinite(value):
        return "inf"
    if isinstance(value, dict):
        return {key: _plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return value


# ── Data ──────────────────────────────────────────────────────────────────────


def data_of(report: FleetReport) -> dict[str, Any]:
    """What the script reads: models and partitions by index, every text once."""
    models = sorted(report.model_types)
    index = {model: number for number, model in enumerate(models)}
    partitions = {each.key: number for number, each in enumerate(report.snapshot.partitions)}
    cluster_of = {key: number for number, each in enumerate(report.clusters) for key in each.partitions}
    backends = report.backends
    return {
        "at": report.snapshot.at,
        "name": report.name,
        "backends": backends,
        "stages": {backend: _stages(backend) for backend in backends},
        "outcomes": list(OUTCOMES),
        "kinds": KINDS,
        "headline": report.headline,
        "tallies": {backend: [report.tally(backend)[name] for name in STANDINGS] for backend in backends},
        "models": [[model, *report.model_types[model]] for model in models],
        "partitions": [_row(each, report, index, backends, cluster_of) for each in report.snapshot.partitions],
        "comparisons": [
            {
                "label": each.label,
                "at": each.at,
                "counts": each.counts,
                "tallies": {backend: [of[name] for name in STANDINGS] for backend, of in each.tallies.items()},
                "older": [each.older[cause.id] for cause in report.clusters],
                "upgrades": each.upgrades.words,
                "changes": [
                    [
                        change.kind,
                        change.backend,
                        change.model,
                        change.stage,
                        change.message,
                        change.before,
                        change.after,
                        partitions.get((change.backend, change.model), -1),
                    ]
                    for change in each.changes
                ],
            }
            for each in report.comparisons
        ],
        "clusters": [_cluster(each, index) for each in report.clusters],
        "costs": [
            [
                each.backend,
                each.stage,
                each.models,
                each.cached,
                *(_spread(each, name) for name in ("cpu_seconds", "peak_rss_mb", "bytes")),
                each.most,
            ]
            for each in report.costs
        ],
        "reach": [[each.name, each.kind, each.where, each.upstream, each.models, each.times, list(each.backends)] for each in report.reach],
        "known": [[each.model, each.backend, each.reason, each.outcome, each.passes] for each in report.known],
        "trend": [[each.at, each.verified, each.total] for each in report.trend],
    }


def _stages(backend: str) -> list[str]:
    try:
        return [*STAGES[family_of(backend)]]
    except UnknownBackend:  # a report from a time when there was one of this name
        return []


def _row(each: Partition, report: FleetReport, index: dict[str, int], backends: list[str], cluster_of: dict[Key, int]) -> list[Any]:
    """What the script calls a partition: see the constants in `page_tools.js`."""
    stages = [[stage.stage, int(stage.cached), stage.cpu_seconds, stage.peak_rss_mb, stage.bytes] for stage in each.stages]
    since = report.failing_since.get(each.key)
    return [
        index[each.model],
        backends.index(each.backend),
        OUTCOMES.index(each.outcome),
        STANDINGS.index(each.standing),
        each.stage,
        each.kind,
        each.message,
        each.max_abs_diff,
        each.at,
        cluster_of.get(each.key, -1),
        since,
        stages,
        each.shapes,
    ]


def _cluster(each: Cluster, index: dict[str, int]) -> list[Any]:
    return [
        each.stage,
        each.kind,
        each.cause,
        "" if each.example == each.cause else each.example,
        each.id,
        list(each.backends),
        [index[model] for model in each.models],
        each.alone,
        len(each.partitions),
    ]


def _spread(cost: Any, name: str) -> list[float]:
    spread = getattr(cost, name)
    return [spread.total, spread.median, spread.p90, spread.largest]
