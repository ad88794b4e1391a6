"""What the asset `fleet_report` runs on: the report on everything that this machine's store has, and the alert of it."""

import os

from pydantic import Field

from assets.runner import ReportMade, ReportMaker
from exporters.home import home, store_of
from exporters.store import Store
from orchestration.report import alert, fleet
from orchestration.report.summary import groups, some

_MODELS_SHOWN = 8


class StoreReporter(ReportMaker):
    """Keeps a snapshot in the store, writes the page into zooport's home and into the store, and posts a summary where that is wanted."""

    webhook: str = Field(
        default="", description=f"Where a short summary is posted to as JSON; ${alert.WEBHOOK_VARIABLE} by default, else nowhere."
    )
    always: bool = Field(default=False, description="Post also when nothing has changed.")
    webhook_timeout_seconds: float = Field(default=alert.TIMEOUT_SECONDS, gt=0, description="How long one of two tries may take.")

    def make(self) -> ReportMade:
        from orchestration.report.page import render, write_page

        place = home()
        store = Store(store_of(place))
        made = fleet.make(store, place)
        text, page = render(made), place / "reports" / "fleet.html"
        write_page(page, text)
        kept = store.write_file("reports", "fleet.html", content=text.encode())
        where = str(page) if store.copies is None else kept
        url = self.webhook or os.environ.get(alert.WEBHOOK_VARIABLE, "")
        return ReportMade(
            snapshot=made.name,
            page=where,
            headline=made.headline,
            since=made.comparison.at if made.comparison else None,
            changes=[(row.kind, row.where, len(row.models), some(row.models, _MODELS_SHOWN), row.cause) for row in groups(made)],
            alert=alert.announce(made, where, url, always=self.always, timeout_seconds=self.webhook_timeout_seconds),
        )
