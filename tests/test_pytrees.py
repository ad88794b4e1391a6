"""Caches flatten to their tensors and counters, and are rebuilt from them."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch.utils import _pytree as pytree
from transformers.models.deepseek_v4.modeling_deepseek_v4 import DeepseekV4HCACache
from transformers.models.parakeet.generation_parakeet import ParakeetRNNTDecoderCache
from transformers.models.reformer.modeling_reformer import ReformerDynamicCache

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


def test_a_cache_apart_from_transformers_own_comes_back_without_its_config() -> None:
    cache = ParakeetRNNTDecoderCache(SimpleNamespace(decoder_hidden_size=4, num_decoder_layers=2))
    cache.lazy_initialization(torch.zeros(3, 1, 4))
    cache.update(torch.randn(3, 1, 4), torch.randn(2, 3, 4), torch.randn(2, 3, 4))
    pytrees.register_all()
    leaves, spec = pytree.tree_flatten(cache)
    assert spec.context.leaf_paths == ["cache", "cell_state", "hidden_state"]
    rebuilt = pytree.tree_unflatten(leaves, spec)
    assert rebuilt.is_initialized
    assert torch.equal(rebuilt.cell_state, cache.cell_state)
    assert spec == pytree.tree_structure(rebuilt)


def test_how_many_tokens_a_cache_has_seen_is_no_part_of_its_structure() -> None:
    pytrees.register_all()
    caches = [ReformerDynamicCache([(torch.zeros(0), torch.zeros(1, length, 4))]) for length in (3, 5)]
    for cache, length in zip(caches, (3, 5), strict=True):
        cache._seen_tokens = length
    assert pytree.tree_structure(caches[0]) == pytree.tree_structure(caches[1])


@pytest.mark.parametrize("steps", [0, 1, 3])
def test_a_layer_comes_back(steps: int) -> None:
    layer = filled(steps)
    rebuilt = pytree.tree_unflatten(*pytree.tree_flatten(layer))
    assert rebuilt.entry_count == {"compressor": steps}
    assert rebuilt.sliding_window == layer.sliding_window
    for got, wanted in zip(pytree.tree_leaves(rebuilt), pytree.tree_leaves(layer), strict=True):
        assert torch.equal(torch.as_tensor(got), torch.as_tensor(wanted))
