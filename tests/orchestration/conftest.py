"""A home of zooport's own for every test, and a runner over the fake child."""

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
    return PoolRunner(chain="fake_chain:serve", timeout_seconds=30)
