"""Names of models: the zoo, folders, and the hub's cache."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from exporters import hub
from exporters.errors import CheckpointError, UnknownModel
from exporters.source import resolve


def checkpoint(folder: Path, value: float = 0.0) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps({"model_type": "bert", "architectures": ["BertModel"]}))
    save_file({"a": torch.full((4,), value)}, folder / "model.safetensors")
    return folder


def test_a_class_of_the_zoo() -> None:
    found = resolve("BertForSequenceClassification")
    assert found.name == "BertForSequenceClassification"
    assert found.weight_files == ()


def test_values_and_layout_of_a_checkpoint_have_digests_of_their_own(tmp_path: Path) -> None:
    first, second = resolve(str(checkpoint(tmp_path / "x", 1.0))), resolve(str(checkpoint(tmp_path / "x", 2.0)))
    assert first.digest == second.digest
    assert first.weights_digest != second.weights_digest
    assert first.weight_files == (tmp_path / "x" / "model.safetensors",)


def test_two_folders_of_one_name_are_kept_apart(tmp_path: Path) -> None:
    names = {resolve(str(checkpoint(tmp_path / where / "model"))).name for where in ("one", "two")}
    assert len(names) == 2


def test_a_cached_hub_id_needs_no_hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    cached = tmp_path / "models--somebody--tiny"
    checkpoint(cached / "snapshots" / "abc123")
    (cached / "refs").mkdir()
    (cached / "refs" / "main").write_text("abc123")
    found = resolve("somebody/tiny")
    assert found.name == "somebody--tiny"
    assert found.checkpoint is not None
    assert found.checkpoint.path == cached / "snapshots" / "abc123"


def test_a_hub_id_that_is_not_cached_says_that_the_hub_is_out_of_reach(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(CheckpointError, match="the hub can't be reached"):
        resolve("somebody/tiny")


@pytest.mark.parametrize(
    ("name", "expected"), [("org/name", True), ("org/name.v1-2", True), ("name", False), ("/org/name", False), ("a/b/c", False)]
)
def test_what_looks_like_a_hub_id(name: str, expected: bool) -> None:
    assert hub.is_hub_id(name) is expected


def test_an_unknown_class_has_near_matches() -> None:
    with pytest.raises(UnknownModel, match="LlamaForCausalLM"):
        resolve("LlamaForCausallLM")
