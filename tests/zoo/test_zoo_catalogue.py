"""The catalogue: names without torch, and what a wrong name is told."""

import importlib
import subprocess
import sys

import pytest
from zoo_helpers import ROWS, in_new_process

from exporters.errors import UnknownModel, UsageError
from exporters.zoo import catalogue


def test_names_are_unique_and_include_every_row() -> None:
    names = catalogue.names()
    assert len(names) == len(set(names))
    assert set(names) >= set(ROWS)


def test_names_suit_a_partition() -> None:
    assert [name for name in catalogue.names() if set(name) & set("|[], ")] == []


def test_loads_at_once() -> None:
    code = (
        "import time; began = time.process_time(); from exporters.zoo import catalogue; catalogue.names(); "
        "print(time.process_time() - began)"
    )
    assert min(float(in_new_process(code)) for _ in range(3)) < 0.2


def test_is_what_the_installed_transformers_gives() -> None:
    """After an upgrade of transformers: `python -m exporters.zoo.generate`."""
    done = subprocess.run([sys.executable, "-m", "exporters.zoo.generate", "--check"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr.splitlines()[-1]


def test_every_class_that_keeps_a_cache_has_a_decode_variant() -> None:
    names = set(catalogue.names())
    classes = [catalogue.entry(name) for name in names if "@" not in name]
    assert {entry.name for entry in classes if entry.decodes} == {name.partition("@")[0] for name in names if name.endswith("@decode")}
    assert all(entry.generates for entry in classes if entry.decodes)


def test_a_module_that_can_t_be_imported_is_read_as_source() -> None:
    entry = catalogue.entry("HiggsAudioV2TokenizerModel")
    assert (entry.family, entry.main_input) == ("audio", "input_values")


def test_internal_classes_are_known_and_apart() -> None:
    internal = catalogue.names(internal=True)
    assert len(internal) > 100
    assert set(internal).isdisjoint(catalogue.names())
    assert all(catalogue.entry(name).internal and catalogue.has(name) and "@" not in name for name in internal)
    assert not any(catalogue.entry(name).internal for name in catalogue.names())


def test_loads_without_torch_or_transformers() -> None:
    code = (
        "import sys; from exporters.zoo import catalogue, checkpoint_info, overrides, sample; catalogue.entry('CLIPModel'); "
        "print([name for name in ('torch', 'transformers', 'numpy') if name in sys.modules])"
    )
    assert in_new_process(code) == "[]"


@pytest.mark.parametrize("name", ROWS)
def test_entry_says_what_the_class_says(name: str) -> None:
    entry = catalogue.entry(name)
    modeling = importlib.import_module(f"transformers.models.{entry.module}")
    model_class = getattr(modeling, entry.class_name)
    assert entry.model_type == model_class.config_class.model_type
    assert entry.main_input == model_class.main_input_name
    assert entry.generates == model_class.can_generate()


def test_variant_is_split_from_class() -> None:
    entry = catalogue.entry("LlamaForCausalLM@decode")
    assert (entry.class_name, entry.variant) == ("LlamaForCausalLM", "decode")
    assert catalogue.entry("LlamaForCausalLM").variant == ""


@pytest.mark.parametrize(
    ("wrong", "meant"),
    [
        ("BertForSequenceClasification", "BertForSequenceClassification"),
        ("llamaforcausallm", "LlamaForCausalLM"),
        ("LlamaForCausalLM@decod", "LlamaForCausalLM@decode"),
        ("swin", "SwinForImageClassification"),
    ],
)
def test_unknown_name_is_told_the_near_ones(wrong: str, meant: str) -> None:
    with pytest.raises(UnknownModel) as caught:
        catalogue.entry(wrong)
    assert wrong in str(caught.value)
    assert meant in caught.value.next


@pytest.mark.parametrize("nonsense", ["", "zzzzqqqq"])
def test_unlike_any_name_points_to_the_list(nonsense: str) -> None:
    with pytest.raises(UsageError) as caught:
        catalogue.entry(nonsense)
    assert "zooport zoo" in caught.value.next
