"""A sample's identity changes with everything that a trace can read, and with nothing else."""

import functools
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from exporters.identity import identify
from exporters.zoo.sample import Sample


class Slotted:
    __slots__ = ("factor",)

    def __init__(self, factor: float) -> None:
        self.factor = factor


class Holder(nn.Module):
    """A model that holds `value` where no state dict shows it."""

    def __init__(self, value: Any) -> None:
        super().__init__()
        self.value = value

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x


def digest(value: Any) -> str:
    x = torch.ones(2, 3)
    return identify(Sample(model=Holder(value), inputs={"x": x}, others={}, axes=()), values=False).digest


def closure(factor: float) -> Callable[[float], float]:
    return lambda x: x * factor


def hidden(factor: float) -> list[nn.Module]:
    module = nn.Linear(2, 2, bias=False)
    nn.init.constant_(module.weight, factor)
    return [module]


MAKERS: dict[str, Callable[[float], Any]] = {
    "number": lambda factor: factor,
    "nested": lambda factor: {"a": [(factor,)]},
    "set": lambda factor: {"a", factor},
    "object": lambda factor: SimpleNamespace(inner=SimpleNamespace(factor=factor)),
    "slots": Slotted,
    "function": closure,
    "default": lambda factor: lambda x, factor=factor: x,
    "partial": lambda factor: functools.partial(max, factor),
    "method": lambda factor: SimpleNamespace(factor=factor, call=Slotted(factor).__init__),
    "array": lambda factor: np.array([factor]),
    "tensor": lambda factor: SimpleNamespace(factor=torch.tensor(factor)),
    "module in a list": hidden,
    "type": lambda factor: nn.GELU if factor == 1.0 else nn.ReLU,
}


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS.keys())
def test_what_a_module_holds_is_part_of_it(make: Callable[[float], Any]) -> None:
    assert digest(make(1.0)) == digest(make(1.0))
    assert digest(make(1.0)) != digest(make(2.0))


def test_objects_that_hold_each_other_come_to_an_end() -> None:
    def ring(factor: float) -> SimpleNamespace:
        first, second = SimpleNamespace(factor=factor), SimpleNamespace()
        first.other, second.other = second, first
        return first

    assert digest(ring(1.0)) == digest(ring(1.0)) != digest(ring(2.0))


def test_where_a_model_came_from_and_where_packages_lie_is_no_part_of_it() -> None:
    assert digest(SimpleNamespace(name_or_path="a", size=1)) == digest(SimpleNamespace(name_or_path="b", size=1))
    moved = type(sys)("torch")
    moved.__file__ = "/elsewhere/torch/__init__.py"
    assert digest(torch) == digest(moved)


def test_another_process_finds_the_same(tmp_path: Path) -> None:
    program = "from exporters.identity import identify\nfrom exporters.zoo.build import build\n"
    program += "print(identify(build('BertForSequenceClassification'), values=True))"
    found = set()
    for seed in ("1", "2"):
        environment = {"PYTHONHASHSEED": seed, "PYTHONPATH": str(Path(__file__).parents[1]), "PATH": "/usr/bin:/bin", "HOME": str(tmp_path)}
        found.add(subprocess.run([sys.executable, "-c", program], env=environment, cwd=tmp_path, capture_output=True, check=True).stdout)
    assert len(found) == 1
