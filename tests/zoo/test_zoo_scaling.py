"""Weights after scaling: what is too small grows, what was made on purpose stays."""

from collections.abc import Iterator

import pytest
import torch
from torch import nn

from exporters.zoo.scaling import scale_weights


@pytest.fixture(autouse=True)
def _seeded() -> Iterator[None]:
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(0)
        yield


def test_matrices_keep_the_variance() -> None:
    layer = nn.Linear(64, 512)
    nn.init.normal_(layer.weight, std=0.02)
    scale_weights(layer, seed=1)
    assert 0.9 < float(layer(torch.randn(200, 64)).std()) < 1.1


def test_convolution_keeps_the_variance() -> None:
    layer = nn.Conv2d(3, 64, 8)
    nn.init.normal_(layer.weight, std=0.02)
    scale_weights(layer, seed=1)
    assert 0.8 < float(layer(torch.randn(4, 3, 16, 16)).std()) < 1.2


def test_norms_and_biases_are_no_longer_constant() -> None:
    layer = nn.LayerNorm(64)
    scale_weights(layer, seed=1)
    assert 0.05 < float(layer.weight.std()) < 0.2
    assert 0.05 < float(layer.bias.std()) < 0.2
    assert 0.9 < float(layer.weight.mean()) < 1.1


def test_vector_with_a_meaning_stays() -> None:
    module = nn.Module()
    module.rates = nn.Parameter(torch.linspace(-4, -1, 16))
    before = module.rates.detach().clone()
    scale_weights(module, seed=1)
    assert torch.equal(module.rates, before)


def test_large_embedding_stays() -> None:
    table = nn.Embedding(100, 64)  # std 1
    before = table.weight.detach().clone()
    scale_weights(table, seed=1)
    assert torch.equal(table.weight, before)


def test_padding_row_of_an_embedding_is_zero() -> None:
    table = nn.Embedding(10, 8, padding_idx=3)
    scale_weights(table, seed=1)
    assert not table.weight[3].any()
    assert table.weight[2].any()


def test_zero_table_gets_values() -> None:
    module = nn.Module()
    module.positions = nn.Parameter(torch.zeros(1, 10, 64))
    scale_weights(module, seed=1)
    assert 0.4 < float(module.positions.std()) < 0.6


def test_tied_weights_are_scaled_once_and_stay_tied() -> None:
    def pair() -> nn.Module:
        torch.manual_seed(0)
        module = nn.Module()
        module.table = nn.Embedding(50, 64)
        nn.init.normal_(module.table.weight, std=0.02)
        return module

    alone, tied = pair(), pair()
    tied.head = nn.Linear(64, 50, bias=False)
    tied.head.weight = tied.table.weight
    scale_weights(alone, seed=1)
    scale_weights(tied, seed=1)
    assert tied.head.weight is tied.table.weight
    assert torch.equal(alone.table.weight, tied.table.weight)


def test_batch_statistics_are_no_longer_neutral() -> None:
    norm = nn.BatchNorm2d(16)
    scale_weights(norm, seed=1)
    assert norm.running_mean is not None
    assert norm.running_var is not None
    assert norm.running_mean.abs().max() > 0
    assert 0.5 <= float(norm.running_var.min()) < float(norm.running_var.max()) <= 1.5


def test_global_random_state_is_untouched() -> None:
    layer = nn.Linear(8, 8)
    before = torch.get_rng_state()
    scale_weights(layer, seed=1)
    assert torch.equal(before, torch.get_rng_state())
