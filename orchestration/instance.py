"""The local Dagster instance, in zooport's home: what `make ui` shows is what `zooport demo` made.

`python -m orchestration.instance` prepares it and prints its folder, for `DAGSTER_HOME`.
"""

import os
from pathlib import Path
from typing import TYPE_CHECKING

from exporters.errors import StoreError
from exporters.home import ENVIRONMENT_VARIABLE, home

if TYPE_CHECKING:
    import dagster as dg

_SETTINGS = """\
# Written by zooport on first use; yours to change.
telemetry:
  enabled: false
# no invitation to a mailing list on the first visit
nux:
  enabled: false
# An export wants a core and up to a few GB.
concurrency:
  runs:
    max_concurrent_runs: {runs}
"""


def dagster_home() -> Path:
    """The folder of the instance, made with its settings when it is missing.

    Raises:
        StoreError: if it can't be made.
    """
    folder = home() / "dagster"
    settings = folder / "dagster.yaml"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if not settings.exists():
            settings.write_text(_SETTINGS.format(runs=max(1, (os.cpu_count() or 1) // 2)))
    except OSError as error:
        advice = f"set {ENVIRONMENT_VARIABLE} to a folder that can be written"
        raise StoreError(f"can't write into {folder}: {error.strerror}", next=advice) from error
    return folder


def open_instance() -> "dg.DagsterInstance":
    """The instance itself. `DAGSTER_HOME` is set for this process and those it starts."""
    import dagster as dg

    os.environ["DAGSTER_HOME"] = str(dagster_home())
    return dg.DagsterInstance.get()


if __name__ == "__main__":
    print(dagster_home())
