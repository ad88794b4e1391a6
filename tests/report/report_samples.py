"""Last reports of every kind of end."""

from exporters.report import ErrorReport, Parity, Report, StageReport

NOW = 1_800_000_000.0
DAY = 86_400.0

STAGE = StageReport(stage="traced_program", cpu_seconds=2.0, peak_rss_mb=600, bytes=100_000)


def verified(model: str, backend: str = "onnx", *, cpu: float = 2.0, size: int = 100_000, diff: float = 1e-7, **fields: object) -> Report:
    stages = [StageReport(stage=name, cpu_seconds=cpu, peak_rss_mb=600, bytes=size) for name in ("traced_program", "ir_fixed_model")]
    parity = [Parity(inputs="sample", ok=True, max_abs_diff=diff)]
    return Report(model=model, backend=backend, outcome="verified", stages=stages, parity=parity, **fields)


def failed(model: str, backend: str = "onnx", *, stage: str = "lowered_onnx", message: str = "no function for aten.median") -> Report:
    error = ErrorReport(stage=stage, type="DispatchError", message=message)
    return Report(model=model, backend=backend, outcome="failed", stages=[STAGE.model_copy()], error=error)


def ran(model: str, backend: str = "onnx", *, message: str = "sample: logits: 3 of 10 values beyond the bound, the worst by 0.5") -> Report:
    error = ErrorReport(stage="verification", type="Mismatch", message=message)
    return verified(model, backend, diff=0.5).model_copy(update={"outcome": "ran", "error": error})


def skipped(model: str, backend: str = "onnx", reason: str = "not installed: timm") -> Report:
    return Report(model=model, backend=backend, outcome="skipped", reason=reason)
