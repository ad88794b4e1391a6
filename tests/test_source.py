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


def in_hub_cache(cache: Path, monkeypatch: pytest.MonkeyPatch, **revisions: str) -> Path:
    """A cache of the hub that has `somebody/tiny` at these revisions, each at its commit."""
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(cache))
    cached = cache / "models--somebody--tiny"
    (cached / "refs").mkdir(parents=True)
    for name, commit in revisions.items():
        checkpoint(cached / "snapshots" / commit)
        (cached / "refs" / name).write_text(commit)
    return cached


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
    cached = in_hub_cache(tmp_path, monkeypatch, main="abc123")
    found = resolve("somebody/tiny")
    assert (found.name, found.revision) == ("somebody--tiny", "abc123")
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


# ── Named checkpoints ─────────────────────────────────────────────────────────


@pytest.fixture
def zoo_toml(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ZOOPORT_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    return tmp_path / "zoo.toml"


def test_a_named_folder(zoo_toml: Path) -> None:
    checkpoint(zoo_toml.parent / "models" / "x")
    zoo_toml.write_text('[checkpoints.tickets]\npath = "models/x"\n')
    found = resolve("tickets")
    assert (found.name, found.revision, found.task, found.zoo_name) == ("tickets", "", "", "BertModel")
    assert found.checkpoint is not None
    assert found.checkpoint.path == zoo_toml.parent / "models" / "x"


def test_a_named_checkpoint_goes_before_a_folder(zoo_toml: Path) -> None:
    checkpoint(zoo_toml.parent / "tickets")
    checkpoint(zoo_toml.parent / "other")
    zoo_toml.write_text('[checkpoints.tickets]\npath = "other"\n')
    named, folder = resolve("tickets").checkpoint, resolve("./tickets").checkpoint
    assert named is not None
    assert folder is not None
    assert (named.name, folder.name) == ("other", "tickets")


def test_a_named_hub_id_is_taken_at_its_revision(zoo_toml: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    in_hub_cache(zoo_toml.parent / "hub", monkeypatch, main="abc123", v2="def456")
    zoo_toml.write_text('[checkpoints.first]\nhub = "somebody/tiny"\n[checkpoints.second]\nhub = "somebody/tiny"\nrevision = "v2"\n')
    assert [resolve(name).revision for name in ("first", "second")] == ["abc123", "def456"]
    assert resolve("second").name == "second"


def test_a_named_hub_id_that_is_not_cached_says_that_the_hub_is_out_of_reach(zoo_toml: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    in_hub_cache(zoo_toml.parent / "hub", monkeypatch, main="abc123")
    zoo_toml.write_text('[checkpoints.tickets]\nhub = "somebody/tiny"\nrevision = "v3"\n')
    with pytest.raises(CheckpointError, match="the hub can't be reached"):
        resolve("tickets")


def test_another_task_is_another_model(zoo_toml: Path) -> None:
    checkpoint(zoo_toml.parent / "x")
    zoo_toml.write_text('[checkpoints.a]\npath = "x"\n[checkpoints.b]\npath = "x"\ntask = "fill-mask"\n')
    first, second = resolve("a"), resolve("b")
    assert first.digest != second.digest
    assert (second.task, second.zoo_name) == ("fill-mask", "")


@pytest.mark.parametrize("name", ["config.json", "vocab.txt", "preprocessor_config.json", "spiece.model"])
def test_what_inputs_are_made_from_is_part_of_the_digest(tmp_path: Path, name: str) -> None:
    folder = checkpoint(tmp_path / "x")
    before = resolve(str(folder)).digest
    (folder / name).write_text('{"model_type": "bert", "architectures": ["BertForMaskedLM"]}')
    assert resolve(str(folder)).digest != before
