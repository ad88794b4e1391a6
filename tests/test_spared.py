"""A change to a workaround makes the stages anew that it can touch, and no others; what it spares would have come out the same.

Each test edits a copy of the package and exports with it over the store that the copy before the edit had filled.
"""

import ast
import json
import random
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from exporters import code_index as indexed
from exporters.backends import STAGES
from exporters.code_index import CodeIndex, Workaround, code_index
from exporters.staleness import survey
from exporters.store import Store

VISION, TEXT = "ViTForImageClassification", "BertForSequenceClassification"
STAGES_OF = STAGES["onnx"]

# planted: a patch and an IR fix of which the vision model alone has the target
PATCH = """
@register_patch("dynamo", "torch.nn.functional.conv2d")
def _patch_planted(original):
    def patch(*args, **kwargs):
        return original(*args, **kwargs)

    return patch


"""
IR_FIX = """
def _fix_ir_planted(model):
    return 0


_IR_FIXES: dict[IrFix, tuple[str, ...]] = {_fix_ir_planted: ("Conv",)}
"""

DRIVER = """
import json, sys
from exporters.chain import Request, run
home, until, use_cache, models = json.loads(sys.argv[1])
made = {}
for model in models:
    report = run(Request(model=model, home=home, until=until.get(model), verify=False, use_cache=use_cache))
    made[model] = {stage.stage: [stage.cached, stage.digest] for stage in report.stages}
    assert report.error is None, report.error
    assert until.get(model) or report.outcome == "exported", report
print(json.dumps([made, "torch" in sys.modules]))
"""

Made = dict[str, dict[str, tuple[bool, str]]]


def export(package: Path, home: Path, models: Sequence[str] = (VISION, TEXT), until: dict[str, str] | None = None) -> tuple[Made, bool]:
    """Export with the package in a process of its own: by model and stage whether it was cached and its digest; whether torch came in."""
    arguments = json.dumps([str(home), until or {}, True, models])
    environment = {
        "PATH": "/usr/bin:/bin",
        "PYTHONPATH": str(package.parent),
        "HF_HUB_OFFLINE": "1",
        "OMP_NUM_THREADS": "1",
        "HOME": str(home),
    }
    done = subprocess.run(
        [sys.executable, "-c", DRIVER, arguments], capture_output=True, text=True, env=environment, cwd=package.parent, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    made, torch_came_in = json.loads(done.stdout.splitlines()[-1])
    return made, torch_came_in


def executed(made: Made) -> dict[str, list[str]]:
    """The stages that were made, by model."""
    return {model: [stage for stage, (cached, _) in stages.items() if not cached] for model, stages in made.items()}


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package, with a patch and an IR fix planted in it."""
    package = tmp_path_factory.mktemp("planted") / "exporters"
    shutil.copytree(indexed.FOLDER, package, ignore=shutil.ignore_patterns("__pycache__"))
    replace(package / "models" / "pooling.py", "@register_patch", PATCH.lstrip() + "@register_patch")
    replace(package / "exporter_onnx.py", "_IR_FIXES: dict[IrFix, tuple[str, ...]] = {}", IR_FIX.strip())
    return package


@pytest.fixture(scope="module")
def filled(planted: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Made]:
    """A home in which both models have been exported."""
    home = tmp_path_factory.mktemp("home")
    made, _ = export(planted, home)
    assert executed(made) == {VISION: list(STAGES_OF), TEXT: list(STAGES_OF)}
    return home, made


@pytest.fixture
def edited(planted: Path, tmp_path: Path) -> Callable[[str, str, str], Path]:
    """Make a copy of the package, with one edit."""

    def make(file: str, old: str, new: str) -> Path:
        package = tmp_path / "edited" / "exporters"
        shutil.copytree(planted, package)
        replace(package / file, old, new)
        return package

    return make


@pytest.fixture
def home(filled: tuple[Path, Made], tmp_path: Path) -> Path:
    """A copy of the filled home."""
    return shutil.copytree(filled[0], tmp_path / "home")


def replace(file: Path, old: str, new: str) -> None:
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new, 1))


# ── What an edit makes anew ───────────────────────────────────────────────────


def test_an_unchanged_package_in_another_folder_makes_nothing_and_imports_no_torch(planted: Path, home: Path, tmp_path: Path) -> None:
    elsewhere = shutil.copytree(planted, tmp_path / "another clone" / "exporters")
    made, torch_came_in = export(elsewhere, home)
    assert executed(made) == {VISION: [], TEXT: []}
    assert not torch_came_in


@pytest.mark.parametrize(
    ("file", "old", "new"),
    [
        ("models/pooling.py", "    def patch(*args, **kwargs):", "    # a remark\n    def patch(*args, **kwargs):"),
        ("exporter_executorch.py", "original(self, node) or", "original(self, node)  or  False or"),
        ("models/mamba.py", "decay = torch.exp(A * steps)", "decay = torch.exp(steps * A)"),
    ],
    ids=["a comment", "an ExecuTorch patch", "a patch that neither model called"],
)
def test_what_can_touch_neither_makes_nothing(edited: Callable[..., Path], home: Path, file: str, old: str, new: str) -> None:
    made, torch_came_in = export(edited(file, old, new), home)
    assert executed(made) == {VISION: [], TEXT: []}
    assert not torch_came_in


def test_an_ir_fix_makes_the_last_stage_of_the_models_whose_graph_has_its_operator(edited: Callable[..., Path], home: Path) -> None:
    made, _ = export(
        edited("exporter_onnx.py", "def _fix_ir_planted(model):\n    return 0", "def _fix_ir_planted(model):\n    return 0 * 1"), home
    )
    assert executed(made) == {VISION: ["ir_fixed_model"], TEXT: []}


def test_a_patch_makes_the_trace_of_the_models_that_called_it_and_the_same_trace_spares_the_rest(
    edited: Callable[..., Path], home: Path, filled: tuple[Path, Made]
) -> None:
    made, _ = export(edited("models/pooling.py", "return original(*args, **kwargs)", "return (original)(*args, **dict(kwargs))"), home)
    assert executed(made) == {VISION: ["traced_program"], TEXT: []}
    assert made[VISION]["traced_program"][1] == filled[1][VISION]["traced_program"][1]


@pytest.mark.slow
def test_a_patch_that_traces_something_else_makes_everything_after_it(edited: Callable[..., Path], home: Path) -> None:
    made, _ = export(edited("models/pooling.py", "return original(*args, **kwargs)", "return original(*args, **kwargs) * 2"), home)
    assert executed(made) == {VISION: list(STAGES_OF), TEXT: []}


def test_the_survey_says_so_without_making_anything(edited: Callable[..., Path], home: Path) -> None:
    package = edited("exporter_onnx.py", "def _fix_ir_planted(model):\n    return 0", "def _fix_ir_planted(model):\n    return 1 - 1")
    states = {state.model: state for state in survey(Store(home / "store"), code_index(folder=package))}
    assert states[TEXT].fresh
    assert [(stage.stage, stage.state) for stage in states[VISION].stages] == [
        *((stage, "fresh") for stage in STAGES_OF[:-1]),
        ("ir_fixed_model", "stale"),
    ]
    assert states[VISION].stages[-1].causes == ("workaround onnx:_fix_ir_planted: changed",)


# ── What is spared would have come out the same ───────────────────────────────


def sabotage(package: Path, chosen: Sequence[Workaround]) -> None:
    """Make every chosen workaround raise as soon as it is applied, so that no spared stage can have used one."""
    for file in {each.file for each in chosen}:
        path = package.parent / file
        names = {each.name.partition(":")[2]: each.kind for each in chosen if each.file == file}
        lines = path.read_text().splitlines()
        functions = [each for each in ast.parse(path.read_text()).body if isinstance(each, ast.FunctionDef) and each.name in names]
        for function in reversed(functions):
            assert function.end_lineno is not None
            body = ["    raise RuntimeError('sabotage')"]
            if names[function.name] == "patch":
                body = ["    def patch(*args, **kwargs):", f"    {body[0]}", "", "    return patch"]
            lines[function.body[0].lineno - 1 : function.end_lineno] = body
        path.write_text("\n".join(lines) + "\n")


def fresh_stages(home: Path, index: CodeIndex) -> dict[str, list[str]]:
    """Per model the stages, from the first on, that the ledger would not make again."""
    found: dict[str, list[str]] = {}
    for state in survey(Store(home / "store"), index):
        stages = [stage.stage for stage in state.stages]
        stale = [stage.state == "fresh" for stage in state.stages]
        found[state.model] = stages[: stale.index(False)] if False in stale else stages
    return found


@pytest.mark.parametrize(
    "seed", [1, pytest.param(2, marks=pytest.mark.slow), pytest.param(3, marks=pytest.mark.slow), pytest.param(4, marks=pytest.mark.slow)]
)
def test_stages_that_random_changes_spare_come_out_the_same_from_scratch(
    planted: Path, filled: tuple[Path, Made], tmp_path: Path, seed: int
) -> None:
    source_home, before = filled
    package = shutil.copytree(planted, tmp_path / "edited" / "exporters")
    workarounds = code_index(folder=package).workarounds
    # what every trace needs would leave nothing to spare
    store = Store(source_home / "store")
    references = [store.read_ref("onnx", "traced_program", "onnx", model) for model in (VISION, TEXT)]
    needed = set.intersection(*({name for name, _ in reference["recipe"]} for reference in references if reference))
    choosable = [each for each in workarounds if each.name not in needed]
    sabotage(package, random.Random(seed).sample(choosable, len(choosable) * 2 // 3))
    spared = fresh_stages(source_home, code_index(folder=package))
    until = {model: stages[-1] for model, stages in spared.items() if stages}
    assert until, "nothing was spared: the test says nothing"
    made, _ = export(package, tmp_path / "scratch", sorted(until), until)
    for model, last in until.items():
        for stage in STAGES_OF[: STAGES_OF.index(last) + 1]:
            assert made[model][stage][1] == before[model][stage][1], (model, stage)


def test_sabotage_is_noticed(planted: Path, tmp_path: Path) -> None:
    """The test above can fail: a model that called a broken patch doesn't export."""
    package = shutil.copytree(planted, tmp_path / "edited" / "exporters")
    sabotage(package, [each for each in code_index(folder=package).workarounds if each.name == "dynamo:_patch_planted"])
    with pytest.raises(AssertionError, match="sabotage"):
        export(package, tmp_path / "scratch", [VISION], {VISION: "traced_program"})
