"""An ExecuTorch export in hand: called like the model, run by the ExecuTorch runtime."""

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from exporters import runtimes
from exporters.executorch_stage import ExecutorchStage
from exporters.exported import Exported


class ExportedExecutorch(Exported):
    """An exported model on the ExecuTorch runtime; `program` is ExecuTorch's manager of the emitted program."""

    def __init__(self, stages: Sequence[Any]) -> None:
        super().__init__(stages)
        self._runtime: runtimes.ExecutorchRuntime | None = None
        self._folder: tempfile.TemporaryDirectory[str] | None = None

    @property
    def program(self) -> Any:
        return self._final.manager

    @property
    def _final(self) -> ExecutorchStage:
        stage: ExecutorchStage = self.stages[-1]
        return stage

    def save(self, folder: str | Path) -> Path:
        """Write `model.pte`, which holds its weights; its path."""
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        return self._final.save(folder)

    def run(self, leaves: list[torch.Tensor]) -> list[torch.Tensor]:
        """Run in this process: a crash of the runtime ends it. `exporters.verification` runs in one of its own."""
        if self._runtime is None:
            self._folder = tempfile.TemporaryDirectory(prefix="zooport-")
            self._runtime = runtimes.ExecutorchRuntime(self.save(self._folder.name))
        return self._runtime.run(leaves)
