"""What the zoo's tests share: walking nested inputs and outputs, and digests that two processes can compare."""

import copy
import hashlib
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import torch

from exporters.zoo.sample import Sample

# what other tests, the README and the demo name; everything below holds for each of them
ROWS = (
    "BertForSequenceClassification",
    "DistilBertForTokenClassification",
    "GPT2LMHeadModel",
    "LlamaForCausalLM",
    "LlamaForCausalLM@decode",
    "T5ForConditionalGeneration",
    "WhisperForConditionalGeneration",
    "ViTForImageClassification",
    "CLIPModel",
    "SwinForImageClassification",
    "MixtralForCausalLM",
    "MambaForCausalLM",
    "DetrForObjectDetection",
    "SegformerForSemanticSegmentation",
    "Wav2Vec2ForCTC",
    "LlavaForConditionalGeneration",
    "NllbMoeForConditionalGeneration",
)


def leaves(value: Any, path: str = "") -> Iterator[tuple[str, torch.Tensor]]:
    """Every tensor in nested dicts, sequences, outputs and caches, with its dotted path."""
    if isinstance(value, torch.Tensor):
        yield path, value
    elif hasattr(value, "layers"):
        for index, layer in enumerate(value.layers):
            yield from leaves(vars(layer), f"{path}.{index}")
    elif hasattr(value, "self_attention_cache"):
        yield from leaves([value.self_attention_cache, value.cross_attention_cache], path)
    elif hasattr(value, "items"):
        for key, item in value.items():
            yield from leaves(item, f"{path}.{key}" if path else str(key))
    elif isinstance(value, (list, tuple)):
        for index, item in enumerate(value):
            yield from leaves(item, f"{path}.{index}")


def input_sets(sample: Sample) -> dict[str, dict[str, Any]]:
    return {"inputs": sample.inputs, **sample.others}


def run(sample: Sample, inputs: dict[str, Any]) -> dict[str, torch.Tensor]:
    """Outputs by path; a cache among the inputs is copied first, because forward appends to it."""
    with torch.no_grad():
        return dict(leaves(sample.model(**copy.deepcopy(inputs))))


def digest(sample: Sample) -> str:
    """Of every weight, buffer and input, bit by bit."""
    hasher = hashlib.sha256()
    for name, tensor in [*sample.model.state_dict().items(), *leaves(input_sets(sample))]:
        hasher.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        hasher.update(tensor.detach().contiguous().view(torch.uint8).numpy().tobytes() if tensor.ndim else str(tensor.item()).encode())
    return hasher.hexdigest()


def in_new_process(code: str) -> str:
    """Standard output of `code` in a fresh interpreter."""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()
