"""Build any model of the zoo: tiny, with random weights that matter, and with inputs."""

from __future__ import annotations

import importlib
import zlib
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn

from exporters.zoo import catalogue
from exporters.zoo.captured import sample_of_part
from exporters.zoo.generate import config_class_of
from exporters.zoo.overrides import override
from exporters.zoo.sample import Axis, Sample
from exporters.zoo.scaling import scale_weights
from exporters.zoo.tiny_config import tiny
from exporters.zoo.variants import make_sample

__all__ = ["Axis", "Sample", "build", "build_model"]


def _seed(class_name: str) -> int:
    """The same in every process, unlike `hash`; a class and its variants share weights."""
    return zlib.crc32(class_name.encode())


def build_model(entry: catalogue.Entry) -> nn.Module:
    """The tiny model of `entry`, without inputs: on the CPU, float32, `eval()`, the same in any process.

    Only the one modeling module is imported. The caller's random state is not touched.
    """
    modeling = importlib.import_module(f"transformers.models.{entry.module}")
    model_class = getattr(modeling, entry.class_name)
    declared = override(entry.model_type, entry.class_name)
    config = tiny(config_class_of(model_class), declared.config, head=entry.class_name, decodes=entry.generates)
    seed = _seed(entry.class_name)
    with torch.random.fork_rng(devices=[]), _memory_filled():
        torch.default_generator.manual_seed(seed)
        model: nn.Module = model_class(config)
    scale_weights(model, seed)
    return model.eval()


@contextmanager
def _memory_filled() -> Iterator[None]:
    """Have `torch.empty` give NaN instead of what the memory happens to hold: what a class forgets to initialise then shows."""
    before = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
    torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before[0], warn_only=before[1])


def build(name: str) -> Sample:
    """A model of the zoo and its inputs.

    Args:
        name: class name, or `Class@variant`.

    Returns:
        Floating inputs are float32, ids and masks int64; rows of a batch are padded where the family pads. The sets
        `other` and `batch_1` have other sizes in every axis of `axes`.

    Raises:
        UnknownModel: with near matches, if the zoo has no such name.
    """
    entry = catalogue.entry(name)
    declared = override(entry.model_type, entry.class_name)
    if declared.part_of:
        return sample_of_part(build(declared.part_of), entry.class_name)
    model = build_model(entry)
    return make_sample(model, entry.variant, entry.main_input, declared, seed=_seed(entry.class_name))
