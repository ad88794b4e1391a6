"""Classes of every family, built and called as a whole run would."""

import pytest
from zoo_helpers import digest
from zoo_sample import DECODES, SAMPLE

from exporters.zoo import catalogue
from exporters.zoo.build import build
from exporters.zoo.probe import probe

CLASSES = [name for names in SAMPLE.values() for name in names]


@pytest.mark.parametrize("name", [*CLASSES, *(f"{name}@decode" for name in DECODES)])
def test_builds_runs_and_explains_what_varies(name: str) -> None:
    result = probe(name)
    assert result["outcome"] == "ok", result["reason"]
    assert result["unnamed"] == []
    assert result["parameters"] <= 2_500_000


@pytest.mark.parametrize("name", [names[0] for names in SAMPLE.values()])
def test_is_the_same_when_built_again(name: str) -> None:
    assert digest(build(name)) == digest(build(name))


@pytest.mark.parametrize("name", ["ConvNextForImageClassification", "HubertForCTC", "VideoMAEForPreTraining", "PatchTSTForPrediction"])
def test_other_sets_have_another_batch_and_a_batch_of_one(name: str) -> None:
    batch = next(axis for axis in build(name).axes if axis.name == "batch")
    assert batch.sizes == (2, 3, 1)


@pytest.mark.parametrize("name", CLASSES)
def test_axes_are_bounded(name: str) -> None:
    for axis in build(name).axes:
        assert axis.sizes[0] >= 2, f"{axis.name}: torch.export freezes an axis of {axis.sizes[0]}"
        if not axis.name.startswith(("batch", "images")):
            assert axis.max is not None
            assert max(axis.sizes) <= axis.max
            assert axis.why


def test_sample_names_every_family_of_the_zoo() -> None:
    families = {catalogue.entry(name).family for name in catalogue.names()}
    assert families == set(SAMPLE)
    for family, names in SAMPLE.items():
        of_family = [name for name in catalogue.names() if catalogue.entry(name).family == family]
        assert len(names) >= min(5, len(of_family) - 1), family
