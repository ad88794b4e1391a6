"""The document: what it says of results."""

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
