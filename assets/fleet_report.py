"""The report on the whole fleet: one asset below all chains, without partitions. It reads what they left, whichever of them ran."""

from collections.abc import Sequence

import dagster as dg

from assets.runner import ReportMade, ReportMaker
from exporters.backends import STAGES

GROUP = "fleet"
NAME = "fleet_report"

_DESCRIPTION = """What is verified, what broke or was repaired since the last report, which cause holds back how many models, what it costs.

The page is one HTML file; `zooport report --html FILE` writes the same."""
_ROWS_SHOWN = 40


def build_fleet_report() -> dg.AssetsDefinition:
    """The asset, below the last stage of each chain: of whatever partitions have been made, so that none has to be for it."""
    last_stages = [dg.AssetKey([family, stages[-1]]) for family, stages in STAGES.items()]

    @dg.asset(
        name=NAME,
        group_name=GROUP,
        deps=[dg.AssetDep(key, partition_mapping=dg.AllPartitionMapping()) for key in last_stages],
        description=_DESCRIPTION,
        kinds={"html"},
    )
    def fleet_report(context: dg.AssetExecutionContext, reporter: ReportMaker) -> dg.MaterializeResult:
        made = reporter.make()
        log = context.log.warning if made.alert.startswith("failed") else context.log.info
        log(f"alert: {made.alert}")
        return dg.MaterializeResult(metadata=metadata(made), data_version=dg.DataVersion(made.snapshot))

    return fleet_report


def metadata(made: ReportMade) -> dict[str, dg.MetadataValue]:
    """Headline numbers, the changes as a table, where the page lies and what became of the alert."""
    since = {} if made.since is None else {"since": dg.MetadataValue.timestamp(made.since)}
    return {
        "page": dg.MetadataValue.path(made.page),
        "snapshot": dg.MetadataValue.text(made.snapshot),
        **since,
        "changes": dg.MetadataValue.md(changes_table(made.changes)),
        "alert": dg.MetadataValue.text(made.alert),
        **{name: dg.MetadataValue.int(number) for name, number in made.headline.items()},
    }


def changes_table(rows: Sequence[tuple[str, str, int, str, str]]) -> str:
    """Markdown: a row a kind, place and cause."""
    if not rows:
        return "nothing changed"
    lines = ["| change | where | exports | models | cause |", "| --- | --- | --- | --- | --- |"]
    lines += ["| " + " | ".join(str(value).replace("|", "\\|").replace("\n", " ") for value in row) + " |" for row in rows[:_ROWS_SHOWN]]
    if len(rows) > _ROWS_SHOWN:
        lines += ["", f"and {len(rows) - _ROWS_SHOWN} more rows on the page"]
    return "\n".join(lines)
