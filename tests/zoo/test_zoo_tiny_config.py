"""The shrinking rules, one by one."""

from typing import Any

import pytest
from transformers import (
    CLIPConfig,
    DetrConfig,
    Gemma3TextConfig,
    GPT2Config,
    LlamaConfig,
    LlavaConfig,
    MambaConfig,
    NllbMoeConfig,
    SegformerConfig,
    SwinConfig,
    Wav2Vec2Config,
)

from exporters.zoo.overrides import override
from exporters.zoo.tiny_config import HEADS, LAYERS, VOCABULARY, WIDTH, shrink, tiny


@pytest.mark.parametrize(("kv_heads", "tiny_kv_heads"), [(32, 4), (8, 2), (1, 1)])
def test_attention_keeps_its_kind(kv_heads: int, tiny_kv_heads: int) -> None:
    small = shrink(LlamaConfig(num_key_value_heads=kv_heads))
    assert (small.num_attention_heads, small.num_key_value_heads) == (HEADS, tiny_kv_heads)


def test_what_is_small_stays() -> None:
    small = shrink(LlamaConfig(hidden_size=32, num_hidden_layers=1, vocab_size=40, num_attention_heads=2, head_dim=16))
    assert (small.hidden_size, small.num_hidden_layers, small.vocab_size, small.num_attention_heads) == (32, 1, 40, 2)


def test_config_itself_is_not_changed() -> None:
    config = LlavaConfig()
    before = config.to_dict()
    shrink(config)
    assert config.to_dict() == before


def test_derived_fields_are_computed_again() -> None:
    small = tiny(MambaConfig)
    assert small.intermediate_size == small.expand * WIDTH
    assert tiny(LlamaConfig).head_dim == WIDTH // HEADS


def test_sub_configs_shrink_and_keep_their_kind() -> None:
    small = tiny(LlavaConfig)
    assert small.vision_config.model_type == "clip_vision_model"
    assert small.vision_config.hidden_size == small.text_config.hidden_size == WIDTH
    assert small.text_config.num_hidden_layers == LAYERS


def test_nested_strings_that_differ_from_the_class_are_carried_over() -> None:
    config = CLIPConfig(text_config={"hidden_act": "gelu_new"})
    assert shrink(config).text_config.hidden_act == "gelu_new"


def test_special_tokens_beyond_the_vocabulary_get_ids_of_their_own() -> None:
    text = tiny(CLIPConfig).text_config
    special = [text.pad_token_id, text.bos_token_id, text.eos_token_id]
    assert len(set(special)) == 3
    assert max(special) < 25 < VOCABULARY


def test_special_tokens_that_were_one_stay_one() -> None:
    small = tiny(GPT2Config)
    assert small.bos_token_id == small.eos_token_id < VOCABULARY


def test_image_placeholder_is_in_the_vocabulary_of_the_text() -> None:
    small = tiny(LlavaConfig)
    assert small.image_token_id < small.text_config.vocab_size


def test_several_kinds_of_layer_keep_one_each() -> None:
    small = tiny(Gemma3TextConfig)
    assert set(small.layer_types) == {"sliding_attention", "full_attention"}
    assert small.num_hidden_layers == len(small.layer_types)


def test_hierarchical_widths_rise_and_heads_follow() -> None:
    small = tiny(SegformerConfig)
    assert small.hidden_sizes == [16, 32, 48, 64]
    assert all(width // heads == 16 for width, heads in zip(small.hidden_sizes, small.num_attention_heads, strict=True))
    assert small.sr_ratios == SegformerConfig().sr_ratios


def test_kernels_and_strides_are_not_touched() -> None:
    default, small = Wav2Vec2Config(), tiny(Wav2Vec2Config)
    assert (small.conv_kernel, small.conv_stride) == (default.conv_kernel, default.conv_stride)


def test_sparse_and_dense_layer_of_a_mixture() -> None:
    small = tiny(NllbMoeConfig, override("nllb-moe").config)
    assert small.encoder_layers == small.encoder_sparse_step == 2


def test_override_may_name_another_class_for_a_part() -> None:
    small = tiny(DetrConfig, override("detr").config)
    assert small.backbone_config.model_type == "resnet"
    assert small.backbone_config.out_features == ["stage2"]


def test_override_wins_over_the_rules() -> None:
    given: dict[str, Any] = override("swin").config
    small = tiny(SwinConfig, given)
    assert {name: getattr(small, name) for name in given} == given
    assert max(small.depths) == 2  # a lone block never shifts its windows
    assert small.image_size // small.patch_size > small.window_size


def test_override_table_gives_a_reason_for_each() -> None:
    from exporters.zoo.overrides import _table

    assert [model_type for model_type, declared in _table().items() if not declared.why] == []
    assert [bound for declared in _table().values() for bound in declared.inputs.get("bounds", {}).values() if not bound["why"]] == []
