"""The document: what it says of results."""

from exporters.zoo import catalogue
from exporters.zoo.check import _count_generating
from exporters.zoo.zoo_report import document


def test_says_what_failed_and_why() -> None:
    results = {
        "BertModel": {"name": "BertModel", "outcome": "ok", "reason": "", "stage": "", "cpu_seconds": 60.0},
        "BertForMaskedLM": {"name": "BertForMaskedLM", "outcome": "failed", "reason": "a | b", "stage": "forward", "cpu_seconds": 60.0},
        "Sam2VideoModel": {"name": "Sam2VideoModel", "outcome": "failed", "reason": "TypeError", "stage": "forward"},
        "DinatModel": {"name": "DinatModel", "outcome": "skipped", "reason": "not installed: natten"},
    }
    text = document(results)
    assert "| BertForMaskedLM | forward | a \\| b |" in text
    assert "| Sam2VideoModel | forward | takes an inference session" in text  # what is declared says more than what was raised
    assert "- not installed: natten: DinatModel" in text
    assert "2.0 CPU minutes" in text
    assert "| BertModel |" not in text


def test_every_class_that_generates_without_a_cache_is_named_with_its_reason() -> None:
    listed = [
        line for line in document({}).partition("## What generates without a decode variant")[2].splitlines() if line.startswith("| ")
    ]
    names = {line.split(" | ")[0].removeprefix("| "): line.split(" | ")[1].removesuffix(" |") for line in listed[2:]}
    entries = [catalogue.entry(name) for name in catalogue.names()]
    assert set(names) == {entry.name for entry in entries if entry.generates and not entry.decodes}
    assert [name for name, reason in names.items() if not reason.strip()] == []


def test_the_share_that_decodes_is_told_over_all_that_generate() -> None:
    """Half of two: one decodes, one has nothing to decode from; a third is skipped."""
    ok, skipped = {"outcome": "ok", "reason": ""}, {"outcome": "skipped", "reason": "not installed: timm"}
    results = {"LlamaForCausalLM@decode": ok, "FastVlmForConditionalGeneration": skipped}
    counted = _count_generating(results, ["LlamaForCausalLM", "OpenAIGPTLMHeadModel", "FastVlmForConditionalGeneration", "BertModel"])
    assert counted == {"ok": 1, "skipped": 1, "all": 3, "share": 0.5}
