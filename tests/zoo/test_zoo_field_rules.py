"""Shrinking one field at a time."""

from typing import Any

import pytest
from transformers import AutoConfig, Gemma3TextConfig, LlamaConfig, PreTrainedConfig, ResNetConfig, SwinConfig, ViTConfig

from exporters.zoo.field_rules import knows, shrunk, width_list
from exporters.zoo.tiny_config import shrink


@pytest.mark.parametrize(
    ("name", "value", "small"),
    [
        ("hidden_size", 4096, 64),
        ("encoder_hidden_size", 48, 48),  # small enough already
        ("text_projection_dim", 512, 64),
        ("moe_intermediate_size", 2048, 32),
        ("num_hidden_layers", 32, 2),
        ("speech_decoder_postnet_layers", 5, 2),
        ("num_attention_heads", 12, 4),
        ("num_attention_heads", 3, 2),  # a divisor of the width
        ("head_dim", 128, 16),
        ("vocab_size", 32000, 256),
        ("codebook_size", 1024, 64),
        ("max_position_embeddings", 131072, 256),
        ("sliding_window", 4096, 8),
        ("num_experts", 128, 4),
        ("num_experts_per_tok", 8, 2),
        ("first_k_dense_replace", 3, 1),
        ("full_attention_interval", 4, 2),
    ],
)
def test_numbers(name: str, value: int, small: int) -> None:
    assert shrunk(PreTrainedConfig(), name, value) == small


@pytest.mark.parametrize(
    "name", ["num_channels", "num_mel_bins", "kernel_size", "type_vocab_size", "feature_size", "layer_norm_eps", "mlp_ratio"]
)
def test_what_is_data_or_shape_stays(name: str) -> None:
    assert not knows(name) or shrunk(PreTrainedConfig(), name, 2) == 2


@pytest.mark.parametrize(
    ("widths", "small"),
    [
        ([256, 512, 1024, 2048], [16, 32, 48, 64]),
        ([512, 1024, 2048], [32, 48, 64]),  # what ends alike stays alike
        ([768, 384, 192, 96], [64, 48, 32, 16]),
        ([256, 256, 256], [64, 64, 64]),
        ([16, 32, 64, 96, 128, 160, 640], [16, 16, 16, 16, 32, 48, 64]),
        ([8, 12], [8, 12]),
    ],
)
def test_lists_of_widths_by_rank(widths: list[int], small: list[int]) -> None:
    assert width_list(widths) == small


def test_strings_booleans_and_floats_are_no_sizes() -> None:
    for value in ("768", True, 0.5, None):
        assert shrunk(PreTrainedConfig(), "hidden_size", value) is value


def test_a_fixed_image_is_cut_into_whole_patches() -> None:
    small = shrink(ViTConfig())
    assert (small.image_size, small.patch_size) == (32, 8)
    hierarchical = shrink(SwinConfig())
    assert (hierarchical.image_size, hierarchical.patch_size) == (64, 4)  # its patches are strides


# ── Fields that must agree ────────────────────────────────────────────────────


def test_one_layer_of_each_kind_in_every_list_of_layers() -> None:
    small = shrink(AutoConfig.for_model("deepseek_v4"))
    assert small.num_hidden_layers == len(small.layer_types) == len(small.mlp_layer_types)
    assert set(small.layer_types) == set(AutoConfig.for_model("deepseek_v4").layer_types)


def test_layers_that_differ_keep_their_difference() -> None:
    small = shrink(AutoConfig.for_model("gemma4_text"))
    full = small.layer_types.index("full_attention")
    assert small.per_layer_config[full].head_dim == 2 * small.per_layer_config[1 - full].head_dim


def test_a_backbone_keeps_as_many_outputs_and_gets_layers_for_them() -> None:
    small = shrink(AutoConfig.for_model("dinov2", out_indices=[3, 6, 9, 12]))
    assert small.out_features == ["stage1", "stage2", "stage3", "stage4"]
    assert small.num_hidden_layers == 4


def test_a_timm_backbone_becomes_a_resnet_with_as_many_outputs() -> None:
    small = shrink(AutoConfig.for_model("conditional_detr"))
    assert isinstance(small.backbone_config, ResNetConfig)
    assert len(small.backbone_config.out_features) == len(AutoConfig.for_model("conditional_detr").backbone_config.out_indices)


def test_rotary_sections_add_up_to_half_a_head() -> None:
    text = shrink(AutoConfig.for_model("qwen2_vl")).text_config
    assert sum(text.rope_parameters["mrope_section"]) == text.hidden_size // text.num_attention_heads // 2


def test_special_tokens_are_one_family_in_a_nested_config() -> None:
    small = shrink(AutoConfig.for_model("qwen3_vl"))
    ids: list[Any] = [small.image_token_id, small.video_token_id, small.vision_start_token_id, small.vision_end_token_id]
    present = [one for one in ids if isinstance(one, int)]
    assert len(set(present)) == len(present)
    assert max(present) < 40


def test_a_placeholder_that_the_config_leaves_open_gets_an_id() -> None:
    assert AutoConfig.for_model("blip-2").image_token_id is None
    assert isinstance(shrink(AutoConfig.for_model("blip-2")).image_token_id, int)


def test_fields_that_are_kept_don_t_shrink() -> None:
    assert shrink(LlamaConfig(), {"keep": ["hidden_size"], "num_attention_heads": 32}).hidden_size == 4096


def test_sizes_left_to_be_computed_are_computed() -> None:
    small = shrink(Gemma3TextConfig())
    assert small.head_dim == 16
    zamba = shrink(AutoConfig.for_model("zamba"))
    assert zamba.attention_hidden_size == 2 * zamba.hidden_size
