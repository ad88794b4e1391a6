"""What the tests of ExecuTorch's workarounds share: export small modules, also without running them."""

import torch
from torch import nn
from workaround_helpers import Inputs

from exporters.configs import ExecutorchConfig
from exporters.exported_executorch import ExportedExecutorch
from exporters.exporter_executorch import ExecutorchExporter
from exporters.shapes import varying


def config_for(inputs: Inputs, *others: Inputs, backend: str = "xnnpack", max_size: int | None = None) -> ExecutorchConfig:
    """Dynamic where the input sets differ, static where only one is given."""
    if not others:
        return ExecutorchConfig(backend=backend)
    shapes = varying(inputs, {str(index): other for index, other in enumerate(others)})
    return ExecutorchConfig(dynamic=True, dynamic_shapes=shapes.dynamic_shapes, backend=backend, max_size=max_size)


def export_executorch(
    module: nn.Module, inputs: Inputs, *others: Inputs, backend: str = "xnnpack", max_size: int | None = None
) -> ExportedExecutorch:
    """Export with the axes dynamic that differ between the input sets."""
    config = config_for(inputs, *others, backend=backend, max_size=max_size)
    return ExecutorchExporter().export(module.eval(), inputs, config=config)


def lowered_bytes(module: nn.Module, inputs: Inputs, *others: Inputs) -> bytes:
    """The `.pte`, as bytes."""
    return bytes(export_executorch(module, inputs, *others).program.buffer)


def some(*shape: int) -> torch.Tensor:
    """Random numbers, the same for the same shape."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)))
