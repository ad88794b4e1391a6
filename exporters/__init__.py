"""zooport's exporters as a library: any `nn.Module` with keyword inputs, in two lines.

    exported = OnnxExporter().export(model, inputs, config=OnnxConfig(dynamic=True))
    outputs = exported(**inputs)

Names are imported when they are first used: `import exporters` alone imports no torch.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from exporters.configs import DynamoConfig, ExecutorchConfig, OnnxConfig
    from exporters.exporter_dynamo import DynamoExporter
    from exporters.exporter_executorch import ExecutorchExporter
    from exporters.exporter_onnx import OnnxExporter
    from exporters.loading import load
    from exporters.shapes import varying
    from exporters.utils import register_fx_node_fix, register_fx_program_fix, register_patch

_HOMES = {
    "DynamoConfig": "configs",
    "DynamoExporter": "exporter_dynamo",
    "ExecutorchConfig": "configs",
    "ExecutorchExporter": "exporter_executorch",
    "OnnxConfig": "configs",
    "OnnxExporter": "exporter_onnx",
    "load": "loading",
    "register_fx_node_fix": "utils",
    "register_fx_program_fix": "utils",
    "register_patch": "utils",
    "varying": "shapes",
}

__all__ = [
    "DynamoConfig",
    "DynamoExporter",
    "ExecutorchConfig",
    "ExecutorchExporter",
    "OnnxConfig",
    "OnnxExporter",
    "load",
    "register_fx_node_fix",
    "register_fx_program_fix",
    "register_patch",
    "varying",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
