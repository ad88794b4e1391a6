"""Model patches for LLaVA: images as a list of tensors."""

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from exporters.utils import register_patch

# ── Stage 2: Model patches ────────────────────────────────────────────────────


@register_patch("dynamo", "transformers.models.llava.modeling_llava.LlavaModel.get_image_features")
def _patch_image_features(original: Callable[..., Any]) -> Callable[..., Any]:
    """Hand the features of all images on as one tensor of (images * patches, width), instead of as one tensor an image.

    Why: `list(image_features)` unbinds the image axis, which freezes the number of images without a word.
    Cost: `image_outputs.pooler_output` of an exported model is a list of one tensor, the concatenation of eager's list.
    Upstream: not filed.
    Seen in: LlavaForConditionalGeneration
    """

    def joined(module: nn.Module, args: Any, features: torch.Tensor) -> torch.Tensor:
        return features.flatten(0, 1).unsqueeze(0)

    def patch(self: Any, *args: Any, **kwargs: Any) -> Any:
        if kwargs.get("image_sizes") is not None:
            return original(self, *args, **kwargs)
        hook = self.multi_modal_projector.register_forward_hook(joined)
        try:
            return original(self, *args, **kwargs)
        finally:
            hook.remove()

    return patch
