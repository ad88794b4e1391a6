"""The chain: stages in several processes give the bytes of one, nothing half-made is taken for whole, bad input is one line."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from exporters.backends import STAGES
from exporters.chain import Request, run
from exporters.errors import CheckpointError, StoreError, UnknownBackend, UnknownModel, UsageError
from exporters.report import Report, StageReport

SMALL = "ViTForImageClassification"


def export(home: Path, model: str = SMALL, **options: Any) -> Report:
    return run(Request(model=model, home=str(home), **options))


def digests(report: Report) -> dict[str, str]:
    return {stage.stage: stage.digest for stage in report.stages}


def in_another_process(home: Path, **request: Any) -> Report:
    done = subprocess.run(
        [sys.executable, "-m", "exporters.chain"],
        input=json.dumps({"home": str(home), **request}),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    last = json.loads(done.stdout.splitlines()[-1])
    return Report.model_validate(last["report"])


# ── One process or several ────────────────────────────────────────────────────


@pytest.mark.parametrize("model", ["BertForSequenceClassification", "LlamaForCausalLM@decode", "T5ForConditionalGeneration"])
def test_stages_made_by_four_processes_have_the_bytes_of_one(tmp_path: Path, model: str) -> None:
    apart, together = tmp_path / "apart", tmp_path / "together"
    for last in STAGES["onnx"]:
        report = in_another_process(apart, model=model, until=last, verify=False)
        # each process makes one stage, and reads those before it
        assert [stage.cached for stage in report.stages] == [True] * (len(report.stages) - 1) + [False]
    whole = in_another_process(together, model=model, verify=False)
    assert [stage.cached for stage in whole.stages] == [False] * 4
    assert digests(whole) == digests(report)


# ── The cache ─────────────────────────────────────────────────────────────────


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Report]:
    home = tmp_path_factory.mktemp("home")
    return home, export(home)


def test_a_zoo_model_is_verified(made: tuple[Path, Report]) -> None:
    _, report = made
    assert report.outcome == "verified"
    assert [row.inputs for row in report.parity] == ["sample", "other", "batch_1"]
    assert all(row.ok and row.max_abs_diff is not None and row.max_abs_diff < 1e-4 for row in report.parity)
    assert all(stage.bytes > 0 and stage.nodes > 0 and stage.peak_rss_mb > 0 for stage in report.stages)
    assert report.artifact is not None
    assert Path(report.artifact).is_file()


def test_no_stage_before_the_last_holds_weights(made: tuple[Path, Report]) -> None:
    home, report = made
    weights = sum(path.stat().st_size for path in (home / "weights").glob("*.safetensors"))
    assert weights > 0
    for stage in report.stages:
        assert not list(Path(stage.path).glob("*.safetensors"))
        assert stage.bytes < weights * 3


def test_the_second_time_everything_is_cached_and_torch_is_not_imported(made: tuple[Path, Report]) -> None:
    home, report = made
    code = (
        "import sys, json\nfrom exporters.chain import Request, run\n"
        f"report = run(Request(model={SMALL!r}, home={str(home)!r}))\n"
        "assert 'torch' not in sys.modules\nprint(report.model_dump_json())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    again = Report.model_validate_json(done.stdout)
    assert all(stage.cached and stage.cpu_seconds < 0.2 for stage in again.stages)
    assert digests(again) == digests(report)
    assert again.outcome == "verified"


def test_artifacts_may_lie_on_any_file_system_that_fsspec_knows(made: tuple[Path, Report], tmp_path: Path) -> None:
    _, local = made
    first = export(tmp_path, store=f"memory://{tmp_path.name}")
    again = export(tmp_path, store=f"memory://{tmp_path.name}")
    assert digests(first) == digests(local)
    assert [stage.cached for stage in first.stages] == [False] * 4
    assert [stage.cached for stage in again.stages] == [True] * 4
    assert again.outcome == "verified"
    assert not (tmp_path / "store").exists()


def test_another_bound_is_another_trace(made: tuple[Path, Report]) -> None:
    home, report = made
    other = export(home, max_sizes={"batch": 32}, until="traced_program")
    assert not other.stages[0].cached
    assert digests(other)["traced_program"] != digests(report)["traced_program"]
    export(home)  # put the references back for the tests after this one


def test_another_opset_leaves_the_trace(made: tuple[Path, Report]) -> None:
    home, _ = made
    other = export(home, opset=20)
    assert [stage.cached for stage in other.stages] == [True, False, False, False]
    assert other.outcome == "verified"
    export(home)


@pytest.mark.parametrize("stage", STAGES["onnx"])
def test_a_corrupted_artifact_is_noticed_and_made_again(made: tuple[Path, Report], stage: str) -> None:
    home, report = made
    folder = Path(next(each.path for each in report.stages if each.stage == stage))
    victim = max((path for path in folder.iterdir() if path.name != "manifest.json"), key=lambda path: path.stat().st_size)
    content = victim.read_bytes()
    victim.write_bytes(content[: len(content) // 2] + b"\x00" + content[len(content) // 2 + 1 :])
    again = export(home)
    assert [each.stage for each in again.stages if not each.cached] == [stage]
    assert digests(again) == digests(report)
    assert again.outcome == "verified"


# ── Interruption ──────────────────────────────────────────────────────────────


@pytest.mark.parametrize("stage", STAGES["onnx"])
def test_a_kill_in_any_stage_leaves_nothing_that_counts(tmp_path: Path, stage: str) -> None:
    request = json.dumps({"model": SMALL, "home": str(tmp_path), "verify": False})
    child = subprocess.Popen(
        [sys.executable, "-m", "exporters.chain"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    assert child.stdin is not None
    assert child.stdout is not None
    child.stdin.write(request)
    child.stdin.close()
    for line in child.stdout:
        if json.loads(line) == {"event": "start", "stage": stage}:
            time.sleep(0.02)  # into the stage
            child.send_signal(signal.SIGKILL)
            break
    child.wait()
    finished = sorted(path.parents[1].name for path in (tmp_path / "store" / "refs").rglob("*.json"))
    assert stage not in finished or finished == sorted(STAGES["onnx"])
    for path in (tmp_path / "store" / "objects").glob("*/*"):
        assert (path / "manifest.json").is_file()
    report = export(tmp_path)
    assert report.outcome == "verified"
    assert [each.stage for each in report.stages if each.cached] == [each for each in STAGES["onnx"] if each in finished]


# ── Output folders ────────────────────────────────────────────────────────────


def test_out_gives_a_folder_that_plain_onnx_runtime_loads(made: tuple[Path, Report], tmp_path: Path) -> None:
    import onnxruntime

    home, _ = made
    for name, options in {"linked": {}, "packed": {"pack": True}}.items():
        report = export(home, out=str(tmp_path / name), **options)
        assert report.artifact == str(tmp_path / name / "model.onnx")
        onnxruntime.InferenceSession(report.artifact, providers=["CPUExecutionProvider"])
    linked = next((tmp_path / "linked").glob("*.safetensors"))
    assert linked.stat().st_nlink > 1  # the very file, not a copy
    assert (tmp_path / "packed" / "weights.safetensors").stat().st_nlink == 1


def test_a_folder_with_foreign_files_is_not_replaced(made: tuple[Path, Report], tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("")
    with pytest.raises(StoreError, match="didn't write"):
        export(made[0], out=str(tmp_path))
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


# ── Bad input ─────────────────────────────────────────────────────────────────


@pytest.fixture
def folder_without_config(tmp_path: Path) -> str:
    return str(tmp_path)


@pytest.fixture
def config_without_weights(tmp_path: Path) -> str:
    (tmp_path / "config.json").write_text('{"model_type": "bert", "architectures": ["BertModel"]}')
    return str(tmp_path)


@pytest.mark.parametrize(
    ("model", "options", "error", "says"),
    [
        ("BertForSequenceClasification", {}, UnknownModel, "BertForSequenceClassification"),
        ("somebody/some-model", {}, CheckpointError, "the hub can't be reached"),
        ("/nowhere/at/all", {}, CheckpointError, "/nowhere/at/all"),
        (SMALL, {"backend": "onx"}, UnknownBackend, "did you mean onnx"),
        (SMALL, {"opset": 99}, UsageError, "opset 99"),
        (SMALL, {"pack": True}, UsageError, "--out"),
        (SMALL, {"out": "/proc/nothing"}, StoreError, "/proc/nothing"),
    ],
)
def test_bad_requests_are_refused_by_name(tmp_path: Path, model: str, options: dict[str, Any], error: type[Exception], says: str) -> None:
    with pytest.raises(error) as caught:
        export(tmp_path, model, **options)
    assert says in str(caught.value)
    assert not (tmp_path / "store").exists()


@pytest.mark.parametrize("folder", ["folder_without_config", "config_without_weights"])
def test_broken_checkpoints_are_refused(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, folder: str) -> None:
    with pytest.raises(CheckpointError, match=r"config|weights"):
        export(tmp_path_factory.mktemp("home"), request.getfixturevalue(folder))


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small file system needs root")
def test_a_full_disk_is_one_error_and_leaves_nothing_half_written(tmp_path: Path) -> None:
    home = tmp_path / "small"
    home.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=300k", "tmpfs", str(home)], capture_output=True, check=False)
    if mounted.returncode:
        pytest.skip("this machine allows no mounts")
    try:
        with pytest.raises(StoreError, match=r"(?i)no space|can't write"):
            export(home)
        assert not list((home / "store").glob("objects/*/*/program.pt2.*"))
        assert all((path / "manifest.json").is_file() for path in (home / "store" / "objects").glob("*/*"))
    finally:
        subprocess.run(["umount", "-l", str(home)], check=True)


def test_events_come_as_stages_end(tmp_path: Path) -> None:
    events: list[Any] = []
    say: Callable[[Any], None] = events.append
    run(Request(model=SMALL, home=str(tmp_path), backend="dynamo"), say)
    assert [type(event).__name__ for event in events if isinstance(event, StageReport | Report)] == ["StageReport", "StageReport", "Report"]
    assert events[-1].outcome == "verified"


@pytest.mark.e2e
def test_a_lost_zygote_of_runtimes_says_nothing_of_the_artifact(tmp_path: Path) -> None:
    report = run(Request(model="DistilBertModel", backend="onnx", home=str(tmp_path), runtimes=str(tmp_path / "nobody")))
    assert report.outcome == "verified", report.error
