"""A checkpoint as a sample: its own weights, its own sizes, and real text where its tokenizer works."""

from __future__ import annotations

import copy
import difflib
import importlib
import inspect
import pickle
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from transformers import AutoConfig, PreTrainedConfig, PreTrainedModel
from transformers.models.auto import modeling_auto
from transformers.models.auto.configuration_auto import model_type_to_module_name
from transformers.utils import logging as transformers_logging

from exporters.errors import CheckpointError
from exporters.zoo.checkpoint_info import CheckpointInfo, describe
from exporters.zoo.joint_inputs import joined_kind, joint_inputs, writes
from exporters.zoo.overrides import Override, override
from exporters.zoo.processors import MEDIA, Given, first_line, media_inputs
from exporters.zoo.sample import Sample
from exporters.zoo.tasks import TASKS
from exporters.zoo.texts import decoder_inputs, text_inputs
from exporters.zoo.variants import make_sample

__all__ = ["describe", "load", "load_model"]

_SEED = 0
_UNBOUNDED = 1 << 20  # tokens; what no checkpoint's text is cut to


def load(path: str | Path, *, task: str = "") -> Sample:
    """A checkpoint folder and its inputs. The folder is only read.

    The weights stay in their file: transformers maps a safetensors file and gives the parameters its memory, so that
    loading costs neither a copy nor their size in memory until they are touched.

    Args:
        path: a folder as `save_pretrained` writes it.
        task: picks the class, as transformers' auto classes do; empty for the one that the config names.

    Returns:
        The model in the dtype it was saved in; `Sample.source` says where its inputs come from.

    Raises:
        CheckpointError: the folder, its config or its weights can't be used; says which and why.
    """
    info = describe(path)
    model = load_model(info, task)
    declared = override(model.config.model_type, type(model).__name__)
    refused = ""
    for given, source in _offers(info.path, model, declared):
        if given is None:
            refused = refused or source
            continue
        sample = make_sample(model, "", model.main_input_name, declared, seed=_SEED, given=given)
        sample.source = source
        reason = _refuses(model, sample.others["batch_1"])
        if not reason:
            return sample
        refused = refused or f"rules: the model refuses what came of {source} ({reason})"
    sample = make_sample(model, "", model.main_input_name, declared, seed=_SEED)
    sample.source = refused or "rules"
    return sample


def _offers(folder: Path, model: PreTrainedModel, declared: Override) -> Iterator[tuple[Given | None, str]]:
    """Inputs that the checkpoint's own tokenizer or processor makes, the fittest first; without inputs, why it makes none."""
    config: PreTrainedConfig = model.config
    parameters = frozenset(inspect.signature(model.forward).parameters)
    main_input = model.main_input_name
    text_config = config.get_text_config()
    vocabulary = getattr(text_config, "vocab_size", None)
    longest = getattr(text_config, "max_position_embeddings", None) or _UNBOUNDED
    kind = joined_kind(parameters, declared)
    if kind and isinstance(vocabulary, int):
        for joined in joint_inputs(folder, model, declared, kind, vocabulary, longest):
            yield joined.given, joined.source
    elif main_input in MEDIA and "input_ids" not in parameters:
        for given, source in media_inputs(folder, main_input, parameters):
            if given is not None and writes(parameters, main_input):
                written = decoder_inputs(folder, config, getattr(config, "max_target_positions", None) or longest)
                if written is not None:
                    yield {name: {**given[name], **written[0][name]} for name in given}, f"{source}, {written[1]}"
            yield given, source
    elif main_input == "input_ids" and isinstance(vocabulary, int):
        tokenized = text_inputs(folder, vocabulary, parameters, longest)
        if tokenized is not None:
            yield tokenized


def _refuses(model: PreTrainedModel, inputs: dict[str, Any]) -> str:
    """What forward says against inputs that a processor made; empty where it takes them.

    A processor and a model that were saved together fit, but not every folder was, and not every processor says how it wants to be asked.
    """
    try:
        with torch.no_grad(), torch.random.fork_rng(devices=[]):
            model(**copy.deepcopy(inputs))
    except Exception as error:  # whatever a class raises at what it can't take
        return first_line(error)
    return ""


def load_model(info: CheckpointInfo, task: str = "") -> PreTrainedModel:
    """The model of a checkpoint, in `eval()`, on the CPU.

    Raises:
        CheckpointError: an architecture that transformers doesn't have; weights that are damaged, don't fit the config, or leave
            parameters of the model without a value.
    """
    model_class = _model_class(info, task)
    try:
        with _quiet():
            model, report = model_class.from_pretrained(info.path, local_files_only=True, output_loading_info=True)
    except (OSError, ValueError, RuntimeError, KeyError, EOFError, SafetensorError, pickle.UnpicklingError) as error:
        reason = str(error).strip().splitlines() or [type(error).__name__]
        raise CheckpointError(
            f"the weights of {info.path} can't be loaded into {model_class.__name__}: {reason[0]}",
            next="check that config.json and the weights belong together, and copy or download them again",
        ) from error
    missing = sorted(report["missing_keys"])
    if missing:
        named = ", ".join(missing[:3]) + (f" and {len(missing) - 3} more" if len(missing) > 3 else "")
        raise CheckpointError(
            f"{info.path} has no weights for {named} of {model_class.__name__}",
            next="take the task, or name the class under `architectures`, that was trained: what is missing would be random",
        )
    return model.eval()


@contextmanager
def _quiet() -> Iterator[None]:
    """No progress bar for a fraction of a second, and no report on keys: the missing ones are an error here, the others are left out."""
    shown = transformers_logging.is_progress_bar_enabled()
    verbosity = transformers_logging.get_verbosity()
    transformers_logging.disable_progress_bar()
    transformers_logging.set_verbosity_error()
    try:
        yield
    finally:
        transformers_logging.set_verbosity(verbosity)
        if shown:
            transformers_logging.enable_progress_bar()


def _model_class(info: CheckpointInfo, task: str) -> type[PreTrainedModel]:
    """The class for `task`; without one that which the config names under `architectures`, else the base model of its type."""
    try:
        config = AutoConfig.from_pretrained(info.path, local_files_only=True)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CheckpointError(
            f"{info.path}: transformers knows no config of model type {info.model_type!r}",
            next="give a checkpoint whose config.json names a model type of this transformers",
        ) from error
    if task:
        return _class_for(task, info, config)
    if info.architecture is None:
        return _base_class(info, config)
    folder = model_type_to_module_name(config.model_type)
    modeling = importlib.import_module(f"transformers.models.{folder}.modeling_{folder}")
    found = getattr(modeling, info.architecture, None)
    if found is None:
        near = difflib.get_close_matches(info.architecture, getattr(modeling, "__all__", ()), n=3, cutoff=0.4)
        raise CheckpointError(
            f"{info.path}: transformers has no architecture {info.architecture!r} for model type {config.model_type!r}",
            next=f"did you mean {' or '.join(near)}?" if near else "name a class of this model type under `architectures`",
        )
    return found


def _base_class(info: CheckpointInfo, config: PreTrainedConfig) -> type[PreTrainedModel]:
    found = _classes(config, "MODEL")
    if not found:
        raise CheckpointError(
            f"{info.path} names no architecture, and {config.model_type} has no base model", next="name the class under `architectures`"
        )
    return found[0]


def _class_for(task: str, info: CheckpointInfo, config: PreTrainedConfig) -> type[PreTrainedModel]:
    """The class that transformers' auto classes have for a task; of several, the one that the config names."""
    found = [each for stem, known in TASKS.items() if known == task for each in _classes(config, stem)]
    if not found:
        tasks = dict.fromkeys(known for stem, known in TASKS.items() if _classes(config, stem))
        raise CheckpointError(f"{config.model_type} has no class for {task}", next=f"its tasks are {', '.join(tasks)}")
    return next((each for each in found if each.__name__ == info.architecture), found[0])


def _classes(config: PreTrainedConfig, stem: str) -> list[type[PreTrainedModel]]:
    """What one of transformers' auto mappings has for a config."""
    found = getattr(modeling_auto, f"{stem}_MAPPING").get(type(config), ())
    return list(found) if isinstance(found, tuple) else [found]
