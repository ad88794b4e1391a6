"""What an export gives back: called like the model, on its runtime, and returning what the model returns."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch.export import ExportedProgram

from exporters import artifacts, runtimes, weights
from exporters.signature import Signature


class Exported:
    """An exported model.

    Attributes:
        stages: what each stage made, first to last.
        signature: names, shapes and structure of inputs and outputs.
    """

    def __init__(self, stages: Sequence[Any]) -> None:
        self.stages = list(stages)
        self.signature: Signature = stages[0].signature

    def __call__(self, **inputs: Any) -> Any:
        """Run on the runtime.

        Raises:
            SignatureMismatch: the inputs differ in kind from those that the model was exported with.
        """
        return self.signature.unflatten(self.run(self.signature.flatten(inputs)))

    def run(self, leaves: list[torch.Tensor]) -> list[torch.Tensor]:
        """Flat inputs to flat outputs, in the order of `signature.inputs` and `signature.outputs`."""
        raise NotImplementedError

    def save(self, folder: str | Path) -> Path:
        """Write a self-contained folder that `exporters.load` reads; the path of its main file."""
        raise NotImplementedError


class ExportedDynamo(Exported):
    """A traced model, run by torch itself; `program` is its `ExportedProgram`."""

    @property
    def program(self) -> ExportedProgram:
        program: ExportedProgram = self.stages[0].program
        return program

    def run(self, leaves: list[torch.Tensor]) -> list[torch.Tensor]:
        return runtimes.run_program(self.program.module(), self.signature, leaves)

    def save(self, folder: str | Path) -> Path:
        """Write `program.pt2`, and `weights.safetensors` with tied weights once; the path of `program.pt2`."""
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        aliases = weights.write(self.program.state_dict, folder / weights.FILE)
        artifacts.save_program(self.stages[0], folder, aliases=aliases)
        return folder / artifacts.PROGRAM
