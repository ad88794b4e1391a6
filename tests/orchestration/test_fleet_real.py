"""A fleet of 48 real and planted partitions: 43 tiny models to ONNX, verified on its runtime, and five that end in ways of their own."""

import json
from pathlib import Path

import dagster as dg
import pytest
from dagster._core.storage.partition_status_cache import AssetPartitionStatus

from assets.partitions import partitions_of
from exporters.zoo import catalogue
from orchestration.fleet_command import Choice, run_fleet
from orchestration.instance import open_instance
from orchestration.resources import PoolRunner
from orchestration.selection import Scope

PLANTED = {
    "Segfaults": "SIGSEGV",
    "Loops": "Timeout",
    "Eats": "MemoryError",
    "Raises": "ValueError",
    "Silent": "NoReport",
}
REAL = 43


def small_encoders() -> list[str]:
    """Encoders of text with a head, the first by name: some three CPU seconds each."""
    names = [name for name in catalogue.names() if name.endswith(("ForSequenceClassification", "ForTokenClassification"))]
    encoders = (
        "Albert",
        "Bert",
        "Camembert",
        "ConvBert",
        "Deberta",
        "DistilBert",
        "Electra",
        "Ernie",
        "FNet",
        "Flaubert",
        "IBert",
        "LayoutLM",
    )
    more = (
        "MPNet",
        "Megatron",
        "MobileBert",
        "ModernBert",
        "RemBert",
        "RoFormer",
        "Roberta",
        "RoCBert",
        "SqueezeBert",
        "XLMRoberta",
        "Xmod",
    )
    chosen = [name for name in names if name.startswith((*encoders, *more)) and not name.startswith("LayoutLMv2")]  # wants detectron2
    return chosen[:REAL]


@pytest.mark.slow
@pytest.mark.e2e
def test_planted_faults_are_their_own_and_the_rest_is_verified(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "zoo.toml").write_text("".join(f'[checkpoints.{name}]\nhub = "planted/{name}"\n' for name in PLANTED))
    monkeypatch.chdir(tmp_path)
    real = small_encoders()
    assert len(real) == REAL
    models = real[:]
    for place, name in enumerate(PLANTED):
        models.insert(5 + 8 * place, name)
    runner = PoolRunner(chain="planted_chain:serve", workers=2, timeout_seconds=120, memory_mb=6144)
    assert run_fleet(Choice(Scope(models)), runner, as_json=True) == 1
    told = json.loads(capsys.readouterr().out)
    outcomes = {row["model"]: (row["outcome"], row["error"]["type"] if row["error"] else None) for row in told["partitions"]}
    assert outcomes == {name: ("failed", PLANTED[name]) if name in PLANTED else ("verified", None) for name in models}
    errors = {row["model"]: row["error"]["message"] for row in told["partitions"] if row["error"]}
    assert errors["Raises"] == "planted"
    keys = [f"onnx|{name}" for name in models]
    with open_instance() as instance:
        statuses = instance.get_status_by_partition(dg.AssetKey(["onnx", "ir_fixed_model"]), keys, partitions_of("onnx", models)) or {}
    assert {key: status for key, status in statuses.items() if status != AssetPartitionStatus.MATERIALIZED} == {
        f"onnx|{name}": AssetPartitionStatus.FAILED for name in PLANTED
    }
