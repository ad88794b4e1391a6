"""The tokenizer of last resort: the longest entry of a vocabulary at every position."""

from pathlib import Path

import pytest

from exporters.zoo.inputs import SETS
from exporters.zoo.texts import CORPORA, VocabularyTokenizer, text_inputs

VOCABULARY = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "C", "Cl", "l", "=", "O"]


def test_takes_the_longest_entry_and_pads_on_the_right() -> None:
    encoded = VocabularyTokenizer(VOCABULARY)(["ClC=O", "C"])
    assert encoded["input_ids"].tolist() == [[2, 5, 4, 7, 8, 3], [2, 4, 3, 0, 0, 0]]
    assert encoded["attention_mask"].tolist() == [[1, 1, 1, 1, 1, 1], [1, 1, 1, 0, 0, 0]]


def test_what_it_does_not_know_is_unknown_and_passed_over() -> None:
    assert VocabularyTokenizer(VOCABULARY)(["C?O"])["input_ids"].tolist() == [[2, 4, 1, 8, 3]]


def test_needs_a_vocabulary_with_special_tokens(tmp_path: Path) -> None:
    assert VocabularyTokenizer.from_folder(tmp_path) is None
    (tmp_path / "vocab.txt").write_text("a\nb\n")
    assert VocabularyTokenizer.from_folder(tmp_path) is None


def test_no_tokenizer_that_speaks_gives_no_text(tmp_path: Path) -> None:
    (tmp_path / "vocab.txt").write_text("\n".join(VOCABULARY[:6]))
    assert text_inputs(tmp_path, 100, frozenset({"input_ids"}), 512) is None


@pytest.mark.parametrize("language", CORPORA)
def test_corpora_have_a_text_of_each_batch_size(language: str) -> None:
    assert [len(CORPORA[language][name]) for name in SETS] == [2, 3, 1]
