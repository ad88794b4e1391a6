"""Model patch for Gemma 4: the features of several images."""

from collections.abc import Callable
from typing import Any

import torch

from exporters.utils import register_patch

# ── Stage 2: Model patches ────────────────────────────────────────────────────


@register_patch("dynamo", "transformers.models.gemma4.modeling_gemma4.Gemma4Model.get_image_features")
def _patch_image_pieces(original: Callable[..., Any]) -> Callable[..., Any]:
    """Hand the features of all images on in one piece, instead of one piece an image; the model joins them again.

    Why: the lengths of the pieces are read as numbers, one for each image, which freezes how many images there are.
    Cost: `pooler_output` of an exported `get_image_features` is a tuple of one tensor, the concatenation of eager's.
    Upstream: not filed.
    Seen in: Gemma4ForConditionalGeneration
    """

    def patch(self: Any, pixel_values: torch.Tensor, image_position_ids: torch.Tensor | None = None, **kwargs: Any) -> Any:
        if image_position_ids is None:
            return original(self, pixel_values, image_position_ids, **kwargs)
        outputs = self.vision_tower(pixel_values=pixel_values, pixel_position_ids=image_position_ids, **{**kwargs, "return_dict": True})
        outputs.pooler_output = (self.embed_vision(inputs_embeds=outputs.last_hidden_state),)
        return outputs

    return patch
