"""The last report of every (backend, model), as the chains left them in zooport's home."""

from pathlib import Path

from pydantic import ValidationError

from exporters.backends import all_backends
from exporters.report import Report


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
