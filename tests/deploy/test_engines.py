"""Fleets with PostgreSQL, Redis, Celery and S3, of which something is killed in the middle: all of it real.

`python -m pytest -m slow tests/deploy` runs it where the servers are installed (deploy/README.md).
"""

import json
import time
from collections import Counter
from pathlib import Path

import boto3
import dagster as dg
import numpy as np
import psutil
import pytest
from safetensors.numpy import save_file

pytest.importorskip("dagster_celery", reason="the extra `deploy` is not installed")
pytest.importorskip("dagster_postgres", reason="the extra `deploy` is not installed")

import engines
from deployment import Deployment, deployed, wait_for

from assets.partitions import partitions_of
from exporters.backends import STAGES
from orchestration.lost_chunks import REMAINDER_TAG

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(bool(engines.missing()), reason=f"not installed: {', '.join(engines.missing())} (deploy/README.md)"),
]

CHUNK = 4
PATIENCE = 300.0  # seconds, on a machine that has other things to do
REAL_MODELS = [
    *("BertModel", "GPT2Model", "ViTModel", "LlamaModel", "DistilBertModel", "RobertaModel"),
    *("BertForSequenceClassification", "ViTForImageClassification", "LlamaForCausalLM", "GPT2LMHeadModel", "ElectraModel"),
]
LAST = dg.AssetKey(["onnx", "ir_fixed_model"])
FAKE_CHAIN, REAL_CHAIN = "counted_chain:fake", "counted_chain:real"


def bucket(environment: dict[str, str]) -> dict[str, str]:
    boto3.client("s3").create_bucket(Bucket="zooport")
    return {**environment, "ZOOPORT_STORE": "s3://zooport/store", "ZOOPORT_LOG_BUCKET": "zooport"}


def test_a_fleet_of_real_exports_over_two_machines_one_of_which_dies(tmp_path: Path, s3_environment: dict[str, str]) -> None:
    broken = broken_checkpoint(tmp_path / "broken")
    models = [*REAL_MODELS[:6], broken, *REAL_MODELS[6:]]
    keys = [f"dynamo|{model}" for model in models]
    with deployed(tmp_path, "dynamo", models, REAL_CHAIN, bucket(s3_environment)) as deployment:
        lost = run_fleet_and_kill_a_worker(deployment, keys, patience=3 * PATIENCE)
        check_that_each_has_its_true_status(deployment, "dynamo", keys, failed=f"dynamo|{broken}")
        assert_begun_once_but_for_what_died(deployment, keys, lost)
        prefix = "store/refs/dynamo/decomposed_graph/dynamo/"
        stored = boto3.client("s3").list_objects_v2(Bucket="zooport", Prefix=prefix)["Contents"]
        assert sorted(entry["Key"] for entry in stored) == sorted(f"{prefix}{model}.json" for model in REAL_MODELS)


def test_a_fleet_of_quick_doubles_over_two_machines_one_of_which_dies(tmp_path: Path, s3_environment: dict[str, str]) -> None:
    """The same in a minute, to work on it."""
    models = [f"Fine@{n}" for n in range(12)]
    models[6] = "Raises@6"
    keys = [f"onnx|{model}" for model in models]
    environment = {**bucket(s3_environment), "COUNTED_SECONDS": "1.5"}
    with deployed(tmp_path, "onnx", models, FAKE_CHAIN, environment) as deployment:
        lost = run_fleet_and_kill_a_worker(deployment, keys, patience=PATIENCE)
        check_that_each_has_its_true_status(deployment, "onnx", keys, failed=keys[6])
        assert_begun_once_but_for_what_died(deployment, keys, lost)


def test_a_machine_that_comes_back_begins_nothing_more_of_what_was_given_up(tmp_path: Path, s3_environment: dict[str, str]) -> None:
    models = ["Raises@0", "Fine@1", "Fine@2", "Fine@3"]
    keys = [f"onnx|{model}" for model in models]
    environment = {**bucket(s3_environment), "COUNTED_SECONDS": "3"}
    with deployed(tmp_path, "onnx", models, FAKE_CHAIN, environment) as deployment:
        deployment.start_worker("east")
        deployment.start_daemon()
        (first,) = deployment.submit(keys, per_run=CHUNK)
        wait_for(lambda: len(deployment.begun()) == 2, PATIENCE, "the second partition", deployment)
        time.sleep(1)  # until Dagster has heard of it too
        frozen = deployment.tree("east")
        for process in frozen:
            process.suspend()
        deployment.start_worker("west")
        wait_for(lambda: ended(deployment, first), PATIENCE, "the end of the remainder", deployment)
        for process in frozen:
            process.resume()
        wait_for(lambda: all(map(is_over, frozen[1:])), PATIENCE, "the end of what it was doing", deployment)
        assert Counter(entry["machine"] for entry in deployment.begun()) == {"east": 2, "west": 3}
        assert deployment.instance.get_run_by_id(first).is_failure
        assert deployment.statuses(LAST, partitions_of("onnx", models)) == {
            "materialized": set(keys[1:]),
            "failed": set(keys[:1]),
            "in progress": set(),
        }


def test_a_cancelled_run_leaves_nothing_running(tmp_path: Path, s3_environment: dict[str, str]) -> None:
    environment = {**bucket(s3_environment), "COUNTED_SECONDS": "600"}
    with deployed(tmp_path, "onnx", ["Fine@0", "Fine@1"], FAKE_CHAIN, environment) as deployment:
        deployment.start_worker("east")
        deployment.start_daemon()
        (run_id,) = deployment.submit(["onnx|Fine@0", "onnx|Fine@1"], per_run=CHUNK)
        wait_for(lambda: len(deployment.begun()) == 1, PATIENCE, "the first partition", deployment)
        deployment.instance.run_coordinator.cancel_run(run_id)
        wait_for(lambda: deployment.instance.get_run_by_id(run_id).is_finished, PATIENCE, "the end of the run", deployment)
        assert deployment.instance.get_run_by_id(run_id).status is dg.DagsterRunStatus.CANCELED
        wait_for(lambda: len(deployment.tree("east")) == 2, PATIENCE, "the end of its processes", deployment)
        assert len(deployment.begun()) == 1


def test_a_run_whose_process_is_killed_on_one_machine_with_postgresql(tmp_path: Path, s3_environment: dict[str, str]) -> None:
    models = ["Raises@0", "Fine@1", "Fine@2"]
    keys = [f"onnx|{model}" for model in models]
    environment = {**bucket(s3_environment), "COUNTED_SECONDS": "2"}
    with deployed(tmp_path, "onnx", models, FAKE_CHAIN, environment, engine="postgres") as deployment:
        deployment.start_daemon()
        (first,) = deployment.submit(keys, per_run=CHUNK)
        wait_for(lambda: len(deployment.begun()) == 2, PATIENCE, "the second partition", deployment)
        chain = psutil.Process(int(deployment.begun()[-1]["pid"]))
        zygote = chain.parent()
        assert zygote is not None
        zygote.parent().kill()
        wait_for(lambda: ended(deployment, first), PATIENCE, "the end of the remainder", deployment)
        assert is_over(chain)
        check_that_each_has_its_true_status(deployment, "onnx", keys, failed=keys[0])
        assert_begun_once_but_for_what_died(deployment, keys, keys[1])


# ── The scenario ──────────────────────────────────────────────────────────────


def broken_checkpoint(folder: Path) -> str:
    """A checkpoint whose configuration no model can be built from."""
    folder.mkdir()
    config = {"architectures": ["BertModel"], "model_type": "bert", "hidden_size": 30, "num_attention_heads": 4}
    (folder / "config.json").write_text(json.dumps(config))
    save_file({"pooler.dense.bias": np.zeros(30, np.float32)}, folder / "model.safetensors", metadata={"format": "pt"})
    return str(folder)


def run_fleet_and_kill_a_worker(deployment: Deployment, keys: list[str], *, patience: float) -> str:
    """Chunks over two machines; the one that has begun the second partition of the first chunk dies. What it was making then."""
    deployment.start_worker("east")
    deployment.start_worker("west")
    deployment.start_daemon()
    first, *_ = deployment.submit(keys, per_run=CHUNK)

    def begun_of_first() -> list[str]:
        return [key for key in map(key_of, deployment.begun()) if key in keys[:CHUNK]]

    wait_for(lambda: len(begun_of_first()) == 2, patience, "the second partition of the first chunk", deployment)
    machine = deployment.machine_of(deployment.instance.get_run_by_id(first))
    assert machine in ("east", "west")
    deployment.kill(machine)
    interrupted = begun_of_first()[-1]
    wait_for(lambda: ended(deployment, first), patience, "the end of every run", deployment)
    assert {entry["machine"] for entry in deployment.begun()} == {"east", "west"}
    return interrupted


def check_that_each_has_its_true_status(deployment: Deployment, family: str, keys: list[str], *, failed: str) -> None:
    """By Dagster's own account: its partition statuses, its events and its checks."""
    last = dg.AssetKey([family, STAGES[family][-1]])
    partitions = partitions_of(family, [key.partition("|")[2] for key in keys])
    good = [key for key in keys if key != failed]
    assert deployment.statuses(last, partitions) == {"materialized": set(good), "failed": {failed}, "in progress": set()}
    records = deployment.instance.fetch_materializations(dg.AssetRecordsFilter(asset_key=last), limit=1000).records
    assert Counter(record.partition_key for record in records) == dict.fromkeys(good, 1)
    history = deployment.instance.event_log_storage.get_asset_check_execution_history(dg.AssetCheckKey(last, "parity"), limit=1000)
    evaluations = [record.event.dagster_event.asset_check_evaluation_data for record in history if record.partition]
    assert {each.partition: each.passed for each in evaluations} == {key: key != failed for key in keys}
    assert len(evaluations) == len(keys)


def assert_begun_once_but_for_what_died(deployment: Deployment, keys: list[str], interrupted: str) -> None:
    assert Counter(map(key_of, deployment.begun())) == {key: 2 if key == interrupted else 1 for key in keys}


def key_of(entry: dict[str, str]) -> str:
    return f"{entry['backend']}|{entry['model']}"


def is_over(process: psutil.Process) -> bool:
    try:
        return process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def ended(deployment: Deployment, lost: str) -> bool:
    """Whether `lost` was given up, the rest of it requested once more, and every run is over."""
    runs = deployment.runs()
    again = [run for run in runs if run.tags.get(REMAINDER_TAG) == lost]
    return len(again) == 1 and all(run.is_finished for run in runs)
