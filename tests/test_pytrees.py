"""Caches flatten to their tensors and counters, and are rebuilt from them."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch.utils import _pytree as pytree
from transformers.models.deepseek_v4.modeling_deepseek_v4 import DeepseekV4HCACache

from exporters import pytrees


def filled(steps: int) -> Any:
    """A layer of DeepSeek V4's cache after so many windows."""
    layer = DeepseekV4HCACache(SimpleNamespace(sliding_window=4, compress_rates={"heavily_compressed_attention": 2}))
    pytrees.register(DeepseekV4HCACache)
    states = torch.randn(1, 1, 2, 3)
    for _ in range(steps):
        layer.update(states, states)
        layer.store_compression_weights("compressor", states[0], states[0])
        layer.update_compressor_states("compressor", states[0, :, :1])
    return layer


def test_a_counter_in_a_dict_is_a_leaf() -> None:
    """Otherwise it would be one in a trace, where it is a symbol, and none outside of it."""
    leaves, spec = pytree.tree_flatten(filled(3))
    assert "entry_count.compressor" in spec.context.leaf_paths
    assert leaves[spec.context.leaf_paths.index("entry_count.compressor")] == 3
    assert spec == pytree.tree_structure(filled(2))


@pytest.mark.parametrize("steps", [0, 1, 3])
def test_a_layer_comes_back(steps: int) -> None:
    layer = filled(steps)
    rebuilt = pytree.tree_unflatten(*pytree.tree_flatten(layer))
    assert rebuilt.entry_count == {"compressor": steps}
    assert rebuilt.sliding_window == layer.sliding_window
    for got, wanted in zip(pytree.tree_leaves(rebuilt), pytree.tree_leaves(layer), strict=True):
        assert torch.equal(torch.as_tensor(got), torch.as_tensor(wanted))
