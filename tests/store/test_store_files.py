"""Files beside the artifacts, and the snapshots that are kept in them: on a local folder and on S3 they are the same."""

from store_place import Place
from test_store_upkeep import gc

from exporters.report import Report
from orchestration.report.history import History
from orchestration.report.snapshot import take


def test_a_file_comes_back_on_another_machine(place: Place) -> None:
    assert place.store().read_file("folder", "a.bin") is None
    assert place.store().files("folder") == []
    where = place.store().write_file("folder", "b.bin", content=b"\0\xff")
    place.store().write_file("folder", "a.bin", content=b"")
    assert where.endswith("folder/b.bin")
    assert place.elsewhere().files("folder") == ["a.bin", "b.bin"]
    assert place.elsewhere().read_file("folder", "b.bin") == b"\0\xff"
    assert place.elsewhere().read_file("folder", "a.bin") == b""
    place.store().write_file("folder", "a.bin", content=b"anew")
    assert place.elsewhere().read_file("folder", "a.bin") == b"anew"


def test_folders_below_are_no_files(place: Place) -> None:
    place.store().write_file("folder", "below", "c.bin", content=b"c")
    assert place.store().files("folder") == []


def test_snapshots_are_seen_by_every_machine_and_upkeep_leaves_them_alone(place: Place) -> None:
    reports = {("onnx", name): Report(model=name, backend="onnx", outcome="verified") for name in ("BertModel", "org/checkpoint")}
    snapshot = take(reports, 1_800_000_000.0)
    assert History(place.elsewhere()).names() == []
    name = History(place.store()).save(snapshot)
    assert gc(place).artifacts == []
    assert place.damage(repair=True) == []
    assert History(place.elsewhere()).names() == [name]
    assert History(place.elsewhere()).load(name) == snapshot
