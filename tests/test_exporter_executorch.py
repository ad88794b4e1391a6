"""The stages of `ExecutorchExporter`: what each takes, gives back, and says about itself."""

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from exporters import exporter_executorch
from exporters.configs import ExecutorchConfig
from exporters.errors import ExportError, MissingBackend, UnknownBackend
from exporters.executorch_bounds import GROWTH
from exporters.exporter_executorch import ExecutorchExporter, Target, prepare_for_cuda, target_of

DIM = torch.export.Dim


class Small(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.linear = nn.Linear(4, 8)

    def forward(self, x: torch.Tensor, scale: float = 1.0) -> dict[str, torch.Tensor]:
        y = torch.relu(self.linear(x)) * scale
        return {"y": y, "total": y.sum(-1)}


def inputs(batch: int = 2) -> dict[str, torch.Tensor]:
    return {"x": torch.randn(batch, 4, generator=torch.Generator().manual_seed(batch))}


def dynamic(**options: Any) -> ExecutorchConfig:
    return ExecutorchConfig(dynamic=True, dynamic_shapes={"x": {0: DIM.AUTO}}, **options)


def assert_right(exported: Any, model: nn.Module, given: dict[str, torch.Tensor]) -> None:
    for name, expected in model(**given).items():
        torch.testing.assert_close(exported(**given)[name], expected, atol=1e-5, rtol=1e-4)


# ── Stages ────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("backend", ["xnnpack", "portable"])
def test_called_like_the_model(backend: str) -> None:
    model = Small()
    exported = ExecutorchExporter().export(model, inputs(), config=dynamic(backend=backend))
    for batch in (2, 5, 1):
        assert_right(exported, model, inputs(batch))


def test_export_is_the_composition_of_its_stages() -> None:
    exporter, model, config = ExecutorchExporter(), Small(), dynamic()
    whole = exporter.export(model, inputs(), config=config)
    traced = exporter.trace(*exporter.prepare(model, inputs(), config=config), config=config)
    decomposed = exporter.decompose(traced)
    assert [stage.stage for stage in whole.stages] == [traced.stage, decomposed.stage, "pte"]
    assert whole.program.buffer == exporter.lower(decomposed, config=config).manager.buffer
    # a traced program is decomposed on the way, and a stage may be lowered twice
    assert whole.program.buffer == exporter.lower(traced, config=config).manager.buffer
    assert whole.program.buffer == exporter.lower(decomposed).manager.buffer


def test_what_is_told_about_a_program() -> None:
    stage = ExecutorchExporter().export(Small(), inputs(), config=dynamic(max_size=8)).stages[-1]
    details = stage.details
    assert details["methods"] == ["forward"]
    assert details["delegates"] == 1
    assert details["delegated"] == {"aten.linear.default": 1, "aten.relu.default": 1} | details["delegated"]
    assert details["not_delegated"] == {"aten.sum.dim_IntList": 1} | details["not_delegated"]
    assert details["delegated_operators"] == sum(details["delegated"].values())
    # input (8, 4), result (8, 8), sums (8)
    assert 8 * (4 + 8 + 1) * 4 <= details["planned_bytes"] <= 4096
    assert sum(stage.operators().values()) == details["delegated_operators"] + details["not_delegated_operators"]


def test_portable_delegates_nothing() -> None:
    details = ExecutorchExporter().export(Small(), inputs(), config=dynamic(backend="portable")).stages[-1].details
    assert details["delegates"] == 0
    assert details["delegated"] == {}


def test_saved_program_holds_its_weights(tmp_path: Path) -> None:
    model = Small()
    exported = ExecutorchExporter().export(model, inputs(), config=dynamic())
    path = exported.save(tmp_path / "out")
    assert path == tmp_path / "out" / "model.pte"
    from exporters.runtimes import ExecutorchRuntime

    expected = model(**inputs(3))
    torch.testing.assert_close(ExecutorchRuntime(path).run([inputs(3)["x"]]), [expected["y"], expected["total"]], atol=1e-5, rtol=1e-4)


def test_the_same_bytes_every_time() -> None:
    first, second = (ExecutorchExporter().export(Small(), inputs(), config=dynamic()).program.buffer for _ in range(2))
    assert first == second


def test_the_model_is_afterwards_what_it_was() -> None:
    model = Small().train()
    before = {name: (tensor.data_ptr(), tensor.requires_grad) for name, tensor in model.named_parameters()}
    attributes = {name: dict(vars(module)) for name, module in model.named_modules()}
    given = inputs()
    kept = copy.deepcopy(given)
    ExecutorchExporter().export(model, given, config=dynamic())
    assert {name: (tensor.data_ptr(), tensor.requires_grad) for name, tensor in model.named_parameters()} == before
    assert {name: dict(vars(module)) for name, module in model.named_modules()} == attributes
    torch.testing.assert_close(given, kept, atol=0, rtol=0)


# ── Bounds ────────────────────────────────────────────────────────────────────


def test_an_axis_without_a_bound_gets_one() -> None:
    traced = ExecutorchExporter().trace(Small(), inputs(3), config=dynamic())
    assert [int(known.upper) for known in traced.program.range_constraints.values()] == [3 * GROWTH]
    assert [high for _, high in traced.details["bounds"].values()] == [3 * GROWTH]


def test_a_bound_may_be_asked_for() -> None:
    traced = ExecutorchExporter().trace(Small(), inputs(3), config=dynamic(max_size=100))
    assert [int(known.upper) for known in traced.program.range_constraints.values()] == [100]


def test_a_bound_of_its_own_stays() -> None:
    config = ExecutorchConfig(dynamic=True, dynamic_shapes={"x": {0: DIM.AUTO(max=50)}}, max_size=100)
    traced = ExecutorchExporter().trace(Small(), inputs(3), config=config)
    assert [int(known.upper) for known in traced.program.range_constraints.values()] == [50]


def test_every_axis_dynamic_without_more() -> None:
    model = Small()
    exported = ExecutorchExporter().export(model, inputs(), config=ExecutorchConfig(dynamic=True))
    assert_right(exported, model, inputs(7))


def test_memory_is_planned_for_the_bound() -> None:
    small, large = (
        ExecutorchExporter().export(Small(), inputs(), config=dynamic(max_size=size)).stages[-1].details["planned_bytes"]
        for size in (10, 1000)
    )
    assert 50 < large / small < 101


def test_static_by_default() -> None:
    model = Small()
    exported = ExecutorchExporter().export(model, inputs())
    assert_right(exported, model, inputs())
    with pytest.raises(RuntimeError):
        exported(**inputs(3))


# ── Backends ──────────────────────────────────────────────────────────────────


def test_unknown_backend_is_told_with_those_there_are() -> None:
    with pytest.raises(UnknownBackend, match="xnnpack, portable, cuda"):
        ExecutorchExporter().export(Small(), inputs(), config=ExecutorchConfig(backend="vulkan"))


@pytest.mark.skipif(torch.cuda.is_available(), reason="tells what is missing where there is no CUDA")
def test_cuda_says_what_is_missing() -> None:
    with pytest.raises(MissingBackend, match=r"executorch\.cuda: torch .*CUDA"):
        prepare_for_cuda()
    with pytest.raises(MissingBackend):
        ExecutorchExporter().prepare(Small(), inputs(), config=ExecutorchConfig(backend="cuda"))


def test_a_backend_is_added_by_registering_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def prepare_for_half() -> Target:
        return Target(list, dtype=torch.float16)

    monkeypatch.setitem(exporter_executorch._BACKEND_PREPARE, "half", prepare_for_half)
    model, given = Small(), inputs()
    exporter, config = ExecutorchExporter(), ExecutorchConfig(backend="half")
    prepared, moved = exporter.prepare(model, given, config=config)
    assert prepared is not model
    assert model.linear.weight.dtype == given["x"].dtype == torch.float32
    traced = exporter.trace(prepared, moved, config=config)
    assert traced.backend == "executorch.half"
    assert {info.dtype for info in traced.signature.inputs} == {"float16"}


def test_what_is_in_place_is_not_copied() -> None:
    model, given = Small(), inputs()
    prepared, placed = target_of("xnnpack").place(model, given)
    assert prepared is model
    assert placed["x"] is given["x"]


# ── Failures ──────────────────────────────────────────────────────────────────


def test_a_missing_kernel_is_told_at_export() -> None:
    class Sorts(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.sort(x, stable=True).values

    with pytest.raises(ExportError, match="no kernel for aten::sort") as refused:
        ExecutorchExporter().export(Sorts(), inputs())
    assert (refused.value.stage, refused.value.cause_type) == ("pte", "MissingKernel")
    assert refused.value.next


def test_a_failing_stage_is_named() -> None:
    class DataDependent(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x if x.sum() > 0 else -x

    with pytest.raises(ExportError) as failed:
        ExecutorchExporter().export(DataDependent(), inputs())
    assert (failed.value.stage, failed.value.backend, failed.value.model) == ("traced_program", "executorch.xnnpack", "DataDependent")
