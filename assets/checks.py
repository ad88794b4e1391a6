"""The check on the last asset of each chain: the artifact gives the numbers that eager gives, at other shapes too."""

import warnings
from collections.abc import Mapping

import dagster as dg
from dagster._core.definitions.asset_checks.asset_check_evaluation import (  # not among the public names
    AssetCheckEvaluationTargetMaterializationData,
)

from assets.metadata import outcome_metadata
from exporters.report import Report

PARITY = "parity"


def parity_spec(asset: dg.AssetKey, partitions: dg.PartitionsDefinition) -> dg.AssetCheckSpec:
    with warnings.catch_warnings():
        # partitioned checks are in preview in Dagster 1.13; the pin and tests/assets hold them to what is used here
        warnings.simplefilter("ignore", dg.PreviewWarning)
        return dg.AssetCheckSpec(
            PARITY,
            asset=asset,
            partitions_def=partitions,
            description="Equal to eager within the bounds, on the sample inputs and at another batch size and length.",
        )


def parity_evaluation(asset: dg.AssetKey, partition: str, report: Report, target: dg.EventLogRecord | None) -> dg.AssetCheckEvaluation:
    """Green only for `verified`; `target` is the materialization that was checked, None if the chain never got there."""
    return dg.AssetCheckEvaluation(
        asset_key=asset,
        check_name=PARITY,
        partition=partition,
        passed=report.outcome == "verified",
        severity=dg.AssetCheckSeverity.ERROR,
        description=verdict(report),
        metadata=outcome_metadata(report),
        target_materialization_data=_pointer(target),
    )


def verdict(report: Report) -> str:
    """One line: the outcome, and why it is no better."""
    if report.outcome == "verified":
        return "verified"
    if report.error:
        return f"{report.outcome}: {report.error.stage}: {report.error.message.splitlines()[0]}"
    unequal = [f"{parity.inputs}: {parity.message or 'differs'}" for parity in report.parity if not parity.ok]
    return ": ".join([report.outcome, report.reason or "; ".join(unequal) or "not verified"])


def _pointer(target: dg.EventLogRecord | None) -> AssetCheckEvaluationTargetMaterializationData | None:
    if target is None:
        return None
    return AssetCheckEvaluationTargetMaterializationData(storage_id=target.storage_id, run_id=target.run_id, timestamp=target.timestamp)


def failure(failed: Mapping[str, Report]) -> dg.Failure:
    """What ends a run in which `failed` partitions are not verified: one line each, the first in full."""
    first = next(iter(failed.values()))
    lines = [f"{partition}: {verdict(report)}" for partition, report in failed.items()]
    if first.error and first.error.next:
        lines.append(f"next: {first.error.next}")
    metadata = {
        partition: dg.MetadataValue.text(report.error.message if report.error else verdict(report)) for partition, report in failed.items()
    }
    return dg.Failure(description="\n".join(lines), metadata=metadata, allow_retries=False)
