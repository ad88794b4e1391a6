"""Patch for the logarithm of the gamma function, which likelihoods are made of."""

import math
from collections.abc import Callable

import torch

from exporters.utils import register_patch

# ── Stage 2: Torch patches ────────────────────────────────────────────────────


@register_patch("onnx", "torch.lgamma", "torch.Tensor.lgamma")
@register_patch("executorch", "torch.lgamma", "torch.Tensor.lgamma")
def _patch_lgamma(original: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    """Spell the logarithm of the gamma function with arithmetic and logarithms.

    Why: ExecuTorch has no kernel for `lgamma`, torchlib no translation of `prims.lgamma`.
    Cost: an error of up to 1e-5 in float32, and some forty operations.
    Upstream: not filed.
    Seen in: AutoformerForPrediction, InformerForPrediction
    """
    return lambda input: log_gamma(input)


def log_gamma(x: torch.Tensor) -> torch.Tensor:
    """The logarithm of the gamma function's magnitude, by Stirling's series: within 1e-5 of torch's in float32.

    Half precision is computed in float32; integers give torch's default type, as `torch.lgamma` does.
    """
    dtype = x.dtype if x.is_floating_point() else torch.get_default_dtype()
    x = x.to(torch.promote_types(dtype, torch.float32))
    # below one half by reflection
    left = x < 0.5
    z = torch.where(left, 1 - x, x)
    # the series wants large arguments: small ones go seven steps up, and the logarithm of their product is taken off
    near = z < 7
    steps = torch.where(near, z, 1.0)
    product = steps
    for step in range(1, 7):
        product = product * torch.where(near, steps + step, 1.0)
    w = torch.where(near, z + 7, z)
    inverse = 1 / w
    square = inverse * inverse
    tail = inverse * (1 / 12 - square * (1 / 360 - square / 1260))
    value = (w - 0.5) * (torch.log(w) - 1) + (0.5 * math.log(2 * math.pi) - 0.5) + tail - torch.log(product)
    # the sine of the distance to the next integer: exactly 0 at the poles
    sine = torch.sin(math.pi * (x - torch.round(x)).abs())
    value = torch.where(left, math.log(math.pi) - torch.log(sine) - value, value)
    return torch.where(torch.isinf(x), math.inf, value).to(dtype)
