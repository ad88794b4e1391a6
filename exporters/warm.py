"""Import once, in a parent, what every child that it forks for a family needs."""

import functools
import gc
import importlib
import logging
import os

import fsspec

from exporters.configs import NATIVE_OPSET

_EVERYONE = (
    *("exporters.stage_makers", "exporters.verification", "transformers.modeling_utils", "exporters.zoo.build"),
    *("torch.export._trace", "sympy.tensor.tensor"),  # what torch itself imports in the middle of an export
)
_FAMILIES = {
    "dynamo": (),
    "onnx": ("exporters.exporter_onnx", "torch._inductor.ir"),
    "executorch": ("exporters.exporter_executorch", "executorch.exir", "executorch.backends.xnnpack.partition.xnnpack_partitioner"),
}


def ready(store: str) -> None:
    """Import what finding everything in the artifact store needs, and for a store at a URL what reaches it."""
    importlib.import_module("exporters.chain")
    if "://" in store:
        fsspec.get_filesystem_class(store.partition("://")[0])


@functools.cache
def warm_up(family: str) -> None:
    """Import torch, transformers and what exports to `family`, and leave nothing that a fork would copy or break."""
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    logging.disable(logging.WARNING)  # notes about optional packages that aren't there
    try:
        for module in (*_EVERYONE, *_FAMILIES[family]):
            importlib.import_module(module)
        if family == "onnx":
            from exporters import onnx_pieces

            onnx_pieces.registry_for(NATIVE_OPSET, {})
    finally:
        logging.disable(logging.NOTSET)
    import torch

    torch.set_num_threads(1)  # a forked child can't use its parent's threads
    gc.collect()
    gc.freeze()
