"""Whether a workaround is still needed: each stage that it had a part in made again without it, and what comes out compared.

A *partition* is a (backend, model) of the store whose ledger names the workaround. Its chain runs again from the first stage that the
workaround had a part in, from the artifact that this stage was made from, without it. What that is compared with is the stored export, or,
where anything has changed since or time is what counts, another run with everything. The rules, first match wins:

1. without it the export gets less far, or further: **needed**, or **harmful**. Further is a higher outcome, then a later stage failing,
   then more input sets with the right numbers.
2. it fails at the same place either way: **unclear**, as where a run can't be made.
3. the artifact is the same, byte for byte: **harmless**.
4. without it the largest difference to eager grows tenfold, beyond `SMALL_DIFFERENCE`: **needed**; shrinks so: **harmful**.
5. without it the artifact is larger by more than `MORE_COST` (bytes, nodes, planned memory, operators not delegated): **needed**.
6. otherwise **harmless**, and what differs is told.

A workaround whose docstring says `Cost: … the program is the same` exists for time: where it would be harmless, it is **needed** if the
stages take `MORE_CPU` more CPU without it.

Over all partitions a workaround is harmful if it is so for one, else needed if it is so for one, else **obsolete** if it is harmless for
each, harmless if it is so for some. What was exported is all that this can speak of: `untried` names what the docstring says it was seen
in that wasn't.
"""

import difflib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from pydantic import BaseModel, Field, ValidationError

from exporters.backends import STAGES, family_of
from exporters.code_index import CodeIndex, Workaround
from exporters.errors import UsageError
from exporters.ledger import Reference
from exporters.report import OUTCOMES, Report, StageReport
from exporters.store import Store
from exporters.zoo import catalogue

Verdict = Literal["needed", "harmful", "harmless", "unclear"]
Overall = Literal["needed", "harmful", "obsolete", "harmless", "unclear", "untouched"]

# CPU seconds of one and the same stage vary by 2 or 3 % between runs on a busy machine
MORE_CPU = 1.05
# sizes don't vary; what is below this is no reason to keep a workaround
MORE_COST = 1.02
# differences to eager below this are rounding
SMALL_DIFFERENCE = 1e-5
MUCH = 10.0

# operators whose number changed most are told, a stage
_TOLD = 3

# why nothing is known of a partition that nobody has run yet
NOT_MEASURED = "not measured yet"

_SAME_PROGRAM = "the program is the same"
# costs of the last stage: what a reader calls them, and where a report has them
_COSTS = {
    "bytes": lambda stage: stage.bytes,
    "nodes": lambda stage: stage.nodes,
    "planned bytes": lambda stage: stage.details.get("planned_bytes", 0),
    "operators not delegated": lambda stage: stage.details.get("not_delegated_operators", 0),
}


class Difference(BaseModel):
    """One measurement, with the workaround and without it."""

    what: str
    with_it: float | str
    without_it: float | str

    def __str__(self) -> str:
        return f"{self.what} {_number(self.with_it)} -> {_number(self.without_it)}"


class PartitionResult(BaseModel):
    """What became of one partition without the workaround.

    Attributes:
        stage: where both runs began.
        why: the rule that decided, in words.
        identical: whether the last artifacts are the same, byte for byte.
        differences: what differs, of the outcome, the numbers and the costs.
        cpu_seconds: of the stages made again, with it and without it.
    """

    model: str
    backend: str
    stage: str
    verdict: Verdict
    why: str
    outcomes: tuple[str, str] = ("", "")
    identical: bool = False
    differences: list[Difference] = Field(default_factory=list)
    cpu_seconds: tuple[float, float] = (0.0, 0.0)


class Ablation(BaseModel):
    """The verdict on one workaround.

    Attributes:
        untried: what its `Seen in:` names and the store has no touched export of.
        next: what to do where there is no verdict, or one that asks for something.
    """

    workaround: str
    kind: str
    verdict: Overall
    partitions: list[PartitionResult] = Field(default_factory=list)
    untried: list[str] = Field(default_factory=list)
    next: str = ""


# ── Which workaround ──────────────────────────────────────────────────────────


def find_workaround(name: str, index: CodeIndex) -> Workaround:
    """The registered workaround of this name; the scope before the colon may be left out where there is only one.

    Raises:
        UsageError: there is none, with near matches, or several.
    """
    known = {each.name: each for each in index.workarounds}
    if name in known:
        return known[name]
    same = [each for each in index.workarounds if each.name.partition(":")[2] == name]
    if len(same) == 1:
        return same[0]
    if same:
        raise UsageError(f"{name} is registered in several scopes", next=f"say which: {', '.join(each.name for each in same)}")
    near = difflib.get_close_matches(name, known, n=3, cutoff=0.4)
    if ":" not in name:
        by_function = {each.partition(":")[2]: each for each in known}
        near = [by_function[each] for each in difflib.get_close_matches(name, by_function, n=3, cutoff=0.5)]
    hint = f"did you mean {' or '.join(near)}?" if near else "`zooport workarounds` lists them"
    raise UsageError(f"no workaround called {name!r} is registered", next=hint)


def exists_for_time(workaround: Workaround) -> bool:
    """Whether its docstring says that all it changes is how long an export takes."""
    return _SAME_PROGRAM in workaround.fields.get("Cost", "")


# ── Which partitions ──────────────────────────────────────────────────────────


@dataclass
class Partition:
    """An export in the store.

    Attributes:
        name: under which the store keeps it.
        references: by stage, as far as the chain got.
        verified: the stored report, None where nothing was verified.
    """

    backend: str
    name: str
    references: dict[str, Reference] = field(default_factory=dict)
    verified: Report | None = None

    @property
    def family(self) -> str:
        return family_of(self.backend)

    @property
    def model(self) -> str:
        """As it was asked for: a class of the zoo, a checkpoint's name or folder."""
        return next(iter(self.references.values())).model

    def first_stage(self, workaround: str) -> str | None:
        """The first stage in which a workaround did something."""
        return next((stage for stage in STAGES[self.family] if workaround in self._fired(stage)), None)

    def _fired(self, stage: str) -> list[str]:
        reference = self.references.get(stage)
        return reference.record.deeds.fired if reference is not None else []

    def promise(self, workaround: Workaround) -> tuple[bool, bool, float]:
        """Sorts first what is most likely to need a workaround at the least cost: what it was seen in, what is verified, what was quick."""
        stages = STAGES[self.family]
        first = self.first_stage(workaround.name) or stages[0]
        again = [self.references[stage] for stage in stages[stages.index(first) :] if stage in self.references]
        seen = self.model in workaround.fields.get("Seen in", "")
        verified = self.verified is not None and self.verified.outcome == "verified"
        return not seen, not verified, sum(each.report.cpu_seconds for each in again)

    def upstream(self, stage: str) -> str | None:
        """Digest of the artifact that a stage was made from; None for a trace."""
        return None if stage == STAGES[self.family][0] else str(self.references[stage].parts["input"])

    def report_from(self, stage: str) -> Report | None:
        """The stored export as a run from `stage` on would tell it; None if it isn't whole."""
        stages = STAGES[self.family]
        references = [self.references.get(each) for each in stages]
        whole = [each for each in references if each is not None]
        if self.verified is None or [each.digest for each in whole] != [each.digest for each in self.verified.stages]:
            return None
        made = [each.report for each in whole[stages.index(stage) :]]
        cpu_seconds = round(sum(each.cpu_seconds for each in made), 3)
        return self.verified.model_copy(update={"stages": made, "cpu_seconds": cpu_seconds})

    def options(self) -> dict[str, Any]:
        """What the chain was asked for, as far as its stages read it."""
        read: dict[str, Any] = {}
        for reference in self.references.values():
            read |= reference.parts["config"]
        return read


def partitions(store: Store) -> tuple[list[Partition], list[str]]:
    """The exports in a store, and in words what is passed over: references that another version wrote."""
    found: dict[tuple[str, str], Partition] = {}
    passed_over = []
    reports: dict[tuple[str, str], Report] = {}
    for parts, content in (each for part in ("verification", *STAGES) for each in store.refs(part)):
        match parts:
            case ("verification", backend, name):
                if (report := _report(content)) is not None:
                    reports[backend, name] = report
            case (family, stage, backend, name) if stage in STAGES.get(family, ()):
                try:
                    reference = Reference.model_validate(content)
                except ValidationError:
                    passed_over.append(f"{backend}, {name}, {stage}: another version of zooport made it; export it again")
                else:
                    found.setdefault((backend, name), Partition(backend, name)).references[stage] = reference
    for key, partition in found.items():
        partition.verified = reports.get(key)
    return list(found.values()), passed_over


def _report(content: Mapping[str, Any] | None) -> Report | None:
    try:
        return Report.model_validate((content or {}).get("report"))
    except ValidationError:
        return None


def touched(workaround: Workaround, among: Iterable[Partition], models: Sequence[str] = ()) -> list[Partition]:
    """The partitions in which a workaround did something; of `models` only, where some are named."""
    return [each for each in among if (not models or {each.name, each.model} & {*models}) and each.first_stage(workaround.name)]


# ── One partition ─────────────────────────────────────────────────────────────


def judge(workaround: Workaround, stage: str, with_it: Report, without_it: Report) -> PartitionResult:
    """Compare two runs from the same stage by the rules of this module."""
    identical = _final_digest(with_it) is not None and _final_digest(with_it) == _final_digest(without_it)
    verdict, why = _rule(workaround, with_it, without_it, identical=identical)
    return PartitionResult(
        model=with_it.model,
        backend=with_it.backend,
        stage=stage,
        verdict=verdict,
        why=why,
        outcomes=(with_it.outcome, without_it.outcome),
        identical=identical,
        differences=list(_differences(with_it, without_it)),
        cpu_seconds=(with_it.cpu_seconds, without_it.cpu_seconds),
    )


def _rule(workaround: Workaround, with_it: Report, without_it: Report, *, identical: bool) -> tuple[Verdict, str]:
    before, after = _reached(with_it), _reached(without_it)
    if before != after:
        less = after < before
        return ("needed" if less else "harmful"), f"{_ending(without_it)} without it, {_ending(with_it)} with it"
    if with_it.outcome == "failed":
        return "unclear", f"{_ending(with_it)}, with it and without it"
    if identical:
        return _rule_of_time(workaround, with_it, without_it, "the same artifact without it, byte for byte")
    was, now = _worst(with_it) or 0.0, _worst(without_it) or 0.0
    if max(was, now) > SMALL_DIFFERENCE and max(was, now) > MUCH * min(was, now):
        return ("needed" if now > was else "harmful"), f"without it the difference to eager is {now:.1e}, with it {was:.1e}"
    last, last_without = with_it.stages[-1], without_it.stages[-1]
    for what, cost in _COSTS.items():
        if cost(last_without) > MORE_COST * cost(last):
            return "needed", f"without it {what}: {_number(cost(last_without))}, with it {_number(cost(last))}"
    return _rule_of_time(workaround, with_it, without_it, f"{with_it.outcome} without it too")


def _rule_of_time(workaround: Workaround, with_it: Report, without_it: Report, result: str) -> tuple[Verdict, str]:
    if not exists_for_time(workaround):
        return "harmless", result
    share = without_it.cpu_seconds / with_it.cpu_seconds if with_it.cpu_seconds else 1.0
    took = f"{result}; in {without_it.cpu_seconds:.1f} s of CPU, with it in {with_it.cpu_seconds:.1f} s"
    return ("needed" if share > MORE_CPU else "harmless"), took


def _reached(report: Report) -> tuple[int, int, int]:
    """How far an export got: its outcome, then the number of stages that were made and of input sets whose numbers are right."""
    return OUTCOMES.index(report.outcome), len(report.stages), sum(row.ok for row in report.parity)


def _ending(report: Report) -> str:
    error = report.error
    return report.outcome if error is None else f"{report.outcome} ({error.stage}: {error.message})"


def _final_digest(report: Report) -> str | None:
    """The digest of the last stage's artifact; None if the chain ended before it."""
    made = [stage for stage in report.stages if stage.stage == STAGES[family_of(report.backend)][-1]]
    return made[0].digest if made else None


def _worst(report: Report) -> float | None:
    """The largest difference to eager over all input sets; None where none was measured."""
    return max((row.max_abs_diff for row in report.parity if row.max_abs_diff is not None), default=None)


def _differences(with_it: Report, without_it: Report) -> Iterator[Difference]:
    if with_it.outcome != without_it.outcome:
        yield Difference(what="outcome", with_it=with_it.outcome, without_it=without_it.outcome)
    was, now = _worst(with_it), _worst(without_it)
    if was is not None and now is not None and was != now:
        yield Difference(what="max abs diff", with_it=was, without_it=now)
    for before, after in zip(with_it.stages, without_it.stages, strict=False):
        yield from _stage_differences(before, after)


def _stage_differences(before: StageReport, after: StageReport) -> Iterator[Difference]:
    for what, cost in _COSTS.items():
        if cost(before) != cost(after):
            yield Difference(what=f"{before.stage}: {what}", with_it=cost(before), without_it=cost(after))
    changes = {name: abs(after.operators.get(name, 0) - before.operators.get(name, 0)) for name in {*before.operators, *after.operators}}
    for name in sorted(changes, key=lambda name: (-changes[name], name))[:_TOLD]:
        if changes[name]:
            yield Difference(what=f"{before.stage}: {name}", with_it=before.operators.get(name, 0), without_it=after.operators.get(name, 0))


def _number(value: float | str) -> str:
    if isinstance(value, str):
        return value
    return f"{value:.1e}" if 0 < abs(value) < 0.01 else f"{value:.0f}"


# ── All of them ───────────────────────────────────────────────────────────────


def conclude(workaround: Workaround, results: Sequence[PartitionResult], *, all_tried: bool = True) -> Ablation:
    """The verdict over all partitions.

    Args:
        all_tried: whether these are all that the workaround touches; obsolete is said of no fewer.
    """
    verdicts = {result.verdict for result in results}
    overall: Overall
    if not results:
        overall = "untouched"
    elif "harmful" in verdicts:
        overall = "harmful"
    elif "needed" in verdicts:
        overall = "needed"
    elif "harmless" in verdicts:
        overall = "obsolete" if all_tried and "unclear" not in verdicts else "harmless"
    else:
        overall = "unclear"
    untried = _untried(workaround, {result.model for result in results})
    return Ablation(
        workaround=workaround.name,
        kind=workaround.kind,
        verdict=overall,
        partitions=list(results),
        untried=untried,
        next=_next(workaround, overall, untried),
    )


def _untried(workaround: Workaround, models: set[str]) -> list[str]:
    """Models and cases that the docstring names and that weren't tried; the words themselves where they name none."""
    text = workaround.fields.get("Seen in", "")
    named = [name for name in dict.fromkeys(re.findall(r"[A-Z]\w+(?:@\w+)?", text)) if catalogue.has(name)]
    named += re.findall(r"[\w/]+\.py", text)
    if not named and text and not text.startswith("every model"):
        return [text]
    return [name for name in named if not any(model == name or model.endswith(f"/{name}") for model in models)]


def _next(workaround: Workaround, overall: Overall, untried: Sequence[str]) -> str:
    models = [name for name in untried if catalogue.has(name) or name.endswith(".py")]
    scope = workaround.scope
    backend = {"onnx": "onnx", "dynamo": "dynamo", "executorch": "executorch.xnnpack"}.get(scope, scope)
    match overall:
        case "untouched" if models:
            return f"export what it was seen in: zooport export {models[0]} --backend {backend}"
        case "untouched":
            return f"no export has it; export a model in which it does something to {backend} and try again"
        case "obsolete" if untried:
            return f"before deleting it, look at what it was seen in and wasn't tried: {', '.join(untried)}; its canary test may know"
        case "obsolete":
            return f"unless its canary test fails without it, delete it and its tests: {workaround.file}:{workaround.line}"
        case "harmful":
            return f"mend it, or narrow what it applies to: {workaround.file}:{workaround.line}"
        case "unclear":
            return "see why, mend or export again what it touches, and try once more"
    return ""
