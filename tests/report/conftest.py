"""A store of its own for every test, and reports to put into it."""

from collections.abc import Callable
from pathlib import Path

import pytest
from report_samples import DAY, NOW

from exporters.report import Report
from exporters.reports import remember
from exporters.store import Store
from orchestration.report import fleet
from orchestration.report.fleet import FleetReport


@pytest.fixture(autouse=True)
def zooport_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ZOOPORT_HOME", str(tmp_path / "home"))
    for name in ("ZOOPORT_STORE", "ZOOPORT_WEBHOOK"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path / "home"


@pytest.fixture
def store(zooport_home: Path) -> Store:
    return Store(zooport_home / "store")


@pytest.fixture
def make(store: Store, zooport_home: Path) -> Callable[..., FleetReport]:
    """The report, days after `NOW`, once these were remembered."""

    def at(days: float, *reports: Report, since: float | None = None) -> FleetReport:
        for report in reports:
            remember(store, report.model_copy(update={"at": NOW + days * DAY}))
        label = "" if since is None else "asked for"
        return fleet.make(store, zooport_home, now=NOW + days * DAY, since=since, since_label=label)

    return at
