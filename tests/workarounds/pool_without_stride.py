"""A pool that leaves its stride out: torch takes the kernel's.

`zooport export tests/workarounds/pool_without_stride.py --backend executorch.xnnpack`
"""

import torch
from torch import nn
from torch.nn import functional as F


class Pool(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.max_pool2d(torch.relu(x), 2)


def build() -> tuple[nn.Module, dict[str, torch.Tensor], dict[str, torch.Tensor]]:
    return Pool(), {"x": torch.randn(2, 3, 12, 12)}, {"x": torch.randn(3, 3, 12, 12)}
