"""Exports read back in a process that made none of them."""

import json
from pathlib import Path
from typing import Any

from exporters import artifacts, runtimes
from exporters.errors import StoreError
from exporters.publish import MAIN_FILE, PROVENANCE
from exporters.signature import Signature


class LoadedExport:
    """An export from a folder: called like the model, run on its runtime, returning what the model returns."""

    def __init__(self, signature: Signature, runtime: Any) -> None:
        self.signature = signature
        self._runtime = runtime

    def __call__(self, **inputs: Any) -> Any:
        """Raises SignatureMismatch if the inputs differ in kind from those that the model was exported with."""
        return self.signature.unflatten(self._runtime.run(self.signature.flatten(inputs)))


def load(folder: str | Path) -> LoadedExport:
    """Load what an exporter's `save` or `zooport export` wrote. The classes of its caches and outputs are imported on the way.

    Args:
        folder: the folder, or the main file in it (`model.onnx`, `model.pte`, `program.pt2`).

    Raises:
        StoreError: there is no export.
    """
    folder = Path(folder)
    folder = folder.parent if folder.is_file() else folder
    family = next((family for family, name in MAIN_FILE.items() if (folder / name).is_file()), None)
    if family is None or not (folder / artifacts.SIGNATURE).is_file():
        raise StoreError(f"{folder} holds no export", next="give a folder that `zooport export --out` or an exporter's save wrote")
    signature = artifacts.read_signature(folder)
    main_file = folder / MAIN_FILE[family]
    if family == "executorch":
        return LoadedExport(signature, runtimes.ExecutorchRuntime(main_file))
    provenance = json.loads((folder / PROVENANCE).read_text()) if (folder / PROVENANCE).is_file() else {}
    files = [Path(file) for file in provenance.get("weights", [])]
    if family == "onnx":
        elsewhere = {file.parent for file in files} if provenance.get("weights_not_beside") else set()
        return LoadedExport(signature, runtimes.OnnxRuntime(main_file, elsewhere.pop() if len(elsewhere) == 1 else None))
    return LoadedExport(signature, runtimes.DynamoRuntime(folder, _weights(folder, files)))


def _weights(folder: Path, files: list[Path]) -> dict[str, Any]:
    """The weight set of a saved program, from the files beside it where they are there."""
    beside = [folder / file.name for file in files if (folder / file.name).is_file()] or sorted(folder.glob("*.safetensors"))
    return {"files": [str(file) for file in beside or files], "aliases": artifacts.read_aliases(folder)}
