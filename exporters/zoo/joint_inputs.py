"""Text with pictures or sounds for checkpoints, through the processor that came with them and joins the two."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import nn
from transformers import PreTrainedConfig

from exporters.zoo.image_inputs import counts_images
from exporters.zoo.overrides import Override
from exporters.zoo.placeholders import delimiters, rows_of_items
from exporters.zoo.processors import MEDIA, PICTURE, SOUND, Given, first_line, leaves, pictures, waves
from exporters.zoo.request import SETS, SIZES
from exporters.zoo.texts import fit_for_batches, language_of


@dataclass(frozen=True)
class Joined:
    """What one way of asking a processor gave: leaves by input set, and where they come from; or why there are none."""

    given: Given | None
    source: str


def joined_kind(parameters: frozenset[str], declared: Override) -> str:
    """What forward takes beside text: `image`, `audio`, or nothing. A model that takes both is shown pictures."""
    takes = parameters - set(declared.inputs.get("without", ()))
    if "input_ids" not in takes or not takes & MEDIA:
        return ""
    return "image" if PICTURE in takes else "audio"


def joint_inputs(folder: Path, model: nn.Module, declared: Override, kind: str, vocabulary: int, longest: int) -> Iterator[Joined]:
    """Every way of asking a checkpoint's processor that it took, the usual one first; or one that says why there is none.

    Processors differ in how a text names its pictures (a chat template, a placeholder, nothing at all) and in whether the pictures of
    several rows come as one list or as a list a row. Which of them the model then takes is for the caller to try.

    Args:
        folder: the checkpoint.
        kind: what goes with the text, `image` or `audio`.
        vocabulary: ids that the model knows.
        longest: positions that the model has; a text with placeholders can't be cut to them.
    """
    try:
        processor = _processor(folder)
    except ImportError as error:
        yield Joined(None, f"rules: its processor can't be imported ({first_line(error)})")
        return
    except Exception as error:  # processors of every age raise whatever they like; without one, inputs come from the rules
        yield Joined(None, f"rules: its processor can't be loaded ({first_line(error)})")
        return
    tokenizer = getattr(processor, "tokenizer", None)
    maker = getattr(processor, {"image": "image_processor", "audio": "feature_extractor"}[kind], None)
    if tokenizer is None or maker is None:
        yield Joined(None, f"rules: its {type(processor).__name__} doesn't join {kind} and text")
        return
    spoken = language_of(tokenizer, vocabulary) if fit_for_batches(tokenizer) else None
    if spoken is None:
        yield Joined(None, f"rules: its {type(processor).__name__} doesn't know the words of any text here")
        return
    language, corpus = spoken
    source = f"{language} and {'gradients' if kind == 'image' else 'tones'} through its {type(processor).__name__}"
    asker = _Asker(processor, kind, model.config, frozenset(inspect.signature(model.forward).parameters), declared)
    refused = ""
    for way in asker.ways():
        try:
            given = asker.ask(corpus, longest, **way)
        except Exception as error:  # as above; the next way may be the one that this processor wants
            refused = refused or f"rules: its {type(processor).__name__} refuses text with {kind} ({first_line(error)})"
        else:
            yield Joined(given, source)
    if refused:
        yield Joined(None, refused)


def _processor(folder: Path) -> Any:
    """The folder's processor; without its part for videos where that part's package isn't installed.

    Raises:
        ImportError: another part needs a package that isn't installed; and whatever a processor raises.
    """
    from transformers import AutoProcessor

    try:
        return AutoProcessor.from_pretrained(folder, local_files_only=True)
    except ImportError:
        with _without_videos():
            return AutoProcessor.from_pretrained(folder, local_files_only=True)


@contextmanager
def _without_videos() -> Iterator[None]:
    """For the block, processors are loaded without their part for videos: it needs torchvision, texts and pictures don't."""
    from transformers import ProcessorMixin
    from transformers.models.auto.video_processing_auto import AutoVideoProcessor

    load, check = vars(AutoVideoProcessor)["from_pretrained"], ProcessorMixin.check_argument_for_proper_class
    AutoVideoProcessor.from_pretrained = classmethod(lambda cls, *arguments, **options: None)
    ProcessorMixin.check_argument_for_proper_class = lambda self, name, part: None if part is None else check(self, name, part)
    try:
        yield
    finally:
        AutoVideoProcessor.from_pretrained = load
        ProcessorMixin.check_argument_for_proper_class = check


@dataclass(frozen=True)
class _Asker:
    """One checkpoint's processor, and what the model says of the texts that it makes."""

    processor: Any
    kind: str
    config: PreTrainedConfig
    parameters: frozenset[str]
    declared: Override

    def ways(self) -> Iterator[dict[str, bool]]:
        """Arguments of `ask`, the likeliest first."""
        has_template = bool(self._token() and getattr(self.processor, "chat_template", None))
        for chat in (True, False) if has_template else (False,):
            if self.kind == "audio":
                yield from ({"chat": chat, "pads": pads} for pads in (False, True))
            else:
                yield from ({"chat": chat, "nested": nested} for nested in ((False, True) if self._token() else (False,)))

    def ask(self, corpus: Mapping[str, list[str]], longest: int, *, chat: bool, nested: bool = False, pads: bool = False) -> Given:
        """Every input set, through the processor.

        Args:
            corpus: texts by set.
            longest: tokens that the model has positions for.
            chat: write the texts with the processor's chat template, not with bare placeholders.
            nested: give the pictures as a list a row.
            pads: ask for sounds as long as the longest, which some processors don't make of their own accord.

        Raises:
            ValueError: a text doesn't fit the model's positions; and whatever the processor raises.
        """
        made = {name: self._set(corpus[name], name, longest, chat=chat, nested=nested, pads=pads) for name in SETS}
        return leaves(made, self.parameters)

    def _set(self, texts: list[str], name: str, longest: int, *, chat: bool, nested: bool, pads: bool) -> Mapping[str, Any]:
        rows, items = len(texts), self._items(name)
        counts = rows_of_items(rows, items) if self._token() else [0] * rows
        told = [self._told(text, count, chat=chat) for text, count in zip(texts, counts, strict=True)]
        cut = {} if self._token() else {"truncation": True, "max_length": longest}
        options: dict[str, Any] = {"return_tensors": "pt", "text_kwargs": {"padding": True, **cut}}
        if self.kind == "image":
            shown = pictures(name, items)
            at = [sum(counts[:row]) for row in range(rows)]
            options["images"] = [shown[start : start + count] for start, count in zip(at, counts, strict=True)] if nested else shown
        else:
            rate = self.processor.feature_extractor.sampling_rate
            options |= {"audio": waves(name, rate), "audio_kwargs": {"sampling_rate": rate, **({"padding": True} if pads else {})}}
        made: Mapping[str, Any] = self.processor(text=told, **options)
        if made["input_ids"].shape[-1] > longest:
            raise ValueError(f"a text with its placeholders has {made['input_ids'].shape[-1]} tokens, the model {longest} positions")
        return made

    def _token(self) -> str:
        """What stands for a picture or a sound in a text; empty where the text doesn't name it."""
        return str(getattr(self.processor, f"{self.kind}_token", None) or "")

    def _items(self, name: str) -> int:
        """Pictures or sounds of a set: as many as rows, unless the model counts its images apart."""
        free = self.kind == "image" and counts_images(self.config, self.parameters, self.declared.inputs.get("images"))
        return SIZES["images" if free else "batch"][SETS.index(name)]

    def _told(self, text: str, count: int, *, chat: bool) -> str:
        """`text` with places for `count` pictures or sounds before it, as a user would write it."""
        if chat:
            content = [*({"type": self.kind} for _ in range(count)), {"type": "text", "text": text}]
            return str(self.processor.apply_chat_template([{"role": "user", "content": content}], add_generation_prompt=True))
        tokenizer = self.processor.tokenizer
        before, after = (str(getattr(self.processor, f"{self.kind}_{end}_token", None) or "") for end in ("bos", "eos"))
        if not before and not after:
            before, after = ("".join(tokenizer.convert_ids_to_tokens(list(ids))) for ids in delimiters(self.config, self.kind))
        return f"{before}{self._token()}{after}" * count + text


def writes(parameters: frozenset[str], main_input: str) -> bool:
    """Whether a model hears and writes, as speech recognizers do."""
    return main_input in SOUND and "decoder_input_ids" in parameters and "input_ids" not in parameters
