"""A named checkpoint through the whole chain: its own weights where they lie, its name, its revision."""

import json
from pathlib import Path

import pytest

from exporters.chain import Request, run
from exporters.zoo.build import build


def test_a_named_hub_checkpoint_is_verified_offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setenv("ZOOPORT_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    cached = tmp_path / "hub" / "models--somebody--tiny"
    build("BertForSequenceClassification").model.save_pretrained(cached / "snapshots" / "abc123")
    (cached / "refs").mkdir()
    (cached / "refs" / "v2").write_text("abc123")
    (tmp_path / "zoo.toml").write_text(
        '[checkpoints.tickets]\nhub = "somebody/tiny"\nrevision = "v2"\n'
        '[checkpoints.features]\nhub = "somebody/tiny"\nrevision = "v2"\ntask = "feature-extraction"\n'
    )
    for name, output in (("tickets", "logits"), ("features", "last_hidden_state")):
        report = run(Request(model=name, home=str(tmp_path / "home")))
        assert (report.model, report.revision, report.outcome) == (name, "abc123", "verified"), report.error
        folder = tmp_path / "home" / "exports" / "onnx" / name
        assert report.artifact == str(folder / "model.onnx")
        assert json.loads((folder / "zooport.json").read_text())["revision"] == "abc123"
        assert output.encode() in (folder / "model.onnx").read_bytes()
