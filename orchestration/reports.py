"""The last report of every (backend, model), in zooport's home: chains leave theirs, and who buries a chain leaves it for it."""

from pathlib import Path

from pydantic import ValidationError

from exporters.backends import all_backends
from exporters.report import Report
from exporters.store import write_whole


def last_reports(home: Path) -> dict[tuple[str, str], Report]:
    """By (backend, model). A file that can't be read as a report counts as none: the next export writes it anew."""
    found: dict[tuple[str, str], Report] = {}
    for backend in all_backends():
        for file in sorted((home / "reports" / backend).glob("*.json")):
            try:
                report = Report.model_validate_json(file.read_bytes())
            except (ValidationError, OSError):
                continue
            found[backend, report.model] = report
    return found


def remember(home: Path, report: Report) -> None:
    """Make this the last report of its model and backend."""
    write_whole(home / "reports" / report.backend / f"{report.model}.json", report.model_dump_json(indent=1))
