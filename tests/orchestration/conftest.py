"""A home of zooport's own for every test, and a runner over the fake child."""

import sys
from pathlib import Path

import pytest

from orchestration.resources import PoolRunner


@pytest.fixture(autouse=True)
def zooport_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    home = tmp_path / "home"
    monkeypatch.setenv("ZOOPORT_HOME", str(home))
    monkeypatch.delenv("DAGSTER_HOME", raising=False)
    return home


@pytest.fixture
def fake_runner() -> PoolRunner:
    return PoolRunner(command=[sys.executable, str(Path(__file__).with_name("fake_chain.py"))], timeout_seconds=30)
