"""What is out of date, asked for again: every night, and as soon as packages or the code of workarounds have changed.

`python -m orchestration.stale_fleet [KNOWN]` prints what is stale as JSON, or that the environment is still KNOWN. The daemon's process for
definitions lives long and has read versions and sources once, so a new process looks.
"""

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import dagster as dg
from dagster._core.definitions.unresolved_asset_job_definition import UnresolvedAssetJobDefinition  # what define_asset_job returns

from assets.partitions import Partition, chunks, run_tags
from exporters.backends import STAGES, all_backends
from exporters.code_index import code_index
from exporters.home import home, store_of
from exporters.keys import environment
from exporters.reports import last_reports
from exporters.staleness import survey
from exporters.store import Store
from orchestration import selection

NIGHTLY_VARIABLE = "ZOOPORT_NIGHTLY_CRON"
NIGHTLY = "0 1 * * *"

_SENSOR_SECONDS = 600
_PATIENCE_SECONDS = 300

Jobs = Mapping[str, UnresolvedAssetJobDefinition]  # by family


@dataclass(frozen=True)
class Stale:
    """What would come out differently now.

    Attributes:
        environment: a digest of packages and code; None of the rest is looked at while it is the same.
        partitions: by backend and name.
    """

    environment: str
    partitions: tuple[Partition, ...]


def find(known: str = "") -> Stale:
    """What is stale in this machine's store; nothing, without looking, while the environment is `known`."""
    place = home()
    index = code_index(place / "cache")
    environments = {backend: environment(backend, index) for backend in all_backends()}
    digest = hashlib.sha256(json.dumps(environments, sort_keys=True).encode()).hexdigest()[:16]
    if digest == known:
        return Stale(digest, ())
    store = Store(store_of(place))
    reports = last_reports(store)
    states = list(survey(store, index))
    candidates = dict.fromkeys([*((state.backend, state.model) for state in states), *reports])
    return Stale(digest, tuple(selection.stale(sorted(candidates), states, reports, environments)))


def find_afresh(known: str = "") -> Stale:
    """The same, found by a new process.

    Raises:
        RuntimeError: it failed; with the last that it said.
    """
    command = [sys.executable, "-m", "orchestration.stale_fleet", known]
    done = subprocess.run(command, capture_output=True, text=True, timeout=_PATIENCE_SECONDS, check=False)
    if done.returncode:
        raise RuntimeError(f"looking for what is stale failed: {done.stderr.strip()[-1000:]}")
    content = json.loads(done.stdout)
    return Stale(content["environment"], tuple((backend, model) for backend, model in content["partitions"]))


def requests(stale: Stale, families: Sequence[str], job_of: Callable[[str], str | None], key: str) -> Iterator[dg.RunRequest]:
    """Runs over what is stale, a few partitions each.

    Args:
        job_of: name of a family's job, where a request has to name it.
        key: what is asked for once: two requests with the same key and the same partitions are one.
    """
    for family, chunk in chunks(stale.partitions):
        if family in families:
            digest = hashlib.sha256(json.dumps(chunk).encode()).hexdigest()[:12]
            tags = {**run_tags(chunk), "zooport/reason": "stale"}
            yield dg.RunRequest(run_key=f"{key} {family} {digest}", job_name=job_of(family), tags=tags)


# ── Schedules and the sensor ──────────────────────────────────────────────────


def nightly(jobs: Jobs, look: Callable[[], Stale] = find_afresh) -> list[dg.ScheduleDefinition]:
    """A schedule a family, off until it is switched on; `$ZOOPORT_NIGHTLY_CRON` says when, in UTC."""
    return [_nightly(family, job, look) for family, job in jobs.items()]


def _nightly(family: str, job: UnresolvedAssetJobDefinition, look: Callable[[], Stale]) -> dg.ScheduleDefinition:
    @dg.schedule(
        name=f"nightly_stale_{family}",
        job=job,
        cron_schedule=os.environ.get(NIGHTLY_VARIABLE) or NIGHTLY,
        description=f"What of {family} is out of date. ${NIGHTLY_VARIABLE} sets when (UTC).",
        default_status=dg.DefaultScheduleStatus.STOPPED,
    )
    def schedule(context: dg.ScheduleEvaluationContext) -> Iterator[dg.RunRequest | dg.SkipReason]:
        when = context.scheduled_execution_time.isoformat()
        found = list(requests(look(), [family], lambda _: None, when))
        yield from found or [dg.SkipReason("nothing is stale")]

    return schedule


def changed_environment(jobs: Jobs, look: Callable[[str], Stale] = find_afresh) -> dg.SensorDefinition:
    """Asks for exactly what a changed package or workaround touches, once for each change. Off until it is switched on."""

    @dg.sensor(
        name="changed_environment",
        jobs=list(jobs.values()),
        minimum_interval_seconds=_SENSOR_SECONDS,
        description="Packages or the code of workarounds have changed: exports again what that touches.",
        default_status=dg.DefaultSensorStatus.STOPPED,
    )
    def sensor(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        found = look(context.cursor or "")
        if found.environment == context.cursor:
            return dg.SensorResult(skip_reason="nothing has changed", cursor=found.environment)
        runs = list(requests(found, list(STAGES), lambda family: jobs[family].name, found.environment))
        reason = None if runs else dg.SkipReason("packages or code have changed, and nothing that was exported is touched")
        return dg.SensorResult(run_requests=runs, skip_reason=reason, cursor=found.environment)

    return sensor


if __name__ == "__main__":
    told = find(*sys.argv[1:])
    json.dump({"environment": told.environment, "partitions": told.partitions}, sys.stdout)
