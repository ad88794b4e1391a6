"""How the chain makes each stage: read the artifact before it, call one method of an exporter, write the artifact.

Every stage reads what the stage before it wrote, also within one process: node names and the choice of a symbol's source change when a
program is saved and loaded, and a stage has to come out the same whichever process made the one before.
"""

import contextlib
import importlib
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from exporters import artifacts, onnx_binding
from exporters.configs import DynamoConfig, ExecutorchConfig, OnnxConfig
from exporters.exporter_dynamo import DynamoExporter
from exporters.identity import Identity, identify
from exporters.ledger import Record
from exporters.report import Deeds
from exporters.shapes import Shapes, varying
from exporters.source import Source
from exporters.stages import running
from exporters.utils import MODELING_MODULE, Observation
from exporters.weight_set import WeightSet, weight_set

if TYPE_CHECKING:
    from exporters.zoo.sample import Sample

# An unbounded axis has to be bounded where memory is planned ahead: what serves a phone or a small server.
EXECUTORCH_DEFAULT_MAX = 8


@dataclass
class Made:
    """What one stage says about itself."""

    nodes: int
    operators: dict[str, int]
    record: Record
    details: dict[str, Any] = field(default_factory=dict)


class StageMaker:
    """Makes the stages of one chain; builds the model once, and only if a stage needs it.

    Args:
        options: `dynamic`, `opset`, `optimize` and `max_sizes` of the request.
        weights_folder: where copies of weights are kept.

    Attributes:
        save_cpu_seconds: CPU that writing the last stage's files took.
        weights_digest: of the weights' values; names the copy of a model that has no file.
    """

    def __init__(self, source: Source, backend: str, options: Mapping[str, Any], weights_folder: Path) -> None:
        self._source = source
        self._backend = backend
        self._family = backend.partition(".")[0]
        self._options = options
        self._weights_folder = weights_folder
        self._sample: Sample | None = None
        self._weights: WeightSet | None = None
        self.exporter: Any = self._new_exporter()
        self.save_cpu_seconds = 0.0
        self.weights_digest = source.weights_digest

    def identity(self) -> tuple[Identity, bool]:
        """The sample's identity, with its weights' where they are in no file; and whether it chooses the outputs that count.

        Raises:
            ExportError: the sample can't be built.
        """
        with running("traced_program", self._backend, self._source.name.partition("@")[0]):
            identity = identify(self.sample, values=self._source.checkpoint is None)
        self.weights_digest = identity.weights or self._source.weights_digest
        return identity, self.sample.select is not None

    @property
    def sample(self) -> "Sample":
        if self._sample is None:
            self._sample = self._source.sample()
        return self._sample

    @property
    def weights(self) -> WeightSet:
        """Where the model's weights lie; the first call may write the copy of a model that has no file."""
        if self._weights is None:
            copy = self._weights_folder / f"{self._source.name}.{self.weights_digest[:16]}.safetensors"
            self._weights = weight_set(self.sample.model, self._source.weight_files, copy)
        return self._weights

    def _new_exporter(self) -> Any:
        if self._family == "dynamo":
            return DynamoExporter()
        module = importlib.import_module(f"exporters.exporter_{self._family}")
        return module.OnnxExporter() if self._family == "onnx" else module.ExecutorchExporter()

    # ── Stages ────────────────────────────────────────────────────────────────

    def make(self, stage: str, upstream: Path | None, folder: Path) -> Made:
        """Make one stage from the artifact before it and write it into `folder`.

        Raises:
            ExportError: the stage failed.
        """
        self.save_cpu_seconds = 0.0
        with running(stage, self._backend, self._source.name.partition("@")[0]):
            return self._trace(folder) if upstream is None else getattr(self, f"_{stage}")(upstream, folder)

    def _trace(self, folder: Path) -> Made:
        sample = self.sample
        shapes = self._shapes(sample)
        config = self._config(shapes)
        if self._family == "executorch":
            model, inputs = self.exporter.prepare(sample.model, sample.inputs, config=config)
            traced = self.exporter.trace(model, inputs, config=config)
        else:
            traced = self.exporter.trace(sample.model, sample.inputs, config=config)
        aliases = self.weights.aliases
        with self._saving():
            artifacts.save_program(traced, folder, aliases=aliases)
        axes = [f"{axis.tensor}[{axis.axis}] {axis.name} {axis.min}..{axis.max or ''}" for axis in shapes.axes]
        return _made(traced, dynamic_axes=axes)

    def _decomposed_graph(self, upstream: Path, folder: Path) -> Made:
        traced = artifacts.load_program(upstream)
        decomposed = self.exporter.decompose(traced, config=self._config()) if self._family == "onnx" else self.exporter.decompose(traced)
        with self._saving():
            artifacts.save_program(decomposed, folder, aliases=artifacts.read_aliases(upstream))
        return _made(decomposed)

    def _lowered_onnx(self, upstream: Path, folder: Path) -> Made:
        lowered = self.exporter.lower(artifacts.load_program(upstream), config=self._config())
        with self._saving():
            artifacts.save_onnx(lowered, folder, aliases=artifacts.read_aliases(upstream))
        return _made(lowered)

    def _ir_fixed_model(self, upstream: Path, folder: Path) -> Made:
        fixed = self.exporter.fix_ir(artifacts.load_onnx(upstream), config=self._config())
        with self._saving():
            artifacts.save_onnx(fixed, folder, aliases=artifacts.read_aliases(upstream))
            onnx_binding.serialize(onnx_binding.bound_model(fixed, self.weights.bound()), folder / artifacts.GRAPH)
        return _made(fixed, weights=[file.name for file in self.weights.files])

    def _pte(self, upstream: Path, folder: Path) -> Made:
        program = artifacts.load_program(upstream, self.weights.load())
        lowered = self.exporter.lower(program, config=self._config())
        with self._saving():
            lowered.save(folder)
        return _made(lowered, **lowered.details)

    @contextlib.contextmanager
    def _saving(self) -> Iterator[None]:
        """Count the block's CPU time as that of saving."""
        started = time.process_time()
        yield
        self.save_cpu_seconds += time.process_time() - started

    # ── Configuration ─────────────────────────────────────────────────────────

    def _shapes(self, sample: "Sample") -> Shapes:
        if not self._options["dynamic"]:
            return Shapes({}, ())
        bounds = dict(self._options["max_sizes"])
        if self._family == "executorch":
            for axis in sample.axes:
                if axis.max is None:
                    bounds.setdefault(axis.name, max(EXECUTORCH_DEFAULT_MAX, *axis.sizes))
        return varying(sample.inputs, sample.others, sample.axes, bounds)

    def _config(self, shapes: Shapes | None = None) -> Any:
        dynamic = bool(self._options["dynamic"])
        common: dict[str, Any] = {"dynamic": dynamic, "dynamic_shapes": shapes.dynamic_shapes if shapes and dynamic else None}
        if self._family == "onnx":
            return OnnxConfig(**common, opset=self._options["opset"], optimize=self._options["optimize"])
        if self._family == "executorch":
            return ExecutorchConfig(**common, backend=self._backend.partition(".")[2])
        return DynamoConfig(**common)


def _made(stage: Any, **details: Any) -> Made:
    operators = stage.operators()
    return Made(sum(operators.values()), operators, _record(stage.seen), details)


def _record(seen: Observation) -> Record:
    """What was seen of the workarounds, as the ledger keeps it."""
    in_reach = seen.in_reach
    called, changed, used = (dict(sorted(counts.items())) for counts in (seen.called, seen.changed, seen.used))
    return Record(
        deeds=Deeds(called=called, changed=changed, used=used),
        patches=None if in_reach is None else sorted(in_reach),
        read={name: sorted(operators) for name, operators in sorted(seen.read.items())},
        modules=[] if in_reach is None else sorted(name for name in sys.modules if MODELING_MODULE.fullmatch(name)),
    )
