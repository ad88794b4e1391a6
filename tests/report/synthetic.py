"""A made-up fleet: real names of the zoo, eight weeks of reports, with what goes wrong in a real one. The same for the same seed."""

import random
from collections.abc import Iterator

from exporters.backends import STAGES, family_of
from exporters.report import Deeds, ErrorReport, Parity, Report, StageReport
from exporters.zoo import catalogue

DAY = 86_400.0
BACKENDS = ("dynamo", "onnx", "executorch.xnnpack")
# stage, type, message; {n} is a number of the model's own, {model} its name
CAUSES: dict[str, tuple[tuple[str, str, str], ...]] = {
    "dynamo": (
        (
            "traced_program",
            "GuardOnDataDependentSymNode",
            "Could not guard on data-dependent expression Eq(u{n}, 0) (unhinted: Eq(u{n}, 0))",
        ),
        ("traced_program", "Unsupported", "{model}.forward builds a list whose length depends on a tensor, in modeling.py:{n}"),
        ("verification", "RuntimeError", "Expected input at 'input_ids'.shape[1] to be <= {n}, but got 1{n}"),
    ),
    "onnx": (
        (
            "traced_program",
            "GuardOnDataDependentSymNode",
            "Could not guard on data-dependent expression Eq(u{n}, 0) (unhinted: Eq(u{n}, 0))",
        ),
        ("lowered_onnx", "DispatchError", "No ONNX function found for <OpOverload(op='aten.median', overload='dim')>, node median_{n}"),
        (
            "lowered_onnx",
            "DispatchError",
            "No ONNX function found for <OpOverload(op='prims.lgamma', overload='default')>, node lgamma_{n}",
        ),
        ("verification", "Mismatch", "sample: logits: {n} of 9216 values beyond the bound, the worst by 0.00{n}"),
        ("decomposed_graph", "SIGKILL", "the export's process was ended by SIGKILL: Killed"),
    ),
    "executorch.xnnpack": (
        (
            "traced_program",
            "GuardOnDataDependentSymNode",
            "Could not guard on data-dependent expression Eq(u{n}, 0) (unhinted: Eq(u{n}, 0))",
        ),
        ("pte", "RuntimeError", "the runtime has no kernel for aten::cummax.out, aten::cummin.out"),
        ("pte", "ValueError", "Cannot evaluate a finite upper bound for symbolic expression u{n} (int_oo) and no trace hint is available."),
        ("verification", "RuntimeError", "method->execute() failed with error 0x12"),
        ("pte", "Timeout", "the export's process was stopped after 1800 s: lowering {model}"),
    ),
}
_FAILING = {"dynamo": 0.07, "onnx": 0.12, "executorch.xnnpack": 0.33}
_BASE = {"traced_program": 2.4, "decomposed_graph": 1.1, "lowered_onnx": 3.0, "ir_fixed_model": 1.6, "pte": 9.0}
_DEEDS = ("onnx:_patch_where", "dynamo:_patch_attention", "onnx:_aten_sort_stable", "executorch:_fix_dim_order", "onnx:_fix_ir_reshape")


def weeks(now: float, *, models: int = 2_000, count: int = 8, seed: int = 5) -> Iterator[tuple[float, list[Report]]]:
    """The moment and all last reports of each week, the oldest first and `now` last."""
    dice = random.Random(seed)
    names = catalogue.names()[:models]
    names += catalogue.names(internal=True)[: models - len(names)]
    causes: dict[tuple[str, str], int | None] = {}
    for name in names:
        shared = dice.random() < 0.03  # can't be traced, for any backend
        for backend in BACKENDS:
            failing = dice.random() < _FAILING[backend] * 1.25
            causes[backend, name] = 0 if shared else dice.randrange(1, len(CAUSES[backend])) if failing else None
    sizes = {name: dice.lognormvariate(0, 0.6) for name in names}
    for week in range(count):
        last = week == count - 1
        for key, cause in causes.items():
            chance = dice.random()
            if cause is None and chance < 0.0025:
                causes[key] = dice.randrange(1, len(CAUSES[key[0]]))
            elif cause is not None and chance < 0.035:
                causes[key] = None
        if last:  # an upgrade takes a translation away
            for name in dice.sample([name for name in names if causes["onnx", name] is None], 14):
                causes["onnx", name] = 1
        at = now - (count - 1 - week) * 7 * DAY
        present = names if week > 2 else names[: int(0.96 * len(names))]
        yield (
            at,
            [
                _report(name, backend, causes[backend, name], sizes[name], at, slow=last and position % 397 == 0)
                for position, name in enumerate(present)
                for backend in BACKENDS
                if position % 50 != 49 or backend != "executorch.xnnpack"
            ],
        )


def _report(name: str, backend: str, cause: int | None, size: float, at: float, *, slow: bool) -> Report:
    own = random.Random(f"{name} {backend}")
    report = Report(model=name, backend=backend, outcome="verified", at=at - own.uniform(0, 7200), run="synthetic")
    if own.random() < 0.012:
        return report.model_copy(update={"outcome": "skipped", "reason": "not installed: Pillow and timm"})
    stopped, kind, message = ("", "", "") if cause is None else CAUSES[backend][cause]
    for stage in STAGES[family_of(backend)]:
        if stage == stopped:
            break
        seconds = _BASE[stage] * size * own.uniform(0.8, 1.3) * (2.6 if slow and stage in ("traced_program", "pte") else 1)
        deeds = Deeds(called={own.choice(_DEEDS): own.randrange(1, 20)})
        report.stages.append(
            StageReport(
                stage=stage,
                cpu_seconds=seconds,
                peak_rss_mb=500 + 180 * size * own.uniform(0.8, 1.3),
                bytes=int(250_000 * size * own.uniform(0.5, 2) * (4 if stage in ("ir_fixed_model", "pte") else 1)),
                deeds=deeds,
                fired=deeds.fired,
            )
        )
    difference = own.uniform(1e-8, 4e-6) * (30 if slow else 1)
    if not stopped or stopped == "verification":
        ok = not stopped
        report.parity = [Parity(inputs="sample", ok=ok, max_abs_diff=difference if ok else 0.0017)]
    if stopped:
        report.outcome = "failed" if stopped != "verification" else "ran" if kind == "Mismatch" else "loaded"
        text = message.format(n=own.randrange(2, 90), model=name)
        report.error = ErrorReport(stage=stopped, type=kind, message=text, next="look into it")
    return report
