"""_patch_reshape_constraints: what XNNPACK can't reshape is left to kernels."""

from typing import Any

import pytest
import torch
from executorch_helpers import export_executorch, some
from torch import nn
from workaround_helpers import assert_matches, assert_restores, fired, leave_out

from exporters.errors import ExportError

NAME = "executorch.xnnpack:_patch_reshape_constraints"


class Conv1d(nn.Module):
    def __init__(self, **options: Any) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.conv = nn.Conv1d(4, 6, 3, **options)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.conv(x)


class TransposedConv1d(Conv1d):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.ConvTranspose1d(4, 6, 3, stride=2)  # type: ignore[assignment]


class Conv2d(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.conv = nn.Conv2d(4, 6, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.conv(x)


class Normalized(nn.Module):
    """A batch norm of sequences, or of images."""

    def __init__(self, dims: int = 1) -> None:
        super().__init__()
        self.norm = {1: nn.BatchNorm1d, 2: nn.BatchNorm2d}[dims](4)
        nn.init.uniform_(self.norm.running_mean)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(x) * 2


class Unsqueeze(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(x).unsqueeze(-1) * 2


def test_one_dimensional_convolution_at_any_batch_and_length() -> None:
    sets = [{"x": some(2, 4, 16)}, {"x": some(3, 4, 21)}, {"x": some(1, 4, 9)}]
    for module in (Conv1d(), Conv1d(stride=2, padding=1, groups=2), Conv1d(dilation=2, bias=False), TransposedConv1d(), Normalized()):
        exported = export_executorch(module, *sets)
        assert_matches(exported, module, sets)
        assert NAME in fired(exported)


def test_unsqueeze_at_any_size() -> None:
    sets = [{"x": some(2, 5)}, {"x": some(3, 9)}, {"x": some(1, 4)}]
    assert_matches(export_executorch(Unsqueeze(), *sets), Unsqueeze(), sets)


@pytest.mark.parametrize("module", [Conv1d(), Unsqueeze(), Normalized()], ids=["convolution", "unsqueeze", "batch norm"])
def test_canary(module: nn.Module, monkeypatch: pytest.MonkeyPatch) -> None:
    leave_out(monkeypatch, NAME)
    with pytest.raises(ExportError, match="only supports 1 dynamic dimension"):
        export_executorch(module, {"x": some(2, 4, 16)}, {"x": some(3, 4, 21)})


@pytest.mark.parametrize(
    ("module", "sets"),
    [
        pytest.param(Conv1d(), [some(2, 4, 16)], id="nothing dynamic"),
        pytest.param(Conv1d(), [some(2, 4, 16), some(3, 4, 16)], id="batch"),
        pytest.param(Conv1d(), [some(2, 4, 16), some(2, 4, 21)], id="length"),
        pytest.param(Conv2d(), [some(2, 4, 16, 16), some(3, 4, 21, 18)], id="two-dimensional, all dynamic"),
        pytest.param(Unsqueeze(), [some(2, 5), some(3, 5)], id="unsqueeze"),
        pytest.param(Normalized(), [some(2, 4, 16), some(3, 4, 16)], id="batch norm"),
        pytest.param(Normalized(2), [some(2, 4, 8, 8), some(3, 4, 9, 7)], id="batch norm of images, all dynamic"),
    ],
)
def test_delegates_what_xnnpack_takes(module: nn.Module, sets: list[torch.Tensor]) -> None:
    given = [{"x": x} for x in sets]
    exported = export_executorch(module, *given)
    assert_matches(exported, module, given)
    taken = {"aten.convolution.default", "aten.unsqueeze_copy.default", "aten._native_batch_norm_legit_no_training.default"}
    assert taken & set(exported.stages[-1].details["delegated"])


def test_originals_come_back() -> None:
    assert_restores(NAME, "executorch.xnnpack")


def test_not_for_other_backends() -> None:
    exported = export_executorch(Unsqueeze(), {"x": some(2, 5)}, {"x": some(3, 9)}, backend="portable")
    assert NAME not in set().union(*(stage.seen.installed for stage in exported.stages))


@pytest.mark.e2e
def test_wav2vec2() -> None:
    from exporters.zoo.build import build

    sample = build("Wav2Vec2ForCTC")
    exported = export_executorch(sample.model, sample.inputs, *sample.others.values())
    assert_matches(exported, sample.model, [sample.inputs, *sample.others.values()])
    assert NAME in fired(exported)
