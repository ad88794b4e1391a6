"""Model patch for Muse Glimmer: the features of several images."""

from collections.abc import Callable
from typing import Any

import torch

from exporters.utils import register_patch

# ── Stage 2: Model patches ────────────────────────────────────────────────────


@register_patch("dynamo", "transformers.models.muse_glimmer.modeling_muse_glimmer.MuseGlimmerModel.get_image_features")
def _patch_muse_image_pieces(original: Callable[..., Any]) -> Callable[..., Any]:
    """Hand the features of all images on in one piece, instead of one piece an image; the model joins them again.

    Why: the lengths of the pieces are read as numbers, one for each image, which freezes how many images there are.
    Cost: `pooler_output` of an exported `get_image_features` is a tuple of one tensor, the concatenation of eager's.
    Upstream: not filed.
    Seen in: MuseGlimmerForConditionalGeneration
    """

    def patch(self: Any, pixel_values: torch.Tensor, image_grid_thw: torch.Tensor, **kwargs: Any) -> Any:
        outputs = self.vision_tower(pixel_values=pixel_values, grid_thw=image_grid_thw, **{**kwargs, "return_dict": True})
        features = self.vision_projection(self.vision_adapter(outputs.last_hidden_state))
        outputs.pooler_output = (self.perception_emb_norm(features),)
        return outputs

    return patch
