"""Snapshots are kept as they were, and found again by time. That they are on S3 too, tests/store/test_store_files.py shows."""

import gzip
import math

import pytest
from report_samples import DAY, NOW, failed, ran, skipped, verified
from synthetic import weeks

from exporters.errors import UsageError
from exporters.home import home
from exporters.store import Store
from exporters.store_upkeep import collect, examine
from orchestration.report.history import History, moment_of, parse_since, spread, state_at
from orchestration.report.snapshot import Snapshot, take

REPORTS = [
    verified("BertModel"),
    verified("BertModel", "dynamo"),
    failed("ViTModel"),
    ran("T5Model").model_copy(update={"parity": []}),
    skipped("org/checkpoint"),
]


def snapshot(at: float = NOW) -> Snapshot:
    taken = take({(report.backend, report.model): report for report in REPORTS}, at)
    taken.partitions[0].max_abs_diff = math.inf
    return taken


def test_what_is_kept_comes_back_whole(store: Store) -> None:
    history = History(store)
    name = history.save(snapshot())
    assert history.names() == [name]
    assert history.load(name) == snapshot()
    assert moment_of(name) == NOW


def test_standings_say_the_same_as_the_whole(store: Store) -> None:
    history = History(store)
    standings = history.standings(history.save(snapshot()))
    assert standings is not None
    assert standings.at == NOW
    assert {key: (each.outcome, each.good, each.failing) for key, each in standings.of.items()} == {
        each.key: (each.outcome, each.good, each.failing) for each in snapshot().partitions
    }


def test_two_at_one_moment_do_not_write_over_each_other(store: Store) -> None:
    history = History(store)
    other = snapshot()
    other.partitions[0].outcome = "failed"
    assert len({history.save(snapshot()), history.save(other), history.save(snapshot())}) == 2
    assert len(history.names()) == 2


@pytest.mark.parametrize("content", [b"", b"no gzip", gzip.compress(b"no JSON"), gzip.compress(b"{}"), gzip.compress(b'{"format": 99}')])
def test_what_is_damaged_or_of_another_version_is_passed_over(store: Store, content: bytes) -> None:
    history = History(store)
    name = history.save(snapshot())
    store.write_file("history", name, content=content)
    assert history.load(name) is None
    assert history.standings(name) is None


def test_one_cut_short_is_passed_over(store: Store) -> None:
    history = History(store)
    name = history.save(snapshot())
    whole = store.read_file("history", name)
    assert whole is not None
    store.write_file("history", name, content=whole[: len(whole) // 2])
    assert history.load(name) is None


def test_upkeep_leaves_the_history_alone(store: Store) -> None:
    name = History(store).save(snapshot())
    quiet = lambda what, done, total: None  # noqa: E731
    assert collect(store, home=home(), keep_seconds=0, dry_run=False, on_progress=quiet).leftovers == []
    assert examine(store, home=home(), repair=True, on_progress=quiet).findings == []
    assert History(store).load(name) == snapshot()


def test_a_file_of_another_name_is_no_snapshot(store: Store) -> None:
    store.write_file("history", "README", content=b"?")
    assert History(store).names() == []


def test_six_thousand_partitions_stay_small(store: Store) -> None:
    *_, (at, reports) = weeks(NOW, count=1)
    taken = take({(report.backend, report.model): report for report in reports}, at)
    content = store.read_file("history", History(store).save(taken))
    assert content is not None
    assert len(taken.partitions) > 5_000
    assert len(content) < 400_000


# ── By time ───────────────────────────────────────────────────────────────────


def test_how_things_stood_is_what_the_last_one_until_then_says(store: Store) -> None:
    history = History(store)
    names = [history.save(snapshot(NOW + days * DAY)) for days in (0, 7, 14)]
    assert history.names() == names
    assert state_at(names, NOW + 7 * DAY) == names[1]
    assert state_at(names, NOW + 13.9 * DAY) == names[1]
    assert state_at(names, NOW + 99 * DAY) == names[2]
    assert state_at(names, NOW - DAY) == names[0]
    assert state_at([], NOW) is None


def test_a_spread_has_both_ends() -> None:
    names = [f"{number:03}" for number in range(500)]
    few = spread(names, 52)
    assert (len(few), few[0], few[-1]) == (52, "000", "499")
    assert few == sorted(set(few))
    assert spread(names[:5], 52) == names[:5]


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("7d", NOW - 7 * DAY),
        ("1 day", NOW - DAY),
        ("2 weeks", NOW - 14 * DAY),
        ("2W", NOW - 14 * DAY),
        ("2027-01-01", 1798761600.0),
        ("2027-01-01T12:00:00+01:00", 1798801200.0),
    ],
)
def test_since(text: str, seconds: float) -> None:
    assert parse_since(text, NOW) == seconds


@pytest.mark.parametrize("text", ["", "yesterday", "7", "-7d", "2027-13-01", "2099-01-01", "99999999999d"])
def test_since_what_is_no_moment(text: str) -> None:
    with pytest.raises(UsageError):
        parse_since(text, NOW)
