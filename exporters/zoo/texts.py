"""Real text for checkpoints, through the tokenizer that came with them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import torch

from exporters.zoo.request import SETS, Leaf

# Short, so that a run is quick; of several lengths, so that rows need padding; more and longer ones in `other`.
_ENGLISH: dict[str, list[str]] = {
    "inputs": ["The library opens at nine and closes late on Fridays.", "Where can I leave my bicycle?"],
    "other": [
        "Rain is expected in the north tomorrow, while the southern valleys stay dry until the end of the week.",
        "She sold the old piano to a school.",
        "Is there a later train that still connects to the ferry?",
    ],
    "batch_1": ["Both recipes need fresh basil and a little patience."],
}
_REACTIONS: dict[str, list[str]] = {
    "inputs": ["CC(=O)O.OCC>>CC(=O)OCC.O", "C1=CC=CC=C1.ClCl>>Clc1ccccc1"],
    "other": [
        "O=C(O)c1ccccc1O.CC(=O)OC(C)=O>>CC(=O)Oc1ccccc1C(=O)O",
        "CCBr.[Na]C#N>>CCC#N",
        "Nc1ccccc1.CC(=O)Cl>>CC(=O)Nc1ccccc1",
    ],
    "batch_1": ["OB(O)c1ccccc1.Brc1ccncc1>>c1ccc(-c2ccncc2)cc1"],
}
CORPORA = {"English": _ENGLISH, "reaction SMILES": _REACTIONS}
_MOST_UNKNOWN = 0.1  # share of unknown tokens above which a text isn't in the tokenizer's language
_SPECIALS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]")


class Tokenizer(Protocol):
    """The part of a transformers tokenizer that is needed."""

    @property
    def unk_token_id(self) -> int | None: ...

    def __call__(self, text: Any, **options: Any) -> Mapping[str, Any]: ...


class VocabularyTokenizer:
    """The longest entry of a `vocab.txt` at every position, between `[CLS]` and `[SEP]`.

    For checkpoints whose own tokenizer class lives in another package, as that of chemistry models does: their
    vocabularies are the pieces of the language itself.
    """

    def __init__(self, vocabulary: Sequence[str]) -> None:
        self._ids = {token: index for index, token in enumerate(vocabulary)}
        self._longest = max(map(len, self._ids))
        self._pad, self._unknown, self._first, self._last = (self._ids[token] for token in _SPECIALS)

    @property
    def unk_token_id(self) -> int:
        return self._unknown

    @classmethod
    def from_folder(cls, folder: Path) -> VocabularyTokenizer | None:
        """The tokenizer of a folder's `vocab.txt`; None without one or where it lacks BERT's special tokens."""
        file = folder / "vocab.txt"
        if not file.is_file():
            return None
        vocabulary = file.read_text(encoding="utf-8").splitlines()
        return cls(vocabulary) if set(_SPECIALS) <= set(vocabulary) else None

    def _encode(self, text: str) -> list[int]:
        ids = [self._first]
        start = 0
        while start < len(text):
            for end in range(min(len(text), start + self._longest), start, -1):
                if text[start:end] in self._ids:
                    break
            ids.append(self._ids.get(text[start:end], self._unknown))
            start = end
        return [*ids, self._last]

    def __call__(self, text: Sequence[str], **options: Any) -> dict[str, torch.Tensor]:
        """`input_ids` and `attention_mask` of `text`, (rows, longest) int64, padded on the right."""
        rows = [self._encode(line) for line in text]
        length = max(map(len, rows))
        return {
            "input_ids": torch.tensor([row + [self._pad] * (length - len(row)) for row in rows]),
            "attention_mask": torch.tensor([[1] * len(row) + [0] * (length - len(row)) for row in rows]),
        }


def _own_tokenizer(folder: Path) -> Tokenizer | None:
    """The tokenizer that transformers finds in the folder, made fit for batches; None where it finds none that works."""
    from transformers import AutoTokenizer

    try:
        tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    except Exception:  # tokenizers of every age and package raise whatever they like; without one, inputs come from the rules
        return None
    return tokenizer if fit_for_batches(tokenizer) else None


def fit_for_batches(tokenizer: Any) -> bool:
    """Have a transformers tokenizer pad on the right; False where it has nothing to pad with."""
    if tokenizer.pad_token_id is None:
        if tokenizer.eos_token is None:
            return False
        tokenizer.pad_token = tokenizer.eos_token
    # left padding makes positions that attend to nothing, whose values are nobody's to compare
    tokenizer.padding_side = "right"
    return True


def language_of(tokenizer: Tokenizer, vocabulary: int) -> tuple[str, Mapping[str, list[str]]] | None:
    """The first of `CORPORA` that the tokenizer knows the words of, and the model the ids; None where it knows none."""
    return next((found for found in CORPORA.items() if _speaks(tokenizer, found[1], vocabulary)), None)


def _speaks(tokenizer: Tokenizer, corpus: Mapping[str, list[str]], vocabulary: int) -> bool:
    """Whether the tokenizer knows the words of `corpus` and the model knows its ids."""
    ids = [token for texts in corpus.values() for text in texts for token in tokenizer([text])["input_ids"][0]]
    ids = [int(token) for token in ids]
    unknown = sum(token == tokenizer.unk_token_id for token in ids) / len(ids)
    return max(ids) < vocabulary and unknown <= _MOST_UNKNOWN


def text_inputs(folder: Path, vocabulary: int, parameters: frozenset[str], longest: int) -> tuple[dict[str, dict[str, Leaf]], str] | None:
    """Tokenized text for every input set, from a checkpoint's own tokenizer or vocabulary.

    Args:
        folder: the checkpoint.
        vocabulary: ids that the model knows.
        parameters: of forward; whatever else the tokenizer makes is left out.
        longest: length that texts are cut to.

    Returns:
        The leaves by set, each (batch, sequence) int64, and where they come from; None where no tokenizer speaks any of the corpora.
    """
    makers: list[tuple[str, Callable[[Path], Tokenizer | None]]] = [
        ("its tokenizer", _own_tokenizer),
        ("its vocab.txt", VocabularyTokenizer.from_folder),
    ]
    for origin, make in makers:
        tokenizer = make(folder)
        if tokenizer is None:
            continue
        spoken = language_of(tokenizer, vocabulary)
        if spoken is None:
            continue
        language, corpus = spoken
        leaves = {}
        for name in SETS:
            encoded = tokenizer(corpus[name], padding=True, return_tensors="pt")
            leaves[name] = {key: Leaf(value[:, :longest], ("batch", "sequence")) for key, value in encoded.items() if key in parameters}
        return leaves, f"{language} through {origin}"
    return None


def decoder_inputs(folder: Path, config: Any, longest: int) -> tuple[dict[str, dict[str, Leaf]], str] | None:
    """What a decoder has written so far, for every input set: a checkpoint's own tokens of real text, begun as generation begins.

    Returns:
        `decoder_input_ids` by set, (batch, sequence) int64, and where they come from; None where no tokenizer speaks any of the corpora.
    """
    found = text_inputs(folder, config.vocab_size, frozenset({"input_ids"}), longest)
    if found is None:
        return None
    given, source = found
    start = config.decoder_start_token_id
    leaves = {}
    for name, made in given.items():
        ids = made["input_ids"].tensor
        if start is not None and not ids[:, 0].eq(start).all():
            ids = torch.cat([torch.full_like(ids[:, :1], start), ids[:, : longest - 1]], dim=1)
        leaves[name] = {"decoder_input_ids": Leaf(ids, ("batch", "decoder_sequence"))}
    return leaves, source
