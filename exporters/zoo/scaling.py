"""Give a random model weights that matter.

Models are born with matrices of standard deviation 0.02, biases of 0 and norms of 1: attention is then flat, scores tie,
and a wrong bias or norm changes nothing, so that a parity check on such a model compares next to nothing. Here matrices
keep the variance of what they multiply, and constant vectors get noise. What a model initialises on purpose
(a state space's decay rates, T5's embeddings) is left alone: only what is too small grows.
"""

from __future__ import annotations

import torch
from torch import nn
from transformers.pytorch_utils import Conv1D

_VECTOR_NOISE = 0.1
_TABLE_STD = 0.5  # position tables, class tokens, queries: beside hidden states of about one


def _fan_in(module: nn.Module, weight: torch.Tensor) -> int:
    """How many products one output sums."""
    if isinstance(module, nn.modules.conv._ConvNd) and module.transposed:
        return weight.shape[0] * weight[0, 0].numel() // module.groups
    if isinstance(module, nn.modules.conv._ConvNd):
        return weight[0].numel()
    if isinstance(module, Conv1D):  # keeps (in, out)
        return weight.shape[0]
    return weight.shape[-1]


def _is_constant(tensor: torch.Tensor) -> bool:
    return bool((tensor == tensor.flatten()[0]).all())


def _scale_parameter(module: nn.Module, name: str, parameter: torch.Tensor, generator: torch.Generator) -> None:
    if not parameter.is_floating_point() or parameter.numel() < 2:
        return
    noise = torch.empty_like(parameter).normal_(generator=generator)
    if not parameter.isfinite().all():
        # forgotten by the class: `build_model` fills memory with NaN
        parameter.copy_(noise * (_VECTOR_NOISE if parameter.ndim == 1 else _fan_in(module, parameter) ** -0.5))
        return
    if parameter.ndim == 1:
        # a vector that isn't constant was initialised on purpose
        if _is_constant(parameter):
            parameter.add_(noise * _VECTOR_NOISE)
        return
    is_matrix = name == "weight" or (parameter.ndim == 3 and parameter.shape[0] > 1)
    if isinstance(module, nn.Embedding):
        target = parameter.shape[-1] ** -0.5  # so that a head tied to it gives logits of about one
    elif is_matrix:
        target = _fan_in(module, parameter) ** -0.5
    else:
        target = _TABLE_STD
    if _is_constant(parameter):
        if not parameter.any():
            parameter.copy_(noise * target)
        return
    spread = float(parameter.std())
    if spread < target and (is_matrix or isinstance(module, nn.Embedding) or spread < 0.1):
        parameter.mul_(target / spread)


def scale_weights(model: nn.Module, seed: int) -> None:
    """Rescale `model`'s parameters and batch statistics in place, the same way for the same seed.

    Args:
        model: freshly initialised, in float32.
        seed: for the noise; the global random state is not touched.
    """
    generator = torch.Generator().manual_seed(seed)
    seen: set[int] = set()
    with torch.no_grad():
        for module in model.modules():
            for name, parameter in module.named_parameters(recurse=False):
                if id(parameter) not in seen:  # tied weights are scaled once
                    seen.add(id(parameter))
                    _scale_parameter(module, name, parameter, generator)
            for name, buffer in module.named_buffers(recurse=False):
                if name == "running_var":
                    buffer.uniform_(0.5, 1.5, generator=generator)
                elif name == "running_mean" or (buffer.is_floating_point() and buffer.isnan().any()):
                    buffer.normal_(0.0, _VECTOR_NOISE, generator=generator)
            padding = getattr(module, "padding_idx", None)
            if isinstance(module, nn.Embedding) and padding is not None:
                module.weight[padding].zero_()
