"""What is exported: a class of the zoo, a checkpoint or a Python file, known by a digest before anything heavy is imported."""

import functools
import hashlib
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING

from exporters import hub
from exporters.errors import MissingPackage, UsageError
from exporters.store import json_digest
from exporters.zoo import catalogue, requirements, zoo_file
from exporters.zoo.checkpoint_info import CheckpointInfo, describe

if TYPE_CHECKING:
    from exporters.zoo.sample import Sample

# what a stage's result depends on besides our own code; the families' own packages first
PACKAGES = {
    "dynamo": ("torch", "transformers"),
    "onnx": ("torch", "transformers", "onnx", "onnxscript", "onnx-ir"),
    "executorch": ("torch", "transformers", "executorch"),
}
RUNTIMES = {"dynamo": ("torch",), "onnx": ("onnxruntime",), "executorch": ("executorch",)}


@dataclass(frozen=True)
class Source:
    """A model to export.

    Attributes:
        name: under which its artifacts are kept; a class name, a checkpoint's name in `zoo.toml`, its hub id with two dashes for the slash,
            or its folder's or file's name with a digest of the path.
        digest: of the model's architecture, sizes and inputs, as far as they don't follow from our code and the package versions.
        weights_digest: of the weights' values, for stages that bake them in.
        task: what a checkpoint is loaded for; empty for the class that its config names.
        revision: the commit of a checkpoint from the hub; empty for any other model.
        file: a Python file that builds the model (exporters/zoo/model_file.py).
    """

    name: str
    digest: str
    weights_digest: str
    checkpoint: CheckpointInfo | None = None
    task: str = ""
    revision: str = ""
    file: Path | None = None

    def sample(self) -> "Sample":
        """Build the model and its inputs. Imports torch and the model's module of transformers.

        Raises:
            MissingPackage: they need a package that isn't installed.
        """
        try:
            return self._build()
        except ImportError as error:
            packages = requirements.absent(error)
            if not packages:
                raise
            raise MissingPackage(requirements.reason(packages), next=f"pip install {' '.join(packages)}") from error

    def _build(self) -> "Sample":
        if self.checkpoint is not None:
            from exporters.zoo.checkpoints import load

            return load(self.checkpoint.path, task=self.task)
        if self.file is not None:
            from exporters.zoo import model_file

            return model_file.load(self.file)
        from exporters.zoo.build import build

        return build(self.name)

    @property
    def in_zoo(self) -> bool:
        """Whether it is a class of the zoo, tiny and with random weights."""
        return self.checkpoint is None and self.file is None

    @property
    def zoo_name(self) -> str:
        """What the zoo and the known issues call it: of a checkpoint its class, as far as that is known before it is loaded."""
        if self.in_zoo:
            return self.name
        return "" if self.task or self.checkpoint is None else self.checkpoint.architecture or ""

    @property
    def weight_files(self) -> tuple[Path, ...]:
        """The checkpoint's safetensors files, which may be used in place; none for a zoo model."""
        return self.checkpoint.weight_files if self.checkpoint is not None and self.checkpoint.safetensors else ()


def resolve(model: str) -> Source:
    """A class of the zoo or a checkpoint of `zoo.toml` by its name; any other checkpoint by its folder or its hub id; a file by its path.

    Raises:
        UnknownModel: it is none of them; with near matches.
        CheckpointError: the folder isn't a whole checkpoint, or the hub can't be reached.
        UsageError: a `zoo.toml` says what can't be, or there is no such file.
    """
    if catalogue.has(model):
        return Source(model, f"zoo:{model}", f"zoo:{model}")
    named = zoo_file.read()
    if model in named:
        entry = named[model]
        return _checkpoint(entry.folder, model, task=entry.task, from_hub=bool(entry.hub))
    path = Path(model).expanduser()
    if path.suffix == ".py":
        return _model_file(path)
    if not path.exists() and hub.is_hub_id(model):
        return _checkpoint(hub.snapshot(model), model.replace("/", "--"), from_hub=True)
    if path.exists() or "/" in model or model.startswith((".", "~")):
        return _checkpoint(path)
    raise catalogue.unknown(model, [*catalogue.names(), *named])


def _model_file(path: Path) -> Source:
    """Seeded, a file always builds the same: its text stands for architecture, inputs and values."""
    try:
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError as error:
        raise UsageError(f"{path} can't be read: {error.strerror}", next="give a Python file with a function `build`") from error
    where = hashlib.sha256(str(path.resolve()).encode()).hexdigest()[:8]
    return Source(f"{path.stem}-{where}", digest, digest, file=path.resolve())


def _checkpoint(folder: Path, name: str = "", *, task: str = "", from_hub: bool = False) -> Source:
    """Architecture and inputs: what can be read of config, tokenizer and processor, and the weights' headers; values: each file's bytes."""
    info = describe(folder)
    headers = [(file.name, file.stat().st_size, _head(file)) for file in info.weight_files]
    texts = [(file.name, hashlib.sha256(file.read_bytes()).hexdigest()) for file in _text_files(info.path)]
    digest = json_digest([headers, texts, *([task] if task else [])])
    values = json_digest([_file_digest(str(file), file.stat().st_size, file.stat().st_mtime_ns) for file in info.weight_files])
    where = hashlib.sha256(str(info.path).encode()).hexdigest()[:8]
    return Source(name or f"{info.name}-{where}", digest, values, info, task, info.path.name if from_hub else "")


def _text_files(folder: Path) -> list[Path]:
    return sorted(file for pattern in ("*.json", "*.txt", "*.model") for file in folder.glob(pattern) if file.is_file())


def _head(file: Path) -> str:
    """Digest of a safetensors header (names, dtypes, shapes, offsets); of the whole file for a pickle."""
    if file.suffix != ".safetensors":
        return _file_digest(str(file), file.stat().st_size, file.stat().st_mtime_ns)
    with file.open("rb") as stream:
        length = int.from_bytes(stream.read(8), "little")
        return hashlib.sha256(stream.read(length)).hexdigest()


@functools.cache
def _file_digest(path: str, size: int, modified: int) -> str:
    with open(path, "rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


# ── What else a result depends on ─────────────────────────────────────────────


def versions(packages: tuple[str, ...]) -> dict[str, str]:
    """Installed versions; `absent` for what isn't installed."""
    return {package: _version(package) for package in packages}


@functools.cache
def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "absent"
