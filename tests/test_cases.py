"""The inputs that must work (`../shared/cases`) on ONNX, exported once and run at both input sets: right, or refused by name, never wrong.

What is refused today stands in `REFUSED` with the words that name the reason; a case that becomes right turns its test red.
"""

import copy
import importlib.util
import re
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from torch.utils import _pytree as pytree

from exporters.configs import OnnxConfig
from exporters.errors import ExportError
from exporters.exported_onnx import ExportedOnnx
from exporters.exporter_onnx import OnnxExporter
from exporters.shapes import varying

CASES = Path(__file__).parents[2] / "shared" / "cases"
NUMBERS = [
    *("01", "02", "04", "05", "06", "08", "09", "12", "13", "14", "16", "18", "20"),
    *("21", "23", "24", "27", "30", "33", "36", "43", "45", "46", "49", "62", "64"),
]

# case -> what the refusal says, and where
REFUSED = {
    "04": ("traced_program", r"freezes .*: x\[1\] at 6"),  # GRU and LSTM are unrolled over time
    "16": ("traced_program", r"freezes .*: pixel_values\[0\] at 2"),  # Idefics3 drops all-padding images by value
    "18": ("traced_program", r"freezes .*: key_value_states\[1\] at 16"),  # Aria looks the size up in a dict
    "33": ("traced_program", r"freezes .*cache.*keys\[2\] at 4"),  # a sliding-window cache counts in Python
    "36": ("ir_fixed_model", r"no CPU kernel for Mul\(bfloat16\)"),
    "45": ("ir_fixed_model", "ReduceMean"),  # onnx's converter has no way back from opset 18 for it
}
# case -> the node that the runtime stops at, at the second input set; right at the first
STOPS_ELSEWHERE = {
    "30": "Reshape",  # Swin counts windows in Python: an attention mask has the sample's number of them
}
SLOW = {"30"}


def load(number: str) -> ModuleType:
    path = CASES / f"case_{number}.py"
    if not path.exists():
        pytest.skip(f"{path} is not there: the cases lie beside the checkout, in ../shared")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    case = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(case)
    return case


def export(case: ModuleType) -> tuple[torch.nn.Module, list[dict[str, Any]], ExportedOnnx]:
    """The module, its input sets, and its export with the axes dynamic that differ between them."""
    torch.manual_seed(0)
    module, *sets = case.build()
    options: dict[str, Any] = {"opset": case.PEER_KW["opset_version"]} if hasattr(case, "PEER_KW") else {}
    if getattr(case, "DYNAMIC", True):
        shapes = varying(sets[0], {str(index): other for index, other in enumerate(sets[1:])})
        options.update(dynamic=True, dynamic_shapes=shapes.dynamic_shapes)
    return module, sets, OnnxExporter().export(module.eval(), sets[0], config=OnnxConfig(**options))


def assert_right(case: ModuleType, module: torch.nn.Module, inputs: dict[str, Any], exported: ExportedOnnx) -> None:
    """Structure, dtype and shape are eager's; values within the design's bound, scaled where a state grows to 1e5 (case 12)."""
    select = getattr(case, "select", lambda outputs, inputs: outputs)
    with torch.no_grad():
        expected = pytree.tree_leaves(select(module(**copy.deepcopy(inputs)), inputs))
    actual = pytree.tree_leaves(select(exported(**copy.deepcopy(inputs)), inputs))
    assert len(actual) == len(expected)
    bound = getattr(case, "TOL", 1e-4)
    for got, wanted in zip(actual, expected, strict=True):
        if not isinstance(wanted, torch.Tensor):
            assert got == wanted
            continue
        size = max(1.0, float(wanted.abs().max())) if wanted.is_floating_point() and wanted.numel() else 1.0
        torch.testing.assert_close(got, wanted, atol=bound * size, rtol=max(bound, 1e-3), equal_nan=True)


@pytest.mark.e2e
@pytest.mark.parametrize("number", [pytest.param(number, marks=[pytest.mark.slow] * (number in SLOW)) for number in NUMBERS])
def test_case(number: str, tmp_path: Path) -> None:
    case = load(number)
    if number in REFUSED:
        stage, reason = REFUSED[number]
        with pytest.raises(ExportError) as refusal:
            export(case)
        assert refusal.value.stage == stage
        assert re.search(reason, refusal.value.message), refusal.value.message
        return
    module, sets, exported = export(case)
    if number in STOPS_ELSEWHERE:
        assert_right(case, module, sets.pop(0), exported)
        with pytest.raises(Exception, match=STOPS_ELSEWHERE[number]):  # onnxruntime's errors have no base class of their own
            assert_right(case, module, sets.pop(), exported)
    for inputs in sets:
        assert_right(case, module, inputs, exported)
    if hasattr(case, "onnx_check"):
        names = [info.name for info in exported.signature.graph_inputs]
        assert case.onnx_check(str(exported.save(tmp_path)), names) == []


def test_every_case_is_here() -> None:
    if not CASES.exists():
        pytest.skip(f"{CASES} is not there: the cases lie beside the checkout, in ../shared")
    assert sorted(path.stem.removeprefix("case_") for path in CASES.glob("case_*.py")) == NUMBERS
