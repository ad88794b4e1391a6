"""The runtimes that exported models are run on: flat tensors in, flat tensors out, in graph order."""

from pathlib import Path
from typing import Any

import torch

from exporters.errors import MissingBackend


class OnnxRuntime:
    """A session of ONNX Runtime on the CPU.

    Raises:
        MissingBackend: onnxruntime isn't installed.
    """

    def __init__(self, path: str | Path) -> None:
        try:
            import onnxruntime
        except ModuleNotFoundError as error:
            raise MissingBackend("onnxruntime is not installed", next="pip install onnxruntime") from error
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 3
        self._session: Any = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])

    def run(self, tensors: list[torch.Tensor]) -> list[torch.Tensor]:
        names = [value.name for value in self._session.get_inputs()]
        feed = {name: tensor.detach().contiguous().numpy() for name, tensor in zip(names, tensors, strict=True)}
        return [torch.from_numpy(array) for array in self._session.run(None, feed)]
