"""docs/report.md says of the rules what the code does."""

from pathlib import Path

from orchestration.report.changes import KINDS

DOCUMENT = Path(__file__).parents[2] / "docs" / "report.md"


def test_the_rules_are_those_of_the_code() -> None:
    text = DOCUMENT.read_text()
    for kind, rule in KINDS.items():
        if kind not in ("new", "gone"):
            assert f"| {kind} | {rule} |" in text
