"""Write the catalogue anew from the installed transformers: `python -m exporters.zoo.generate [--check]`.

Imports every modeling module once (about fifteen seconds). A module that needs a package which isn't installed is read as
source instead, so that its classes are in the catalogue all the same, with the package's name.
"""

from __future__ import annotations

import argparse
import ast
import importlib
import inspect
import json
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, UnionType
from typing import Any, get_args

from exporters.zoo.overrides import override
from exporters.zoo.tasks import TASKS

CATALOGUE = Path(__file__).with_name("catalogue.json")
FIELDS = ("name", "module", "model_type", "family", "main_input", "task", "generates", "decodes", "requires")

# ── What a class is for ───────────────────────────────────────────────────────

# for classes that no auto mapping names
_ENDINGS: dict[str, str] = {
    "ForSequenceClassification": "text-classification",
    "ForTokenClassification": "token-classification",
    "ForQuestionAnswering": "question-answering",
    "ForMultipleChoice": "multiple-choice",
    "ForMaskedLM": "fill-mask",
    "ForPreTraining": "pretraining",
    "ForCausalLM": "text-generation",
    "LMHeadModel": "text-generation",
    "ForImageClassification": "image-classification",
    "ForAudioClassification": "audio-classification",
    "ForObjectDetection": "object-detection",
    "ForSemanticSegmentation": "image-segmentation",
    "ForCTC": "automatic-speech-recognition",
    "HifiGan": "vocoder",
}


def _tasks() -> dict[str, str]:
    """Class name -> task, from the auto mappings."""
    auto = importlib.import_module("transformers.models.auto.modeling_auto")
    tasks: dict[str, str] = {}
    for stem, task in TASKS.items():
        mapping = getattr(auto, f"{stem}_MAPPING_NAMES", None) or getattr(auto, f"{stem}_NAMES", {})
        for names in mapping.values():
            for name in [names] if isinstance(names, str) else names:
                tasks.setdefault(name, task)
    return tasks


def _task(name: str, generates: bool, tasks: dict[str, str]) -> str:
    if name in tasks:
        return tasks[name]
    ending = next((task for ending, task in _ENDINGS.items() if name.endswith(ending)), None)
    return ending or ("text-generation" if generates else "feature-extraction")


# ── Which family it belongs to ────────────────────────────────────────────────

_IMAGES = {
    "pixel_values", "flattened_patches", "pixel_values_local", "image", "visual_embeds", "visual_feats", "bbox", "image_features", "boxes",
    "grid_thw",
}  # fmt: skip
_VIDEOS = {"pixel_values_videos", "frame"}
_SOUNDS = {
    "input_values", "input_features", "audio_input_ids", "spectrogram", "audio_mel", "audio_codes", "mel_spectrogram", "audio_latents",
    "codes",
}  # fmt: skip
_SERIES = {"past_values", "states"}


def _family(parameters: list[str], main_input: str, modalities: set[str], task: str) -> str:
    """From what forward takes; where it takes only intermediate values, from what the class says of itself."""
    takes = set(parameters)
    if not takes & (_IMAGES | _VIDEOS | _SOUNDS | {"input_ids"}):
        takes |= {main_input} - {"input_ids"}  # which is the default of all
    if takes & _SERIES or "time" in modalities:
        return "time-series"
    images, videos, sounds = bool(takes & _IMAGES), bool(takes & _VIDEOS), bool(takes & _SOUNDS)
    if "input_ids" in takes and (images or videos or sounds):
        return "multimodal"
    if images and sounds:
        return "multimodal"
    if sounds or task in ("text-to-audio", "audio-tokenization", "vocoder"):
        return "audio"
    if videos and not images:
        return "video"
    if images:
        return "video" if "video" in modalities and "image" not in modalities else "vision"
    if "input_ids" in takes or "decoder_input_ids" in takes:
        return "text"
    said = modalities - {"text"}
    return {"image": "vision", "audio": "audio", "video": "video"}.get(min(said), "other") if len(said) == 1 else "other"


# what forward calls what it remembers of the steps before; where it has another name, or a part of the model has it, is declared
_CACHES = {"cache", "state"}

# ── Classes ───────────────────────────────────────────────────────────────────


def modeling_modules() -> list[str]:
    """`folder.modeling_x` of every modeling module of the installed transformers."""
    models = importlib.import_module("transformers.models")
    root = Path(next(iter(models.__path__)))
    return sorted(f"{file.parent.name}.{file.stem}" for file in root.glob("*/modeling_*.py"))


def config_class_of(model_class: Any) -> Any:
    """The config class; the first of several."""
    declared = model_class.config_class
    return get_args(declared)[0] if isinstance(declared, UnionType) else declared


def _first(value: Any) -> Any:
    return value[0] if isinstance(value, (list, tuple)) and value else value


def _from_module(module: ModuleType, place: str, tasks: dict[str, str], *, internal: bool) -> Iterator[dict[str, Any]]:
    """The model classes in a module's `__all__`, or those that aren't: encoders, decoders and wrappers that public ones are made of."""
    from torch import nn
    from transformers import PreTrainedModel

    public = list(getattr(module, "__all__", ()))
    for name in [name for name in vars(module) if name not in public] if internal else public:
        found = getattr(module, name)
        if not (inspect.isclass(found) and issubclass(found, PreTrainedModel)) or found.__module__ != module.__name__:
            continue
        model_class: Any = found
        if model_class.forward is nn.Module.forward or model_class.config_class is None:
            continue
        parameters = [name for name in inspect.signature(model_class.forward).parameters if name not in ("self", "kwargs", "args")]
        if not parameters:
            continue
        main = _first(model_class.main_input_name)
        said = getattr(model_class, "input_modalities", None) or ()
        generates = bool(model_class.can_generate())
        task = _task(name, generates, tasks)
        model_type = config_class_of(model_class).model_type or _type_of_parent(module, model_class) or place.partition(".")[0]
        declared = override(model_type, name)
        yield {
            "name": name,
            "module": place,
            "model_type": model_type,
            "family": _family(parameters, main, {said} if isinstance(said, str) else set(said), task),
            "main_input": main if main in parameters else parameters[0],
            "task": task,
            "generates": generates,
            "decodes": generates and (bool(_CACHES & set(parameters)) or bool({"cache", "part"} & set(declared.decode))),
            "requires": "",
        }


def _type_of_parent(module: ModuleType, model_class: Any) -> str:
    """For a config class without a model type of its own: that of the folder's first config that has one."""
    folder = module.__name__.rpartition(".")[0]
    configs = importlib.import_module(f"{folder}.configuration_{folder.rpartition('.')[2]}")
    return next((kind for name in configs.__all__ if (kind := getattr(getattr(configs, name), "model_type", ""))), "")


def _from_source(place: str, missing: str, tasks: dict[str, str]) -> Iterator[dict[str, Any]]:
    """The public classes of a module that can't be imported, as far as its source tells."""
    models = importlib.import_module("transformers.models")
    source = Path(next(iter(models.__path__)), *f"{place}.py".split(".", 1))
    tree = ast.parse(source.read_text(encoding="utf-8"))
    public: list[str] = []
    for node in tree.body:
        if isinstance(node, ast.Assign) and any(isinstance(target, ast.Name) and target.id == "__all__" for target in node.targets):
            public = ast.literal_eval(node.value)
    for node in tree.body:
        if not isinstance(node, ast.ClassDef) or node.name not in public:
            continue
        forward = next((item for item in node.body if isinstance(item, ast.FunctionDef) and item.name == "forward"), None)
        if forward is None:
            continue  # the abstract base
        parameters = [argument.arg for argument in forward.args.args if argument.arg != "self"]
        task = _task(node.name, False, tasks)
        folder = place.partition(".")[0]
        yield {
            "name": node.name,
            "module": place,
            "model_type": folder,
            "family": _family(parameters, "", set(), task),
            "main_input": parameters[0],
            "task": task,
            "generates": False,
            "decodes": False,
            "requires": missing,
        }


def rows() -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Every class with a forward and a config class, the public and the internal ones, in the order of their modules.

    An internal class whose name another class has already is left out: nobody could ask for it.
    """
    tasks = _tasks()
    public: list[dict[str, Any]] = []
    internal: list[dict[str, Any]] = []
    for place in modeling_modules():
        try:
            module = importlib.import_module(f"transformers.models.{place}")
        except ModuleNotFoundError as error:
            public.extend(_from_source(place, str(error.name), tasks))
            continue
        public.extend(_from_module(module, place, tasks, internal=False))
        internal.extend(_from_module(module, place, tasks, internal=True))
    counts = Counter(row["name"] for row in [*public, *internal])
    return public, [row for row in internal if counts[row["name"]] == 1]


def text() -> str:
    """The catalogue file: a row a line, so that an upgrade's differences can be read."""
    import transformers

    public, internal = ([json.dumps([row[field] for field in FIELDS]) for row in each] for each in rows())
    head = json.dumps({"transformers": transformers.__version__, "fields": FIELDS})[:-1]
    return head + ', "classes": [\n' + ",\n".join(public) + '\n], "internal": [\n' + ",\n".join(internal) + "\n]}\n"


def main() -> int:
    """Write the catalogue, or with `--check` say whether it is what would be written; 1 where it isn't."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; status 1 where the catalogue is out of date")
    wanted = text()
    if parser.parse_args().check:
        if CATALOGUE.read_text(encoding="utf-8") == wanted:
            return 0
        print(f"{CATALOGUE.name} is out of date: run `python -m exporters.zoo.generate`", file=sys.stderr)
        return 1
    CATALOGUE.write_text(wanted, encoding="utf-8")
    content = json.loads(wanted)
    print(f"{len(content['classes'])} classes, {len(content['internal'])} internal ones")
    return 0


if __name__ == "__main__":
    sys.exit(main())
