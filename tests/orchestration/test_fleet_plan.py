"""What a fleet was asked to make is known until it is made."""

import os
from pathlib import Path

import pytest

from exporters.errors import StoreError
from orchestration import fleet_plan

PARTITIONS = [("onnx", "A"), ("onnx", "B"), ("dynamo", "A")]


def test_a_plan_is_read_back(tmp_path: Path) -> None:
    assert fleet_plan.last(tmp_path) is None
    plan = fleet_plan.begin(tmp_path, PARTITIONS)
    assert fleet_plan.last(tmp_path) == plan
    assert plan.partitions == tuple(PARTITIONS)


def test_what_is_not_done_is_left(tmp_path: Path) -> None:
    plan = fleet_plan.begin(tmp_path, PARTITIONS)
    assert plan.left() == PARTITIONS
    plan.done(("onnx", "A"))
    assert plan.left() == [("onnx", "B"), ("dynamo", "A")]
    again = fleet_plan.last(tmp_path)
    assert again is not None
    assert again.left() == plan.left()


def test_a_line_that_was_cut_short_counts_as_not_done(tmp_path: Path) -> None:
    plan = fleet_plan.begin(tmp_path, PARTITIONS)
    plan.file.with_suffix(".done").write_text("onnx|A\nonnx|")
    assert plan.left() == [("onnx", "B"), ("dynamo", "A")]


def test_a_plan_that_cannot_be_read_leaves_the_one_before_it(tmp_path: Path) -> None:
    plan = fleet_plan.begin(tmp_path, PARTITIONS)
    (tmp_path / "fleets" / "99991231-000000-ffffff.json").write_text("{")
    assert fleet_plan.last(tmp_path) == plan


def test_old_plans_are_dropped(tmp_path: Path) -> None:
    for _ in range(25):
        fleet_plan.begin(tmp_path, PARTITIONS).done(PARTITIONS[0])
    assert len(os.listdir(tmp_path / "fleets")) == 40


def test_a_home_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    (tmp_path / "fleets").write_text("in the way")
    with pytest.raises(StoreError, match="can't write into"):
        fleet_plan.begin(tmp_path, PARTITIONS)
