"""What a materialization says of itself: reports of `exporters` as Dagster metadata."""

from collections.abc import Mapping, Sequence

import dagster as dg

from exporters.report import Parity, Report, StageReport

Metadata = dict[str, dg.MetadataValue]


def stage_metadata(stage: StageReport) -> Metadata:
    """Cost, size, content and workarounds of one stage."""
    metadata: Metadata = {
        "cached": dg.MetadataValue.bool(stage.cached),
        "seconds": dg.MetadataValue.float(stage.seconds),
        "cpu_seconds": dg.MetadataValue.float(stage.cpu_seconds),
        "peak_rss_mb": dg.MetadataValue.float(stage.peak_rss_mb),
        "bytes": dg.MetadataValue.int(stage.bytes),
        "digest": dg.MetadataValue.text(stage.digest),
        "nodes": dg.MetadataValue.int(stage.nodes),
        "operators": dg.MetadataValue.md(histogram_table(stage.operators)),
        "workarounds_fired": dg.MetadataValue.int(len(stage.fired)),
        "workarounds": dg.MetadataValue.md(bullets(stage.fired)),
        "path": dg.MetadataValue.path(stage.path),
    }
    made = stage.details.get("made", {})
    if stage.cached and made.get("by"):
        metadata["made_by"] = dg.MetadataValue.dagster_run(made["by"])
    if stage.cached and made.get("at"):
        metadata["made_at"] = dg.MetadataValue.timestamp(made["at"])
    for verb, counts in stage.deeds:
        if counts:
            metadata[f"workarounds_{verb}"] = dg.MetadataValue.json(counts)
    if stage.details:
        metadata["details"] = dg.MetadataValue.json(stage.details)
    return metadata


def outcome_metadata(report: Report) -> Metadata:
    """What the whole export is worth: for the last asset of a chain and for its check."""
    metadata: Metadata = {
        "outcome": dg.MetadataValue.text(report.outcome),
        "parity": dg.MetadataValue.md(parity_table(report.parity)),
    }
    if report.revision:
        metadata["revision"] = dg.MetadataValue.text(report.revision)
    if report.artifact:
        metadata["artifact"] = dg.MetadataValue.path(report.artifact)
    if report.load_seconds is not None:
        metadata["load_seconds"] = dg.MetadataValue.float(report.load_seconds)
    differences = [parity.max_abs_diff for parity in report.parity if parity.max_abs_diff is not None]
    if differences:
        metadata["max_abs_diff"] = dg.MetadataValue.float(max(differences))
    if report.reason:
        metadata["reason"] = dg.MetadataValue.text(report.reason)
    if report.error:
        metadata["error"] = dg.MetadataValue.md(f"**{report.error.stage}**: {report.error.type}\n\n```\n{report.error.message}\n```")
        metadata["active_workarounds"] = dg.MetadataValue.md(bullets(report.error.active_workarounds))
        metadata["next"] = dg.MetadataValue.text(report.error.next)
    return metadata


def histogram_table(operators: Mapping[str, int]) -> str:
    """A markdown table of operator counts, the most frequent first."""
    if not operators:
        return "none counted"
    ranked = sorted(operators.items(), key=lambda item: (-item[1], item[0]))
    return table(("operator", "count"), [(f"`{name}`", str(count)) for name, count in ranked])


def parity_table(parities: Sequence[Parity]) -> str:
    """A markdown table with a row for each input set that was compared with eager."""
    if not parities:
        return "nothing was compared"
    rows = [(p.inputs, "yes" if p.ok else "**no**", difference(p.max_abs_diff), p.message) for p in parities]
    return table(("inputs", "equal", "max abs diff", ""), rows)


def difference(value: float | None) -> str:
    return "-" if value is None else f"{value:.1e}"


def bullets(names: Sequence[str]) -> str:
    return "\n".join(f"- `{name}`" for name in names) or "none"


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A markdown table; cells keep to one line and can't end their column early."""
    lines = [list(header), ["---"] * len(header), *([cell.replace("\n", " ").replace("|", "\\|") for cell in row] for row in rows)]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)
