"""What an export gives back: called like the model, on its runtime, and returning what the model returns."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch.export import ExportedProgram

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
        """Write a self-contained folder; its path."""
        raise NotImplementedError


class ExportedDynamo(Exported):
    """A traced model, run by torch itself."""

    @property
    def program(self) -> ExportedProgram:
        return self.stages[0].program

    def run(self, leaves: list[torch.Tensor]) -> list[torch.Tensor]:
        from torch.utils import _pytree as pytree

        inputs = pytree.tree_unflatten(leaves, self.signature.input_spec)
        with torch.no_grad():
            return pytree.tree_leaves(self.program.module()(**inputs))
