"""The lists of known issues: what an entry covers, what it has to say, and that a failure which is gone turns its entry's test red."""

import re
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from torch import nn

from exporters import exporter_onnx, known_issues
from exporters.backends import BACKENDS
from exporters.chain import Request, run
from exporters.errors import UsageError
from exporters.exporter_onnx import OnnxExporter
from exporters.known_issues import EXPORT_SKIPS, ONNX_DISABLE_OPTIMIZE, KnownIssue
from exporters.report import Report
from exporters.zoo import catalogue

SCOPES = {"all", *BACKENDS, *(backend for backends in BACKENDS.values() for backend in backends)}

# ── What an entry covers ──────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("issue", "covered"),
    [
        (KnownIssue("all", ""), {("dynamo", True), ("dynamo", False), ("executorch.xnnpack", True), ("executorch.xnnpack", False)}),
        (KnownIssue("executorch", ""), {("executorch.xnnpack", True), ("executorch.xnnpack", False)}),
        (KnownIssue("executorch.xnnpack", ""), {("executorch.xnnpack", True), ("executorch.xnnpack", False)}),
        (KnownIssue("executorch.x", ""), set()),
        (KnownIssue("all", "", dynamic_only=True), {("dynamo", True), ("executorch.xnnpack", True)}),
        (KnownIssue("dynamo", "", dynamic_only=True), {("dynamo", True)}),
    ],
)
def test_scopes(issue: KnownIssue, covered: set[tuple[str, bool]], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(known_issues, "EXPORT_SKIPS", {"Listed": KnownIssue(issue.scope, "why", dynamic_only=issue.dynamic_only)})
    asked = [(backend, dynamic) for backend in ("dynamo", "executorch.xnnpack") for dynamic in (True, False)]
    assert {key for key in asked if known_issues.skip_reason("Listed", key[0], dynamic=key[1]) == "why"} == covered
    assert known_issues.skip_reason("Other", "dynamo", dynamic=True) == ""


def test_the_chain_skips_what_is_listed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(known_issues, "EXPORT_SKIPS", {"BertModel": KnownIssue("onnx", "it has to change")})
    report = run(Request(model="BertModel", home=str(tmp_path)))
    assert (report.outcome, report.reason, report.stages) == ("skipped", "it has to change", [])


class Doubled(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * 2


def test_the_optimizer_leaves_alone_what_is_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    optimized: list[object] = []
    monkeypatch.setattr(exporter_onnx, "optimize", optimized.append)
    OnnxExporter().export(Doubled(), {"x": torch.ones(2)})
    assert len(optimized) == 1
    monkeypatch.setitem(ONNX_DISABLE_OPTIMIZE, "Doubled", KnownIssue("onnx", "a bug", "owner/repo#1"))
    OnnxExporter().export(Doubled(), {"x": torch.ones(2)})
    assert len(optimized) == 1


# ── What an entry has to say ──────────────────────────────────────────────────


def test_entries_are_of_the_zoo_and_give_their_reasons() -> None:
    wrong = [
        name
        for name, issue in EXPORT_SKIPS.items()
        if not (catalogue.has(name) and issue.scope in SCOPES and len(issue.reason.split()) > 5)
    ]
    assert wrong == []


def test_a_bug_of_the_optimizer_names_its_issue() -> None:
    issue = re.compile(r"[\w.-]+/[\w.-]+#\d+")
    assert [name for name, entry in ONNX_DISABLE_OPTIMIZE.items() if not issue.fullmatch(entry.upstream) or not entry.reason] == []


# ── That it is still needed ───────────────────────────────────────────────────


@dataclass(frozen=True)
class Case:
    """An export without its entry, and whether it has to fail."""

    model: str
    backend: str
    dynamic: bool
    fails: bool

    def __str__(self) -> str:
        return f"{self.model}-{self.backend}-{'dynamic' if self.dynamic else 'static'}"


def cases() -> list[Case]:
    """What every entry covers fails; an entry for dynamic axes alone leaves an export that works without them."""
    found = [
        Case(name, backend, dynamic, fails=issue.covers(backend, dynamic=dynamic))
        for name, issue in EXPORT_SKIPS.items()
        for backend in ("dynamo", "onnx", "executorch.xnnpack")
        for dynamic in (True, False)
        if issue.covers(backend, dynamic=True)
    ]
    return found + [Case(name, "onnx", dynamic=True, fails=True) for name in ONNX_DISABLE_OPTIMIZE]


def reached(report: Report, *, dynamic: bool) -> bool:
    return report.error is None and report.outcome == ("verified" if dynamic else "matched")


@pytest.mark.parametrize("case", cases(), ids=str)
def test_an_entry_is_still_needed(case: Case, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(known_issues, "EXPORT_SKIPS", {})
    monkeypatch.setattr(known_issues, "ONNX_DISABLE_OPTIMIZE", {})
    try:
        report = run(Request(model=case.model, backend=case.backend, dynamic=case.dynamic, home=str(tmp_path)))
    except UsageError:  # of inputs that can't be made: none of them a tensor
        worked = False
    else:
        worked = reached(report, dynamic=case.dynamic)
    if case.fails:
        assert not worked, f"{case} works now: delete or narrow its entry in exporters/known_issues.py"
    else:
        assert worked, f"{case} fails too: its entry in exporters/known_issues.py isn't for dynamic axes only"


def test_an_entry_that_is_not_needed_would_be_found(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(known_issues, "EXPORT_SKIPS", {"ViTForImageClassification": KnownIssue("dynamo", "it never failed")})
    with pytest.raises(AssertionError, match="works now"):
        test_an_entry_is_still_needed(Case("ViTForImageClassification", "dynamo", dynamic=True, fails=True), monkeypatch, tmp_path)
