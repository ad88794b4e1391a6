"""What each stage's result depends on beside workarounds, in parts that can be compared and told. Imports no torch."""

import functools
import importlib.util
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from exporters.backends import family_of, scopes_of
from exporters.code_index import CodeIndex
from exporters.source import PACKAGES, RUNTIMES, Source, versions
from exporters.store import file_digest, json_digest
from exporters.zoo import catalogue

# of the layout of a stage's artifact: raise it when what a stage writes changes in a way that the code doesn't show
FORMAT = 2

_SAMPLE_PACKAGES = ("torch", "transformers", "numpy")
# what tokenizes and draws the inputs of a checkpoint or a file, and no others: one environment may have them and the next not
_INPUT_PACKAGES = ("tokenizers", "pillow")


@dataclass(frozen=True)
class Options:
    """The part of a request that stages read."""

    backend: str
    dynamic: bool
    max_sizes: Mapping[str, int]
    opset: int
    optimize: bool

    def of_stage(self, stage: str) -> dict[str, Any]:
        """The options that this stage reads."""
        family = family_of(self.backend)
        read: dict[str, Any] = {"dynamic": self.dynamic}
        if stage == "traced_program":
            read["max_sizes"] = dict(self.max_sizes)
        elif family == "onnx":
            read["opset"] = self.opset
            if stage == "ir_fixed_model":
                read["optimize"] = self.optimize
        return read


def sample_parts(source: Source, index: CodeIndex) -> dict[str, Any]:
    """What a sample is built from: code and data of the zoo, the model type, the checkpoint or the file, packages."""
    return {
        "source": source.digest,
        "weights": source.weights_digest,
        "known": asdict(catalogue.entry(source.name)) if source.in_zoo else {},
        "packages": versions(_SAMPLE_PACKAGES if source.in_zoo else (*_SAMPLE_PACKAGES, *_INPUT_PACKAGES)),
        "code": index.core["sample"],
    }


def stage_parts(stage: str, options: Options, input_digest: str, weights: str, index: CodeIndex) -> dict[str, Any]:
    """What a stage is made from.

    Args:
        input_digest: of the stage before; of the sample, for the trace.
        weights: as `baked_weights` has it.
    """
    family = family_of(options.backend)
    return {
        "format": FORMAT,
        "input": input_digest,
        "weights": weights,
        "config": options.of_stage(stage),
        "packages": versions(PACKAGES[family]),
        "code": index.core[family],
    }


def baked_weights(stage: str, source: Source, sample: "SampleReference") -> str:
    """Digest of what a stage's artifact holds of the weights: their values, or where in their file each lies; empty for nothing."""
    places = json_digest([source.digest, sample.digest])
    return {"pte": sample.weights, "ir_fixed_model": places}.get(stage, "")


def environment(backend: str, index: CodeIndex) -> str:
    """A digest of all that an export for a backend could run into: packages, runtime, code, and every workaround in its scopes."""
    family = family_of(backend)
    scopes = scopes_of(backend)
    workarounds = [(each.name, each.fingerprint) for each in index.workarounds if each.scope in scopes]
    packages = versions((*PACKAGES[family], *RUNTIMES[family], *_SAMPLE_PACKAGES))
    return json_digest([FORMAT, packages, index.core[family], index.core["sample"], index.core["verification"], workarounds])


def verification_parts(final_digest: str, sample: "SampleReference", options: Options, index: CodeIndex) -> dict[str, Any]:
    """What an outcome depends on: the artifact, the sample with its weights, the runtime, and the code that compares."""
    return {
        "artifact": final_digest,
        "sample": sample.digest,
        "weights": sample.weights,
        "dynamic": options.dynamic,
        "packages": versions(RUNTIMES[family_of(options.backend)]),
        # a sample that says which outputs count says so in code
        "code": [index.core["verification"], index.core["sample"] if sample.selects else ""],
    }


@dataclass(frozen=True)
class SampleReference:
    """What the store keeps of a sample, so that nobody has to build it to know whether it is still the same.

    Attributes:
        digest, weights: as `exporters.identity.Identity` has them.
        parts: what it was built from (`sample_parts`).
        files: its model's source files with their digests.
        selects: whether it chooses the outputs that count.
        source: where its inputs come from.
    """

    digest: str
    weights: str
    parts: dict[str, Any]
    files: dict[str, str]
    selects: bool
    source: str = "rules"

    def still_holds(self, parts: Mapping[str, Any]) -> bool:
        """Whether a sample built now would be this one."""
        return self.parts == parts and all(file_digest_of(path) == digest for path, digest in self.files.items())


@functools.cache
def file_digest_of(path: str) -> str:
    """sha256 of a source file, given absolute or from the folder of its package on; empty if it isn't there."""
    file = Path(path)
    if not file.is_absolute():
        spec = importlib.util.find_spec(file.parts[0].removesuffix(".py"))
        if spec is None or spec.origin is None:
            return ""
        file = Path(spec.origin).parent.parent / file
    try:
        return file_digest(file)
    except OSError:
        return ""
