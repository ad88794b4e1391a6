"""The runtimes that exported models are run on: flat tensors in, flat tensors out, in graph order.

Run as a program (`python -m exporters.runtimes JOB`), this is the process of its own in which a model is verified: a crash of native
code there is an outcome, not an end. A job is a folder with `job.json` and a safetensors file of inputs for each set; outputs are
written beside them, and each step reached is a line of JSON on standard output.
"""

import contextlib
import importlib
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from exporters.errors import MissingBackend

if TYPE_CHECKING:
    import torch

    from exporters.signature import Signature


class OnnxRuntime:
    """A session of ONNX Runtime on the CPU.

    Args:
        path: the graph.
        weights_folder: where its external data lies; beside the graph by default.

    Raises:
        MissingBackend: onnxruntime isn't installed.
    """

    def __init__(self, path: str | Path, weights_folder: str | Path | None = None) -> None:
        try:
            import onnxruntime
        except ModuleNotFoundError as error:
            raise MissingBackend("onnxruntime is not installed", next="pip install onnxruntime") from error
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 3
        model: str | bytes = str(path)
        if weights_folder is not None:
            # only a model given as bytes may have its external data elsewhere
            options.add_session_config_entry("session.model_external_initializers_file_folder_path", str(weights_folder))
            model = Path(path).read_bytes()
        self._session: Any = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
        self.input_names = [value.name for value in self._session.get_inputs()]

    def run_arrays(self, arrays: Sequence[Any]) -> list[Any]:
        """numpy arrays to numpy arrays."""
        return list(self._session.run(None, dict(zip(self.input_names, arrays, strict=True))))

    def run(self, tensors: "Sequence[torch.Tensor]") -> "list[torch.Tensor]":
        import torch

        return [torch.from_numpy(array) for array in self.run_arrays([tensor.detach().contiguous().numpy() for tensor in tensors])]


class ExecutorchRuntime:
    """The ExecuTorch runtime with the portable, optimized and XNNPACK kernels of its Python package.

    Raises:
        MissingBackend: executorch isn't installed.
    """

    def __init__(self, path: str | Path) -> None:
        try:
            from executorch.runtime import Runtime
        except ModuleNotFoundError as error:
            raise MissingBackend("executorch is not installed", next="pip install executorch") from error
        self._program: Any = Runtime.get().load_program(str(path))
        self._method: Any = self._program.load_method("forward")

    def run(self, tensors: "Sequence[torch.Tensor]") -> "list[torch.Tensor]":
        import torch

        outputs = self._method.execute([tensor.contiguous() for tensor in tensors])
        # the runtime reuses its memory: what is returned must outlive the next call
        return [value.clone() if isinstance(value, torch.Tensor) else torch.tensor(value) for value in outputs]


class DynamoRuntime:
    """A saved traced program on torch itself, its weights from their files.

    Args:
        path: the artifact's folder.
        weights: `exporters.weight_set.WeightSet` as JSON.
    """

    def __init__(self, path: str | Path, weights: dict[str, Any]) -> None:
        from exporters import artifacts
        from exporters.weight_set import WeightSet

        stage = artifacts.load_program(Path(path), WeightSet.from_json(weights).load())
        self._signature = stage.signature
        self._module = stage.program.module()

    def run(self, tensors: "Sequence[torch.Tensor]") -> "list[torch.Tensor]":
        return run_program(self._module, self._signature, tensors)


def run_program(module: Any, signature: "Signature", tensors: "Sequence[torch.Tensor]") -> "list[torch.Tensor]":
    """Call an exported program's module with the tensors of its graph inputs; the tensors of its graph outputs."""
    import torch
    from torch.utils import _pytree as pytree

    given = iter(tensors)
    leaves = [next(given) if info.in_graph else info.value for info in signature.inputs]
    with torch.no_grad():
        outputs = pytree.tree_leaves(module(**pytree.tree_unflatten(leaves, signature.input_spec)))
    return [value for value, info in zip(outputs, signature.outputs, strict=True) if info.in_graph]


# ── A process of its own ──────────────────────────────────────────────────────


def _say(**event: Any) -> None:
    print(json.dumps(event), flush=True)


def run_job(path: str) -> None:
    """Do what the job in the folder `path` says."""
    folder = Path(path)
    job = json.loads((folder / "job.json").read_text())
    import_runtime(job["family"])  # so that only loading is timed
    started = time.perf_counter()
    if job["family"] == "onnx":
        from safetensors.numpy import load_file as load_arrays
        from safetensors.numpy import save_file as save_arrays

        session = OnnxRuntime(job["artifact"], job.get("weights_folder"))
        _say(event="loaded", seconds=time.perf_counter() - started)
        for name in job["sets"]:
            arrays = load_arrays(folder / f"{name}.in.safetensors")
            outputs = session.run_arrays([arrays[str(index)] for index in range(len(arrays))])
            save_arrays({str(index): _contiguous(array) for index, array in enumerate(outputs)}, folder / f"{name}.out.safetensors")
            _say(event="ran", inputs=name)
        return

    import torch
    from safetensors.torch import load_file, save_file

    runtime = ExecutorchRuntime(job["artifact"]) if job["family"] == "executorch" else DynamoRuntime(job["artifact"], job["weights"])
    _say(event="loaded", seconds=time.perf_counter() - started)
    for name in job["sets"]:
        tensors = load_file(folder / f"{name}.in.safetensors")
        results = runtime.run([tensors[str(index)] for index in range(len(tensors))])
        # a counter in a cache comes back as a Python number
        saved = {str(index): torch.as_tensor(value).clone().contiguous() for index, value in enumerate(results)}
        save_file(saved, folder / f"{name}.out.safetensors")
        _say(event="ran", inputs=name)


def import_runtime(family: str) -> None:
    """Import what runs the exports of a family, and not what exports them: an artifact has to stand on its own."""
    module = {"onnx": "onnxruntime", "executorch": "executorch.runtime", "dynamo": "exporters.artifacts"}[family]
    with contextlib.suppress(ModuleNotFoundError):  # the runtime's class says it better
        importlib.import_module(module)


def _contiguous(array: Any) -> Any:
    import numpy

    return numpy.ascontiguousarray(array).reshape(array.shape)  # ascontiguousarray makes 0-d arrays 1-d


if __name__ == "__main__":
    run_job(sys.argv[1])
