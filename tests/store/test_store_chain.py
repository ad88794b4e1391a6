"""Real chains on a store that is an S3: what one machine made is a hit on every other, and what is damaged is made again."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from upath import UPath

from exporters.report import Report

pytestmark = pytest.mark.e2e


def export(home: Path, url: str) -> Report:
    """One chain in a process of its own, told of the store by its environment."""
    done = subprocess.run(
        [sys.executable, "-m", "exporters.chain"],
        input=json.dumps({"model": "ViTForImageClassification", "backend": "dynamo", "home": str(home)}),
        env={**os.environ, "ZOOPORT_STORE": url, "ZOOPORT_HOME": str(home)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return Report.model_validate(json.loads(done.stdout.splitlines()[-1])["report"])


def cached(report: Report) -> list[bool]:
    assert report.outcome == "verified"
    return [stage.cached for stage in report.stages]


def digests(report: Report) -> list[str]:
    return [stage.digest for stage in report.stages]


def test_a_chain_on_s3(s3: str, tmp_path: Path) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    first = export(here, s3)
    assert cached(first) == [False, False]
    assert all(stage.path.startswith(s3) for stage in first.stages)
    assert not (here / "store").exists()

    again = export(here, s3)
    assert cached(again) == [True, True]
    assert digests(again) == digests(first)

    elsewhere = export(there, s3)
    assert cached(elsewhere) == [True, True]
    assert digests(elsewhere) == digests(first)

    program = UPath(first.stages[0].path) / "program.pt2"
    program.write_bytes(program.read_bytes()[:-100])
    reference = UPath(s3) / "refs/dynamo/decomposed_graph/dynamo/ViTForImageClassification.json"
    reference.write_bytes(reference.read_bytes()[:-100])
    mended = export(tmp_path / "third", s3)
    assert cached(mended) == [False, False]
    assert digests(mended) == digests(first)
    assert cached(export(tmp_path / "fourth", s3)) == [True, True]
