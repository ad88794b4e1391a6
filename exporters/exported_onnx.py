"""An ONNX export in hand: called like the model, run by ONNX Runtime."""

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from exporters import artifacts, onnx_binding, runtimes, weights
from exporters.exported import Exported
from exporters.onnx_stage import OnnxStage


class ExportedOnnx(Exported):
    """An exported model on ONNX Runtime; `program` is the graph as an `onnx_ir.Model`, its weights inputs."""

    def __init__(self, stages: Sequence[Any], state: Mapping[str, torch.Tensor]) -> None:
        super().__init__(stages)
        self._state = state
        self._session: runtimes.OnnxRuntime | None = None
        self._folder: tempfile.TemporaryDirectory[str] | None = None

    @property
    def program(self) -> Any:
        return self._final.model_ir

    @property
    def _final(self) -> OnnxStage:
        return self.stages[-1]

    def save(self, folder: str | Path) -> Path:
        """Write `model.onnx` and `weights.safetensors`, tied weights once; the path of `model.onnx`."""
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        read = set(self._final.weight_names)
        file = folder / weights.FILE
        canonical = weights.write({name: tensor for name, tensor in self._state.items() if name in read}, file)
        places = weights.read_header(file)
        model = onnx_binding.bound_model(self._final, {name: (weights.FILE, places[stored]) for name, stored in canonical.items()})
        artifacts.save_onnx(self._final, folder, aliases=canonical)
        onnx_binding.serialize(model, folder / artifacts.GRAPH)
        return folder / artifacts.GRAPH

    def run(self, leaves: list[torch.Tensor]) -> list[torch.Tensor]:
        if self._session is None:
            self._folder = tempfile.TemporaryDirectory(prefix="zooport-")
            self._session = runtimes.OnnxRuntime(self.save(self._folder.name))
        return self._session.run(leaves)
