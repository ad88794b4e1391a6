"""The folder of an export that people and runtimes open: the last stage's files, and the weights that they point at."""

import json
import shutil
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any

from exporters.errors import StoreError

if TYPE_CHECKING:
    from exporters.weight_set import WeightSet

MAIN_FILE = {"onnx": "model.onnx", "executorch": "model.pte", "dynamo": "program.pt2"}
PROVENANCE = "zooport.json"


def check_target(target: Path) -> None:
    """Whether an export can be put into `target`, asked before any work is done.

    Raises:
        StoreError: it is a file, holds files of somebody else's, or can't be written.
    """
    _refuse_foreign(target)
    parent = next(folder for folder in (target, *target.parents) if folder.exists())
    probe = parent / f".{uuid.uuid4().hex}"
    try:
        probe.mkdir()
        probe.rmdir()
    except OSError as error:
        raise StoreError(f"can't write {target}: {error.strerror or error}", next="choose a folder you can write to") from error


def publish(artifact: Path, weight_files: list[Path], target: Path, *, family: str, provenance: dict[str, Any]) -> Path:
    """Put an export into `target`, whole or not at all; the path of its main file.

    Weight files are hard-linked beside the graph: that costs no space, and ONNX Runtime accepts it where it refuses a symbolic
    link. On another file system they stay where they are, and `zooport.json` says where.

    Args:
        weight_files: empty where the artifact holds its own weights.

    Raises:
        StoreError: the target can't be written, or is a folder with files of somebody else's.
    """
    _refuse_foreign(target)
    aside = target.with_name(f".{target.name}.{uuid.uuid4().hex}")
    try:
        aside.mkdir(parents=True)
        for file in artifact.iterdir():
            if file.name != "manifest.json":
                shutil.copyfile(file, aside / file.name)
        elsewhere = [str(file) for file in weight_files if not _link(file, aside / file.name)]
        content = {**provenance, "weights": [str(file) for file in weight_files], "weights_not_beside": elsewhere}
        (aside / PROVENANCE).write_text(json.dumps(content, indent=1, sort_keys=True))
        _swap(aside, target)
    except OSError as error:
        raise StoreError(
            f"can't write {target}: {error.strerror or error}", next="choose a folder you can write to, with space left"
        ) from error
    finally:
        shutil.rmtree(aside, ignore_errors=True)
    return target / MAIN_FILE[family]


def pack(artifact: Path, weights: "WeightSet", target: Path, *, family: str, provenance: dict[str, Any]) -> Path:
    """Like `publish`, but self-contained: the weights are copied into one file that the graph points at."""
    if family == "executorch":
        return publish(artifact, [], target, family=family, provenance=provenance)
    from exporters import weights as weight_files

    scratch = target.with_name(f".{target.name}.{uuid.uuid4().hex}.pack")
    try:
        scratch.mkdir(parents=True)
        file = scratch / weight_files.FILE
        if family == "onnx":
            import onnx_ir

            from exporters import onnx_binding

            model = onnx_ir.load(artifact / "model.onnx")
            read = {name for name, value in model.graph.initializers.items() if isinstance(value.const_value, onnx_ir.ExternalTensor)}
            canonical = weight_files.write({name: tensor for name, tensor in weights.load().items() if name in read}, file)
            places = weight_files.read_header(file)
            onnx_binding.rebind(model, {name: (file.name, places[stored]) for name, stored in canonical.items()})
            packed = scratch / "artifact"
            packed.mkdir()
            for each in artifact.iterdir():
                shutil.copyfile(each, packed / each.name)
            onnx_binding.serialize(model, packed / "model.onnx")
            artifact = packed
        else:
            weight_files.write(weights.load(), file)
        return publish(artifact, [file], target, family=family, provenance={**provenance, "packed": True})
    except OSError as error:
        raise StoreError(
            f"can't write {target}: {error.strerror or error}", next="choose a folder you can write to, with space left"
        ) from error
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _link(source: Path, link: Path) -> bool:
    try:
        link.hardlink_to(source.resolve())
    except OSError:
        return False  # another file system, or one without hard links
    return True


def _refuse_foreign(target: Path) -> None:
    """A folder that an export replaces has to be one that an export made."""
    if target.is_file():
        raise StoreError(f"{target} is a file", next="give a folder")
    if target.is_dir() and any(target.iterdir()) and not (target / PROVENANCE).exists():
        raise StoreError(f"{target} has files that zooport didn't write", next="give an empty or a new folder")


def _swap(aside: Path, target: Path) -> None:
    """Put `aside` in the place of `target`."""
    old = target.with_name(f".{target.name}.{uuid.uuid4().hex}.old")
    had_one = target.exists()
    if had_one:
        target.rename(old)
    try:
        aside.rename(target)
    except OSError:
        if had_one:
            old.rename(target)
        raise
    shutil.rmtree(old, ignore_errors=True)
