"""What has changed between two snapshots, and what is too small to count.

The bounds keep noise out: CPU seconds of the same stage on the same machine vary by a fifth from run to run, more when it is busy.
What wasn't made anew can't be slower or bigger: a stage found in the store keeps the costs of the run that made it.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from orchestration.report.snapshot import Key, Partition, Snapshot, StageFacts

Kind = Literal["broken", "fixed", "worse", "better", "slower", "bigger", "drifted", "new", "gone"]

# in the order in which they matter, with what each means; the page and the command line show it
KINDS: dict[Kind, str] = {
    "broken": "was verified, and isn't any more",
    "worse": "wasn't verified, and now gets less far than it did",
    "fixed": "wasn't verified, and now is",
    "better": "gets further than it did, but isn't verified",
    "slower": "a stage takes at least 1.5 times its CPU time and 2 s more (8 s for the first one made, which may import torch)",
    "bigger": "an artifact has at least 1.1 times the bytes, and at least 64 KiB more",
    "drifted": "still gets as far, but differs from eager by more than 4 times as much, and by more than 1e-6 more",
    "new": "had no report before",
    "gone": "has no report any more",
}

SLOWER_RATIO, SLOWER_SECONDS = 1.5, 2.0
# ViT's trace took 0.5 CPU s in a process that had imported everything and 4.8 in one that had not; heavier models import more
SLOWER_SECONDS_FIRST = 8.0
BIGGER_RATIO, BIGGER_BYTES = 1.1, 65_536
DRIFTED_RATIO, DRIFTED_FLOOR = 4.0, 1e-6


@dataclass(frozen=True)
class Change:
    """One partition that differs.

    Attributes:
        stage: at which it fails now, or which is slower or bigger; empty where no stage is concerned.
        message: why, in the error's words; or the two figures.
        before: outcome, or figure (CPU seconds, bytes, absolute difference).
        after: the same, now.
    """

    kind: Kind
    backend: str
    model: str
    stage: str = ""
    message: str = ""
    before: str | float = ""
    after: str | float = ""


def changes(before: Snapshot, after: Snapshot) -> list[Change]:
    """By kind in the order of `KINDS`, then by backend and model."""
    old, new = before.by_key(), after.by_key()
    found = [change for key in sorted(old.keys() | new.keys()) for change in _of_partition(key, old.get(key), new.get(key))]
    order = list(KINDS)
    return sorted(found, key=lambda change: order.index(change.kind))


def counts(found: list[Change]) -> dict[Kind, int]:
    """How many of each kind, zeros included."""
    return {kind: sum(change.kind == kind for change in found) for kind in KINDS}


def _of_partition(key: Key, old: Partition | None, new: Partition | None) -> Iterator[Change]:
    backend, model = key
    if new is None:
        assert old is not None
        yield Change("gone", backend, model, before=old.outcome)
        return
    if old is None:
        yield Change("new", backend, model, new.stage, new.message, after=new.outcome)
        return
    kind = _turn(old, new)
    if kind is not None:
        yield Change(kind, backend, model, new.stage, new.message, old.outcome, new.outcome)
    yield from _costs(old, new)
    if kind in ("broken", "worse"):  # whose difference from eager is what broke it, if anything
        return
    if old.max_abs_diff is not None and new.max_abs_diff is not None and new.max_abs_diff > old.max_abs_diff:
        grown = new.max_abs_diff - old.max_abs_diff
        if new.max_abs_diff > DRIFTED_RATIO * old.max_abs_diff and grown > DRIFTED_FLOOR:
            yield Change("drifted", backend, model, "verification", new.message, old.max_abs_diff, new.max_abs_diff)


def _turn(old: Partition, new: Partition) -> Kind | None:
    if old.good or new.good:
        if old.good and new.good:
            return None
        # exported without a look at its numbers: nothing is known to be broken
        unseen = new.outcome == "exported" and not new.failing
        return "fixed" if new.good else None if unseen else "broken"
    if "skipped" in (old.outcome, new.outcome) or old.rank == new.rank:
        return None
    return "better" if new.rank > old.rank else "worse"


def _costs(old: Partition, new: Partition) -> Iterator[Change]:
    """At most one row of each kind: the stage with the largest growth."""
    known = {stage.stage: stage for stage in old.stages}
    pairs = [(known[stage.stage], stage) for stage in new.stages if stage.stage in known]
    # the first stage of a chain, and one whose input was found in the store
    first = {now.stage for above, now in zip([None, *new.stages], new.stages, strict=False) if above is None or above.cached}
    floors = {now.stage: SLOWER_SECONDS_FIRST if now.stage in first else SLOWER_SECONDS for now in new.stages}
    slower = [(then, now) for then, now in pairs if not _is_noise(then.cpu_seconds, now.cpu_seconds, SLOWER_RATIO, floors[now.stage])]
    bigger = [(then, now) for then, now in pairs if not _is_noise(then.bytes, now.bytes, BIGGER_RATIO, BIGGER_BYTES)]
    for kind, grown, figure in (("slower", slower, _seconds), ("bigger", bigger, _bytes)):
        if grown:
            then, now = max(grown, key=lambda pair: figure(pair[1]) - figure(pair[0]))
            yield Change(kind, new.backend, new.model, now.stage, before=figure(then), after=figure(now))  # type: ignore[arg-type]


def _is_noise(then: float, now: float, ratio: float, floor: float) -> bool:
    """Whether a figure hasn't grown by enough of a ratio and of an amount. Nothing before is nothing known."""
    return then <= 0 or now < ratio * then or now - then < floor


def _seconds(stage: StageFacts) -> float:
    return stage.cpu_seconds


def _bytes(stage: StageFacts) -> float:
    return stage.bytes
