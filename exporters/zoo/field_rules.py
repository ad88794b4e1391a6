"""How one field of a config shrinks, known by its name.

One width everywhere makes projections between parts fit without knowing which parts there are. Names are matched whole, with
whatever prefix a model puts before them (`encoder_`, `text_`, `memory_attention_`, …).
"""

from __future__ import annotations

import re
from typing import Any

from transformers import PreTrainedConfig

WIDTH = 64
HEADS = 4
HEAD_DIM = WIDTH // HEADS
EXPERT_WIDTH = 32
LAYERS = 2
VOCABULARY = 256
POSITIONS = 256
EXPERTS = 4
IMAGE = 32
PATCH = 8
HIERARCHICAL_IMAGE = 64
STAGE_STEP = 16  # width of a hierarchical network's first stage, and of one of its heads
WINDOW = 8
CODES = 64  # entries of a codebook

# ── Upper bounds by field name ────────────────────────────────────────────────
# An integer field shrinks to the bound, and stays what it is when it is smaller. The first pattern that fits counts.

_ANY = r"(?:\w+_)?"
_KEPT = re.compile(
    r"hidden_size_per_layer_input|num_feat_extract_layers|num_channels|_?out_features|stem_channels|patch_embed_input_channels"
    r"|keypoint_decoder_dim"
)
_CAPS: tuple[tuple[re.Pattern[str], int], ...] = tuple(
    (re.compile(pattern), bound)
    for pattern, bound in (
        # experts
        (rf"{_ANY}(moe_intermediate_size|expert_dim|(shared_)?experts?_intermediate_size|expert_ffn_hidden_size)", EXPERT_WIDTH),
        (r"(moe_)?num_experts|num_local_experts|n_routed_experts", EXPERTS),
        (r"num_experts_per_tok(en)?|moe_topk|moe_k|top_?k_experts|n_group|zero_expert_num|(moe_)?num_shared_experts", 2),
        (r"topk_group|first_k_dense_replace|num_dense_layers|num_kv_shared_layers|max_window_layers|num_nextn_predict_layers", 1),
        (r"attn_layer_period|expert_layer_period|full_attention_interval|sliding_window_pattern|no_rope_layer_interval", 2),
        (rf"{_ANY}sparse_step|interleave_moe_layer_step|global_attn_every_n_layers|shared_attn_every", 2),
        (r"attn_layer_offset|expert_layer_offset", 1),
        # ranks and states
        (rf"{_ANY}(lora_rank|dt_rank|time_step_rank|rank|state_size|d_state|state_dim|ssm_state_size|gate_rank)", HEAD_DIM),
        (rf"{_ANY}(chunk_size|chunk_length|sliding_window|sliding_window_size|attention_window|attention_window_size|num_queries)", WINDOW),
        (rf"{_ANY}(num_query_tokens|num_latents|latent_query_num|n_latents|num_prompts|num_detection_tokens|attn_chunk_length)", WINDOW),
        (r"index_topk", WINDOW),
        (r"num_global_tokens|num_landmarks|segment_means_seq_len|num_prototypes|num_mask_tokens", WINDOW),
        (r"conv1d_width|n_groups|mamba_n_?groups|linear_num_key_heads|index_n_heads|merger_times", 2),
        (r"mamba_n_heads|mamba_num_heads|mamba_n_head", WIDTH * 2 // HEAD_DIM),
        (r"lru_width|mamba_d_ssm", WIDTH),
        # heads
        (rf"{_ANY}(head_dim|d_kv|d_head|head_size|dim_head|kv_channels|rotary_dim)", HEAD_DIM),
        # depths
        (
            rf"{_ANY}(num_hidden_layers|num_layers|n_layers?|encoder_layers|decoder_layers|layers|depth|num_blocks|num_encoder_layers"
            r"|num_decoder_layers|num_res_blocks|num_wavenet_layers|num_flows|num_hidden_groups)",
            LAYERS,
        ),
        # vocabularies and positions
        (
            rf"{_ANY}(vocab_size|num_embeddings|vocab_size_per_layer_input|hash_buckets|num_hash_buckets|num_(object|attr|qa|bpe|wordpiece"
            r"|character)_labels|head_out_channels|num_classes)",
            VOCABULARY,
        ),
        (rf"{_ANY}(codebook_size|num_codes|num_centroids|num_clusters|n_codes|codebook_vocab_size)", CODES),
        (
            rf"{_ANY}(max_position_embeddings|n_positions|max_source_positions|max_target_positions|max_seq_len|max_sequence_length"
            r"|max_position|n_ctx|max_speech_positions|max_text_positions|max_relative_positions|max_pos_emb|position_embedding_size"
            r"|original_max_position_embeddings|seq_length|block_size|max_2d_position_embeddings|max_xpath_subs_unit_embeddings)",
            POSITIONS,
        ),
        (r"base_channels", 2 * STAGE_STEP),  # which groups of 32 divide
        (r"num_filters", WINDOW),  # doubled from stage to stage
        (r"num_pos_feats", WIDTH // 2),  # sine and cosine make up the width
        (r"num_position_embeddings|num_patches", (IMAGE // PATCH) ** 2),
        # widths last, being the widest patterns
        (
            rf"{_ANY}(hidden_size|hidden_dim|d_model|n_embd|dim|embed_dim|emb_dim|embedding_dim|embedding_size|embed_size|emb_size"
            r"|projection_dim|projection_size|proj_dim|project_dim|projector_hidden_size|proj_size|output_dim|out_dim|in_dim|input_dim"
            r"|pooler_output_size|intermediate_size|intermediate_dim|ffn_dim|d_ff|d_inner|n_inner|dim_ff|ff_dim|upsample_groups|mlp_dim|feedforward_dim"
            r"|dim_feedforward|ffn_hidden_size|feed_forward_size|feedforward_size|filter_channels|units|linear_units|hidden_channels|width"
            r"|hidden_sizes?|intermediate_size_mlp|output_channels|latent_channels|predictor_channels|channels"
            r"|initial_channel|fpn_feature_size|mask_feature_size|flow_size|conv_dim|adapter_input_size|hidden|feature_size|bottleneck_features"
            r"|codebook_dim|hidden_dimension|d_latents|dimension|head_hidden_dim|coordinate_size|shape_size|num_features|hidden_size_global"
            r"|xvector_output_dim|classifier_proj_size)",
            WIDTH,
        ),
    )
)
# what ends like a width and isn't one: data that comes in, or what goes out to it
_DATA = re.compile(
    rf"(num_)?(in|input|out|audio|image|stem_num)_(channels|chans)|n?um_mel_bins|input_size|model_in_dim|mel_dim|feature_size|input_feat_size"
    rf"|{_ANY}mel_bins|num_channels_out|patch_dim|video_patch_dim|visual_pos_dim|query_dim|feature_projection_input_dim|state_dim|max_\w+_dim"
    rf"|min_depth|output_stride|frequency_embedding_size|per_layer_input|spatial_\w+"
)

# ── Lists ─────────────────────────────────────────────────────────────────────

_WIDTH_LISTS = re.compile(
    rf"{_ANY}(hidden_sizes|embed_dims?|neck_hidden_sizes|encoder_in_channels|decoder_in_channels|backbone_channel_list|embed_dim_per_stage"
    r"|fusion_hidden_sizes|hidden_dims|channel_list|feature_channels|features_channels|downsample_channels|unit_dims|convstream_hidden_sizes)"
)
_CONV_LISTS = re.compile(r"conv_dim|tdnn_dim")
_HEAD_LISTS = re.compile(r"num_attention_heads|num_heads|num_attention_heads_per_stage|encoder_num_heads")
_DEPTH_LISTS = re.compile(r"depths|blocks_per_stage|layers_per_stage|encoder_depths|n_attn_blocks")
# indices of layers, to be clamped to the layers that are left
INDEX_LISTS = re.compile(
    r"_?out_indices|backbone_out_indices|global_attn_indexes|fullatt_block_indexes|deepstack_visual_indexes|window_block_indices"
    r"|intermediate_layers_indices|cross_attention_layers|full_attn_idxs|moe_layers|vision_feature_layers?|neck_layers|insert_layer_id"
    r"|spatial_target_layers|rope_scaling_layers|intermediate_hidden_state_indices|global_attention_blocks|subsample_layers"
    r"|kv_source_layers|target_layer_ids|aux_layers|merge_layers"
)


def width_list(value: list[Any]) -> list[Any]:
    """Widths by rank from the largest, which is 64, in steps of 16: what ends alike stays alike in lists of different lengths."""
    ranks = sorted({width for width in value if isinstance(width, int)}, reverse=True)
    return [min(width, max(STAGE_STEP, WIDTH - STAGE_STEP * ranks.index(width))) if isinstance(width, int) else width for width in value]


def hierarchical(config: PreTrainedConfig) -> bool:
    """Whether it has stages whose resolution falls and whose width rises."""
    return any(isinstance(getattr(config, name, None), (list, tuple)) for name in ("depths", "blocks_per_stage"))


def _power_of_two(value: int) -> int:
    """The largest power of two that isn't above `value`, so that it divides the width."""
    return 1 << (value.bit_length() - 1)


def _kv_heads(config: PreTrainedConfig, name: str, value: int) -> int:
    """Multi-head, grouped and multi-query attention stay what they are."""
    heads = getattr(config, name.replace("key_value_", "attention_").replace("kv_", "attention_"), None)
    if not isinstance(heads, int):
        heads = getattr(config, "num_attention_heads", value)
    if value == heads:
        return min(HEADS, _power_of_two(value))
    return 1 if value == 1 else HEADS // 2


def _image_size(config: PreTrainedConfig, value: Any) -> Any:
    whole_patches = isinstance(getattr(config, "patch_size", None), (int, list, tuple)) and not hierarchical(config)
    size = IMAGE if whole_patches else HIERARCHICAL_IMAGE
    return size if isinstance(value, int) else [size] * len(value)


def _patch_size(config: PreTrainedConfig, value: Any) -> Any:
    """Where a fixed image is cut into patches; the patches of a hierarchical network are its strides and stay."""
    if hierarchical(config) or not any(hasattr(config, name) for name in ("image_size", "spatial_merge_size", "backbone_config")):
        return value
    if isinstance(value, int):
        return min(value, PATCH)
    return [PATCH if isinstance(size, int) and size > PATCH else size for size in value]


_IMAGE_SIZES = re.compile(r"(pretrain_)?image_size|img_size|max_image_size|image_resolution|resolution|crop_size|spec_size")
_KV_HEADS = re.compile(rf"{_ANY}(num_key_value_heads|num_kv_heads|num_key_value_attention_heads|multi_query_group_num)")
_HEADS = re.compile(
    rf"{_ANY}(num_attention_heads|attention_heads|num_heads|n_heads?|num_self_attention_heads|num_cross_attention_heads|attn_heads|heads)"
)


def knows(name: str) -> bool:
    """Whether a rule speaks of this field."""
    if _KEPT.fullmatch(name) or _DATA.fullmatch(name):
        return False
    patterns = (_WIDTH_LISTS, _CONV_LISTS, _HEAD_LISTS, _DEPTH_LISTS, INDEX_LISTS, _IMAGE_SIZES, _KV_HEADS, _HEADS, *(p for p, _ in _CAPS))
    return name in ("patch_size", "encoder_stride", "layer_types") or any(pattern.fullmatch(name) for pattern in patterns)


def shrunk(config: PreTrainedConfig, name: str, value: Any) -> Any:
    """The tiny value of one field; the value itself where no rule knows it."""
    if value is None or isinstance(value, (bool, str, float)) or not knows(name):
        return value
    if _IMAGE_SIZES.fullmatch(name):
        return _image_size(config, value)
    if name == "patch_size" or (name == "encoder_stride" and value == getattr(config, "patch_size", None)):
        return _patch_size(config, value)
    if isinstance(value, (list, tuple)):
        return _shrunk_list(config, name, list(value))
    if not isinstance(value, int) or value < 1:
        return value
    if _KV_HEADS.fullmatch(name):
        return _kv_heads(config, name, value)
    bound = next((bound for pattern, bound in _CAPS if pattern.fullmatch(name)), None)
    if _HEADS.fullmatch(name) and not (bound is not None and bound != WIDTH and "mamba" in name):
        return min(_power_of_two(value), bound if bound is not None else HEADS)
    if name == "embed_dim" and hierarchical(config):
        return min(value, STAGE_STEP)  # the first stage's; it doubles from stage to stage
    return value if bound is None else min(value, bound)


def _shrunk_list(config: PreTrainedConfig, name: str, value: list[Any]) -> list[Any]:
    if not value or not all(isinstance(item, int) for item in value):
        return value
    if _DEPTH_LISTS.fullmatch(name):
        return [1] * len(value)
    if _HEAD_LISTS.fullmatch(name):
        return _head_list(config, name, value)
    if _CONV_LISTS.fullmatch(name):
        return [min(width, EXPERT_WIDTH) for width in value]
    if _WIDTH_LISTS.fullmatch(name):
        return width_list(value)
    return value


def _head_list(config: PreTrainedConfig, name: str, value: list[int]) -> list[int]:
    """Heads of width 16 in every stage."""
    if isinstance(getattr(config, "embed_dim", None), int):
        return [2**stage for stage in range(len(value))]
    fields = ("hidden_sizes", "embed_dims", "embed_dim_per_stage", "embed_dim")
    widths = next((found for field in fields if (found := getattr(config, field, None))), None)
    if not isinstance(widths, (list, tuple)) or len(widths) != len(value):
        return [min(_power_of_two(heads), HEADS) for heads in value]
    small = width_list(list(widths))
    return [1 if heads == 1 else max(1, width // STAGE_STEP) for heads, width in zip(value, small, strict=True)]
