"""Stages on disk: what each saves into its folder, and how the next one reads it in another process.

No stage holds weights. A program is saved with its parameters' shapes and dtypes only; constants, which belong to the graph, are kept.
Bytes depend on the graph alone: node metadata that names memory or folders of this machine is left out or made relative.
"""

import contextlib
import importlib
import io
import json
import math
import re
import site
import sys
import typing
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import onnx_ir as ir
import torch
from torch._export.serde import serialize
from torch._subclasses import FakeTensorMode
from torch.export import ExportedProgram
from torch.export.pt2_archive._package import load_pt2

from exporters import pytrees
from exporters.onnx_stage import OnnxStage
from exporters.signature import Signature
from exporters.stages import ProgramStage, operator_histogram

PROGRAM, GRAPH, SIGNATURE = "program.pt2", "model.onnx", "signature.json"

# ── Programs ──────────────────────────────────────────────────────────────────


def save_program(stage: ProgramStage, folder: Path, *, aliases: Mapping[str, str]) -> None:
    """Write `program.pt2` and `signature.json`.

    Args:
        aliases: from each name in the program's state to the name whose memory it shares (`exporters.weights.aliases`).
    """
    program = stage.program
    # the record of the samples would hold their values; the signature says what a call looks like
    stripped = program._update(
        program.graph_module, program.graph_signature, state_dict=_stripped(program.state_dict), constants=program.constants
    )
    stripped._example_inputs = None
    # through memory: on a full disk torch's own writer aborts the process
    buffer = io.BytesIO()
    with _portable_metadata(stripped), _rounding_serializes():
        torch.export.save(stripped, buffer)
    (folder / PROGRAM).write_bytes(buffer.getbuffer())
    header = {"stage": stage.stage, "backend": stage.backend, "model": stage.model, "aliases": dict(aliases)}
    _write_signature(stage.signature, folder, operator_modules=_operator_modules(program), **header)


def load_program(folder: Path, state: Mapping[str, torch.Tensor] | None = None) -> ProgramStage:
    """Read what `save_program` wrote, with `state` as parameters and buffers; without it they are fake: shapes, no memory."""
    signature, header = _read_signature(folder)
    for module in header.get("operator_modules", ()):
        importlib.import_module(module)
    # `torch.export.load` is this, less the reason when it fails
    with _rounding_serializes(), _type_hints_once():
        program = load_pt2(str(folder / PROGRAM)).exported_programs["model"]
    _attach(program, state)
    return ProgramStage(header["stage"], header["backend"], header["model"], program, signature)


# Where custom operators are registered, by their namespace: a program that calls one loads only once that module is imported.
_OPERATOR_MODULES = {"transformers": "transformers.integrations.moe"}


def _operator_modules(program: ExportedProgram) -> list[str]:
    """The modules to import before a program can be loaded."""
    namespaces = {name.partition(".")[0] for name in operator_histogram(program)}
    return sorted(_OPERATOR_MODULES[namespace] for namespace in namespaces & _OPERATOR_MODULES.keys())


def read_aliases(folder: Path) -> dict[str, str]:
    """The aliases that were saved with a program."""
    return dict(json.loads((folder / SIGNATURE).read_text())["aliases"])


def _stripped(state: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Tensors of the same shapes and dtypes that all show the one element of a storage for their dtype: a few bytes when saved.

    Fake tensors would save as nothing, but share one record whose size torch takes from an arbitrary one of them: loading then fails.
    """
    elements: dict[torch.dtype, torch.Tensor] = {}
    stripped: dict[str, torch.Tensor] = {}
    for name, tensor in state.items():
        element = elements.setdefault(tensor.dtype, torch.zeros(1, dtype=tensor.dtype))
        view = element[0].expand(tensor.shape)
        stripped[name] = torch.nn.Parameter(view, requires_grad=False) if isinstance(tensor, torch.nn.Parameter) else view
    return stripped


def _attach(program: ExportedProgram, state: Mapping[str, torch.Tensor] | None) -> None:
    """Give a loaded program its weights, or fake ones."""
    own = program._state_dict
    mode = FakeTensorMode()
    for name, placeholder in own.items():
        if state is not None:
            tensor = state[name]
        else:
            with mode:
                tensor = torch.empty(placeholder.shape, dtype=placeholder.dtype)
        own[name] = torch.nn.Parameter(tensor, requires_grad=False) if isinstance(placeholder, torch.nn.Parameter) else tensor


_TRACEBACK_FILE = re.compile(r'File "([^"]+)"')


class _portable_metadata:
    """For the block, node metadata without what differs from machine to machine and run to run."""

    def __init__(self, program: ExportedProgram) -> None:
        self._nodes = [node for module in program.graph_module.modules() if hasattr(module, "graph") for node in module.graph.nodes]
        self._kept: list[tuple[Any, dict[str, Any]]] = []

    def __enter__(self) -> None:
        roots = sorted({*site.getsitepackages(), *sys.path, sys.base_prefix}, key=len, reverse=True)
        prefixes = [root.rstrip("/") + "/" for root in roots if root]

        def relative(match: re.Match[str]) -> str:
            path = match.group(1)
            return f'File "{next((path.removeprefix(prefix) for prefix in prefixes if path.startswith(prefix)), Path(path).name)}"'

        for node in self._nodes:
            self._kept.append((node, dict(node.meta)))
            node.meta.pop("from_node", None)  # holds the id() of a graph
            if trace := node.meta.get("stack_trace"):
                node.meta["stack_trace"] = _TRACEBACK_FILE.sub(relative, trace)

    def __exit__(self, *_: object) -> None:
        for node, meta in self._kept:
            node.meta.clear()
            node.meta.update(meta)


@contextlib.contextmanager
def _rounding_serializes() -> Iterator[None]:
    """For the block, let torch's serializer take `math.ceil` and `math.floor` of a symbolic size (NLLB-MoE's expert capacity).

    The verifier of exported programs allows both since pytorch/pytorch#113982, the serializer's own list was never extended (torch 2.13.0).
    """
    missing = {math.ceil, math.floor} - serialize._SYM_OPS
    serialize._SYM_OPS.update(missing)
    try:
        yield
    finally:
        serialize._SYM_OPS.difference_update(missing)


@contextlib.contextmanager
def _type_hints_once() -> Iterator[None]:
    """For the block, evaluate the annotations of each class of torch's schema once, not for every node: a quarter of loading."""
    original = typing.get_type_hints
    known: dict[Any, dict[str, Any]] = {}

    def once(kind: Any, *args: Any, **kwargs: Any) -> dict[str, Any]:
        if kind not in known:
            known[kind] = original(kind, *args, **kwargs)
        return known[kind]

    typing.get_type_hints = once  # type: ignore[assignment]
    try:
        yield
    finally:
        typing.get_type_hints = original


# ── ONNX graphs ───────────────────────────────────────────────────────────────


def save_onnx(stage: OnnxStage, folder: Path, *, aliases: Mapping[str, str]) -> None:
    """Write `model.onnx`, its weights inputs, and `signature.json`."""
    (folder / GRAPH).write_bytes(ir.to_proto(stage.model_ir).SerializeToString(deterministic=True))
    _write_signature(stage.signature, folder, stage=stage.stage, backend="onnx", model=stage.model, aliases=dict(aliases))


def load_onnx(folder: Path) -> OnnxStage:
    """Read what `save_onnx` wrote."""
    signature, header = _read_signature(folder)
    return OnnxStage(header["stage"], header["model"], ir.load(folder / GRAPH), signature)


# ── Signatures ────────────────────────────────────────────────────────────────


def _write_signature(signature: Signature, folder: Path, **header: Any) -> None:
    types = sorted({*pytrees.named_types(signature.input_spec), *pytrees.named_types(signature.output_spec)})
    content = {**header, "types": types, "signature": signature.to_json()}
    (folder / SIGNATURE).write_text(json.dumps(content, sort_keys=True, indent=1))


def _read_signature(folder: Path) -> tuple[Signature, dict[str, Any]]:
    header = json.loads((folder / SIGNATURE).read_text())
    pytrees.register_named(header["types"])
    return Signature.from_json(header["signature"]), header


def read_signature(folder: Path) -> Signature:
    """The signature that was saved with a stage."""
    return _read_signature(folder)[0]


def save_signature(signature: Signature, folder: Path, *, stage: str, backend: str, model: str) -> None:
    """Write only `signature.json`, for a stage that has no graph of ours (`.pte`)."""
    _write_signature(signature, folder, stage=stage, backend=backend, model=model, aliases={})
