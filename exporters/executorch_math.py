"""Functions that ExecuTorch has no kernel for, spelled with those that it has."""

import math

import torch
import torch.nn.functional as F


def conv3d(
    input: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    stride: tuple[int, int, int],
    padding: tuple[int, int, int],
    dilation: tuple[int, int, int],
    groups: int,
) -> torch.Tensor:
    """A three-dimensional convolution as the sum of two-dimensional ones, one for each place along the first dimension of its kernel."""
    if input.dim() == 4:
        return conv3d(input[None], weight, bias, stride, padding, dilation, groups)[0]
    if padding[0]:
        input = F.pad(input, (0, 0, 0, 0, padding[0], padding[0]))
    batch, _, length, _, _ = input.shape
    steps = (length - dilation[0] * (weight.shape[2] - 1) - 1) // stride[0] + 1
    total: torch.Tensor | None = None
    for place in range(weight.shape[2]):
        first = place * dilation[0]
        frames = input[:, :, first : first + stride[0] * (steps - 1) + 1 : stride[0]].transpose(1, 2).flatten(0, 1)
        part = F.conv2d(frames, weight[:, :, place], bias if place == 0 else None, stride[1:], padding[1:], dilation[1:], groups)
        total = part if total is None else total + part
    assert total is not None
    return total.unflatten(0, (batch, steps)).transpose(1, 2)


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
