"""A Python file with `build()` is exported by its path, and a change to it is noticed."""

from pathlib import Path

import pytest
import torch

from exporters.chain import Request, run
from exporters.errors import UsageError
from exporters.identity import identify
from exporters.source import resolve
from exporters.zoo import model_file

FILE = """
import torch
from torch import nn

class Scale(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x):
        return self.linear(x) * 2

def build():
    return Scale(), {"x": torch.randn(2, 4)}, {"x": torch.randn(3, 4)}
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "scale.py"
    path.write_text(FILE)
    return path


def test_a_file_builds_the_same_sample_each_time(file: Path) -> None:
    before = torch.random.get_rng_state()
    first, second = model_file.load(file), model_file.load(file)
    assert torch.equal(torch.random.get_rng_state(), before)
    assert identify(first, values=True) == identify(second, values=True)
    assert not first.model.training
    assert list(first.others) == ["other"]
    assert first.source == "build() of scale.py"


def test_a_change_of_the_code_is_another_sample(file: Path) -> None:
    before = identify(model_file.load(file), values=False), resolve(str(file))
    file.write_text(FILE.replace("* 2", "* 3"))
    after = identify(model_file.load(file), values=False), resolve(str(file))
    assert before[0].digest != after[0].digest
    assert before[1].digest != after[1].digest
    assert before[1].name == after[1].name


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x = 1", "has no function `build`"),
        ("def build(): return 1", "returns no module"),
        ("import torch\ndef build(): return torch.nn.Linear(1, 1), torch.ones(1)", "returns no module"),
    ],
)
def test_a_file_that_builds_no_sample_is_refused(file: Path, text: str, message: str) -> None:
    file.write_text(text)
    with pytest.raises(UsageError, match=message):
        model_file.load(file)


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="can't be read: No such file"):
        resolve(str(tmp_path / "none.py"))


@pytest.mark.e2e
def test_it_is_exported_like_a_class_of_the_zoo(file: Path, tmp_path: Path) -> None:
    request = Request(model=str(file), backend="dynamo", home=str(tmp_path / "home"))
    first, again = run(request), run(request)
    assert (first.outcome, again.outcome) == ("verified", "verified")
    assert [row.inputs for row in first.parity] == ["sample", "other"]
    assert [stage.cached for stage in again.stages] == [True, True]
    file.write_text(FILE.replace("* 2", "* 3"))
    assert not any(stage.cached for stage in run(request).stages)
