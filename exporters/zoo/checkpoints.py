"""A checkpoint as a sample: its own weights, its own sizes, and real text where its tokenizer works."""

from __future__ import annotations

import difflib
import importlib
import inspect
import pickle
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from safetensors import SafetensorError
from transformers import AutoConfig, PreTrainedConfig, PreTrainedModel
from transformers.models.auto import modeling_auto
from transformers.models.auto.configuration_auto import model_type_to_module_name
from transformers.utils import logging as transformers_logging

from exporters.errors import CheckpointError
from exporters.zoo.checkpoint_info import CheckpointInfo, describe
from exporters.zoo.inputs import Leaf
from exporters.zoo.overrides import override
from exporters.zoo.processors import MEDIA, media_inputs
from exporters.zoo.sample import Sample
from exporters.zoo.tasks import TASKS
from exporters.zoo.texts import text_inputs
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
    config: PreTrainedConfig = model.config
    parameters = frozenset(inspect.signature(model.forward).parameters)
    main_input = model.main_input_name
    text_config = config.get_text_config()
    longest = getattr(text_config, "max_position_embeddings", None) or _UNBOUNDED

    given: dict[str, dict[str, Leaf]] | None = None
    source = "rules"
    is_text_only = main_input == "input_ids" and "pixel_values" not in parameters
    if is_text_only and isinstance(vocabulary := getattr(text_config, "vocab_size", None), int):
        tokenized = text_inputs(info.path, vocabulary, parameters, longest)
        if tokenized is not None:
            given, source = tokenized
    elif main_input in MEDIA and "input_ids" not in parameters:
        given, source = media_inputs(info.path, main_input, parameters)
    sample = make_sample(model, "", main_input, override(config.model_type, type(model).__name__), seed=_SEED, given=given)
    sample.source = source
    return sample


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
