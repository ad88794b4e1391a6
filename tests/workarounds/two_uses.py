"""A transpose that is flattened and also summed over: a value and a copy of it leave one delegate.

`zooport export tests/workarounds/two_uses.py --backend executorch.xnnpack`
"""

import torch
from torch import nn


class TwoUses(nn.Module):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        turned = torch.relu(x).transpose(1, 2)
        return turned.flatten(1), turned.sum(1)


def build() -> tuple[nn.Module, dict[str, torch.Tensor], dict[str, torch.Tensor]]:
    return TwoUses(), {"x": torch.randn(2, 4, 3)}, {"x": torch.randn(3, 4, 3)}
