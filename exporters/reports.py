"""The last report of every (backend, model), in the artifact store: machines that share a store share what they know.

A chain leaves its own; who buries a chain that could leave none leaves it for it.
"""

import hashlib
import re

from pydantic import ValidationError

from exporters.report import Report
from exporters.store import Store

# the part of `refs/` that is theirs
REPORTS = "reports"

# model names that can be a file's as they are: classes with their variants, and names of `zoo.toml`
_PLAIN = re.compile(r"\w[\w.@+-]{0,150}", re.ASCII)


def remember(store: Store, report: Report) -> None:
    """Make this the last report of its model and backend.

    Raises:
        StoreError: the store can't be written.
    """
    store.write_ref(REPORTS, report.backend, _file_name(report.model), content=report.model_dump(mode="json"))


def last_reports(store: Store) -> dict[tuple[str, str], Report]:
    """By (backend, model), as it was asked for. What can't be read as a report counts as none: the next export writes it anew.

    Raises:
        StoreError: the store can't be read.
    """
    found: dict[tuple[str, str], Report] = {}
    for _, content in store.refs(REPORTS):
        try:
            report = Report.model_validate(content)
        except ValidationError:  # damaged, or another version's
            continue
        found[report.backend, report.model] = report
    return found


def _file_name(model: str) -> str:
    """A model's name where it can be a file's; of a folder or a hub id its end, and a digest of all of it."""
    if _PLAIN.fullmatch(model):
        return model
    end = re.sub(r"[^\w.-]", "_", model.rstrip("/").rpartition("/")[2], flags=re.ASCII).lstrip(".")[:80]
    return f"{end}-{hashlib.sha256(model.encode()).hexdigest()[:12]}"
