"""A snapshot says what exports were made with, and a report what of it has changed."""

from collections.abc import Callable

import pytest
from report_samples import NOW, failed, verified

from exporters.code_index import CodeIndex, Workaround, code_index
from exporters.store import Store
from orchestration.report import fleet
from orchestration.report.fleet import FleetReport
from orchestration.report.history import History
from orchestration.report.snapshot import take
from orchestration.report.software import Software, Upgrade, Upgrades, present, upgrades

Make = Callable[..., FleetReport]

PACKAGES = {"torch": "2.13.0", "onnx": "1.20.0", "executorch": "absent"}
OLD = Software(packages=PACKAGES, code={"onnx": "a", "sample": "b"}, workarounds={"w:a": "1", "w:b": "2"})
SAME = "nothing: the same packages and the same code of zooport"


def changed(**packages: str) -> Software:
    return OLD.model_copy(update={"packages": {**PACKAGES, **packages}})


def test_it_is_what_is_installed_and_all_of_our_code() -> None:
    found = present(code_index())
    assert {"python", "torch", "transformers", "onnx", "onnxruntime", "executorch"} <= found.packages.keys()
    assert found.packages["torch"][0].isdigit()
    assert set(found.code) == {"dynamo", "onnx", "executorch", "sample", "verification"}
    assert len(found.workarounds) > 10


def test_a_changed_workaround_changes_its_digest_and_no_other() -> None:
    def index(fingerprint: str) -> CodeIndex:
        rows = [Workaround(name, "patch", "onnx", (), digest * 64, "f.py", 1) for name, digest in (("w:a", "0"), ("w:b", fingerprint))]
        return CodeIndex(tuple(rows), {"onnx": "f" * 64})

    assert upgrades(present(index("1")), present(index("2"))) == Upgrades(known=True, changed=("w:b",))


@pytest.mark.parametrize(
    ("after", "words"),
    [
        (OLD, [SAME]),
        (changed(torch="2.13.1"), ["torch 2.13.0 -> 2.13.1"]),
        (changed(executorch="1.1"), ["executorch absent -> 1.1"]),
        (changed(numpy="2.0"), [SAME]),  # of which the older one didn't tell
        (OLD.model_copy(update={"code": {"onnx": "x", "sample": "b"}}), ["zooport's own code changed (onnx)"]),
        (
            OLD.model_copy(update={"workarounds": {"w:a": "9", "w:c": "3", "w:d": "4"}}),
            ["workaround changed: w:a", "workarounds new: w:c, w:d", "workaround gone: w:b"],
        ),
        (None, ["not known: the snapshot compared with doesn't say what it was made with"]),
    ],
)
def test_in_words(after: Software | None, words: list[str]) -> None:
    assert upgrades(OLD, after).words == words


def test_it_is_kept_and_comes_back(store: Store) -> None:
    history = History(store)
    taken = take({("onnx", "BertModel"): verified("BertModel")}, NOW, OLD)
    assert history.load(history.save(taken)) == taken


def test_a_snapshot_without_is_read_and_the_report_says_so(make: Make, store: Store) -> None:
    """Those that were kept before there was any such thing: the file is the same as today's less one field."""
    History(store).save(take({("onnx", "BertModel"): verified("BertModel")}, NOW))
    made = make(1, failed("BertModel"))
    assert made.comparison is not None
    assert made.comparison.counts["broken"] == 1
    assert made.comparison.upgrades == Upgrades(known=False)


def test_an_upgrade_shows_from_the_first_export_after_it_on(make: Make, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fleet, "present", lambda _: OLD)
    make(0, verified("BertModel"))
    make(1, failed("ViTModel"))
    monkeypatch.setattr(fleet, "present", lambda _: changed(torch="2.13.1"))
    idle = make(2)
    assert idle.comparison is not None
    assert idle.comparison.upgrades == Upgrades(known=True)  # nothing has run on it: it broke nothing
    broken = make(3, failed("BertModel"))
    assert broken.comparison is not None
    assert broken.comparison.upgrades.packages == (Upgrade("torch", "2.13.0", "2.13.1"),)
    assert len(History(store).names()) == 3
