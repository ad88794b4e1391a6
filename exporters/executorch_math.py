"""Functions that ExecuTorch has no kernel for, spelled with those that it has."""

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
