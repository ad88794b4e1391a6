"""Metadata of a materialization: what a stage cost, what workarounds did, and for a cached one whose it is."""

import dagster as dg

from assets.metadata import stage_metadata
from exporters.report import Deeds, StageReport


def test_the_ledger_is_part_of_a_materialization() -> None:
    deeds = Deeds(called={"onnx:_patch_x": 3}, changed={"onnx:_fix_y": 2})
    metadata = stage_metadata(StageReport(stage="lowered_onnx", deeds=deeds, fired=deeds.fired))
    assert metadata["workarounds_called"] == dg.MetadataValue.json({"onnx:_patch_x": 3})
    assert metadata["workarounds_changed"] == dg.MetadataValue.json({"onnx:_fix_y": 2})
    assert "workarounds_used" not in metadata
    assert metadata["workarounds_fired"] == dg.MetadataValue.int(2)


def test_a_cached_stage_points_to_the_run_that_made_it() -> None:
    report = StageReport(stage="pte", cached=True, details={"made": {"seconds": 4.0, "at": 1.5e9, "by": "1234"}})
    metadata = stage_metadata(report)
    assert metadata["cached"] == dg.MetadataValue.bool(True)
    assert metadata["made_by"] == dg.MetadataValue.dagster_run("1234")
    assert metadata["made_at"] == dg.MetadataValue.timestamp(1.5e9)


def test_what_the_command_line_made_has_no_run_to_point_to() -> None:
    assert "made_by" not in stage_metadata(StageReport(stage="pte", cached=True, details={"made": {"at": 1.5e9, "by": ""}}))
