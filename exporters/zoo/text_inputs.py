"""Input rules for text: ids with padding, masks, segments, boxes, and what a decoder is given."""

from __future__ import annotations

from collections.abc import Callable

import torch
from transformers import PreTrainedConfig

from exporters.zoo.placeholders import Placeholder, placeholders
from exporters.zoo.request import Leaf, Request, first_of

FIRST_ORDINARY_ID = 40  # below are special tokens, the shrunk ones included
PADDING = 2  # of row 1 in every batch that has one
CHOICES = 2


def row_lengths(rows: int, length: int) -> list[int]:
    """How much of each row is real: row 1 is padded by 2, later ones by 0 to 2."""
    return [length - (row * PADDING) % 3 for row in range(rows)]


def first_id(value: int | list[int] | None) -> int | None:
    return value[0] if isinstance(value, (list, tuple)) and value else value if isinstance(value, int) else None


def pad_id(config: PreTrainedConfig) -> int:
    """The padding token, or what users take where there is none."""
    for name in ("pad_token_id", "eos_token_id"):
        value = first_id(getattr(config, name, None))
        if value is not None and value >= 0:
            return value
    return 0


def ordinary_ids(request: Request, vocabulary: int, shape: tuple[int, ...]) -> torch.Tensor:
    return request.integers(min(FIRST_ORDINARY_ID, vocabulary // 2), vocabulary, shape)


def real_tokens(request: Request, rows: int, length: int) -> torch.Tensor:
    """(rows, length) bool: True where a token is no padding."""
    if "none" in (request.option("padding"), request.padding):
        return torch.ones(rows, length, dtype=torch.bool)
    lengths = torch.tensor(row_lengths(rows, length))[:, None]
    positions = torch.arange(length)[None]
    return positions < lengths if request.padding == "right" else positions >= length - lengths


def _vocabulary(request: Request) -> int | None:
    declared = request.option("vocabulary")
    if declared is not None:
        return int(declared)
    found = first_of(request.text, "vocab_size", "src_vocab_size", "n_words", "text_vocab_size")
    return found if isinstance(found, int) else None


def _input_ids(request: Request) -> Leaf | None:
    vocabulary = _vocabulary(request)
    if vocabulary is None:
        return None
    rows, length = request.sizes["batch"], request.sizes["sequence"]
    places = placeholders(request)
    inserted = [sum(place.count for place in places if place.row == row) for row in range(rows)]
    length = request.sizes["sequence"] = length + max(inserted, default=0)
    if request.class_name.endswith(("ForMultipleChoice", "DoubleHeadsModel")):
        ids = torch.cat([_rows_of_ids(request, vocabulary, rows, length, []).unsqueeze(1) for _ in range(CHOICES)], dim=1)
        return Leaf(ids, ("batch", "", "sequence"))
    return Leaf(_rows_of_ids(request, vocabulary, rows, length, places), ("batch", "sequence"))


def _rows_of_ids(request: Request, vocabulary: int, rows: int, length: int, places: list[Placeholder]) -> torch.Tensor:
    """Text between special tokens, with the placeholders of images and sounds after its first word."""
    real = real_tokens(request, rows, length)
    ids = torch.where(real, ordinary_ids(request, vocabulary, (rows, length)), pad_id(request.text))
    eos = first_id(getattr(request.text, "eos_token_id", None))
    for row in range(rows):
        free = real[row].nonzero().flatten()
        if eos is not None and not _continues_text(request):
            ids[row, free[-1]] = eos  # as tokenizers of encoders end a text; CLIP pools there
        at = 1  # after the first word, as a processor expands an image's placeholder
        for place in places:
            if place.row == row:
                for token in place.tokens:
                    ids[row, free[at]] = token
                    at += 1
                at += 1  # a word between two items, which would be one otherwise
    return ids


def _continues_text(request: Request) -> bool:
    """Whether it is a decoder whose text goes on, so that no end of text belongs into it."""
    return "cache" in request.parameters and not request.config.is_encoder_decoder


def _attention_mask(request: Request) -> Leaf | None:
    if "input_ids" in request.made:
        ids = request.made["input_ids"]
        rows, length = ids.tensor.shape[0], ids.tensor.shape[-1]
        mask = real_tokens(request, rows, length).long()
        if len(ids.axes) == 3 and ids.axes[-1] == "sequence":
            mask = mask.unsqueeze(1).repeat(1, ids.tensor.shape[1], 1)
        elif len(ids.axes) == 3:
            rows, length = ids.tensor.shape[:2]
            return Leaf(real_tokens(request, rows, length).long(), ("batch", "sequence"))
        return Leaf(mask, ids.axes)
    return None


def _token_type_ids(request: Request) -> Leaf | None:
    types = first_of(request.text, "type_vocab_size")
    if "input_ids" not in request.made or not isinstance(types, int) or types < 2 or "attention_mask" not in request.made:
        return None
    mask = request.made["attention_mask"]
    length = mask.tensor.shape[-1]
    second = (torch.arange(length) >= length // 2).long()  # two sentences
    return Leaf(second * mask.tensor, mask.axes)


def _mm_token_type_ids(request: Request) -> Leaf | None:
    """1 where an image's features go, 2 for a video's, 3 for a sound's."""
    if "input_ids" not in request.made:
        return None
    ids = request.made["input_ids"]
    kinds = torch.zeros_like(ids.tensor)
    for place in placeholders(request):
        kinds[ids.tensor == place.token] = {"image": 1, "video": 2, "audio": 3}[place.kind]
    return Leaf(kinds, ids.axes)


def _bbox(request: Request) -> Leaf | None:
    """Word boxes: left, top, right, bottom, the second corner beyond the first."""
    if "input_ids" not in request.made:
        return None
    shape = tuple(request.made["input_ids"].tensor.shape)
    corner, size = request.integers(0, 100, (*shape, 2)), request.integers(1, 100, (*shape, 2))
    return Leaf(torch.cat([corner, corner + size], dim=-1), ("batch", "sequence", ""))


def _decoder_input_ids(request: Request) -> Leaf | None:
    if not (request.config.is_encoder_decoder or "decoder_input_ids" in request.required):
        return None
    if request.class_name.endswith(("ForSequenceClassification", "ForQuestionAnswering", "ForTokenClassification")):
        return None  # made from the encoder's ids
    decoder = getattr(request.config, "decoder", None)
    source = decoder if isinstance(decoder, PreTrainedConfig) else request.text
    vocabulary = request.option("decoder_vocabulary") or first_of(source, "vocab_size", "decoder_vocab_size", "tgt_vocab_size")
    if not isinstance(vocabulary, int):
        return None
    shape = (request.sizes["batch"], request.sizes["decoder_sequence"])
    ids = ordinary_ids(request, vocabulary, shape)
    start = first_id(getattr(request.config, "decoder_start_token_id", None))
    start = first_id(getattr(source, "decoder_start_token_id", None)) if start is None else start
    ids[:, 0] = start if start is not None and start < vocabulary else pad_id(source)
    return Leaf(ids, ("batch", "decoder_sequence"))


RULES: dict[str, Callable[[Request], Leaf | None]] = {
    "input_ids": _input_ids,
    "attention_mask": _attention_mask,
    "token_type_ids": _token_type_ids,
    "mm_token_type_ids": _mm_token_type_ids,
    "bbox": _bbox,
    "decoder_input_ids": _decoder_input_ids,
}
