"""Model patches for time series: encoders over histories that have no padding, and distributions that check their parameters."""

from collections.abc import Callable
from typing import Any
from unittest import mock

from torch.distributions import Distribution

from exporters.utils import register_patch

# ── Stage 2: Model patches ────────────────────────────────────────────────────


@register_patch(
    "dynamo",
    "transformers.models.autoformer.modeling_autoformer.create_bidirectional_mask",
    "transformers.models.informer.modeling_informer.create_bidirectional_mask",
)
def _patch_mask_of_nothing(original: Callable[..., Any]) -> Callable[..., Any]:
    """Where nothing is padded there is no mask, as in eager.

    Why: while tracing, transformers makes a mask in which everything is visible. These models can't take one: Informer's encoder halves the
        sequence from layer to layer and keeps the mask, Autoformer reads the width of a head as the length of the keys.
    Upstream: not filed.
    Seen in: AutoformerForPrediction, InformerForPrediction
    Bindings: those of the two models; every other takes the mask.
    """

    def patch(*args: Any, **kwargs: Any) -> Any:
        plain = not args and kwargs.keys() <= {"config", "inputs_embeds", "attention_mask", "encoder_hidden_states"}
        return None if plain and kwargs.get("attention_mask") is None else original(*args, **kwargs)

    return patch


@register_patch(
    "dynamo",
    "transformers.time_series_utils.DistributionOutput.distribution",
    "transformers.time_series_utils.NegativeBinomialOutput.distribution",
)
def _patch_validation(original: Callable[..., Distribution]) -> Callable[..., Distribution]:
    """Make the distribution of a forecast without asking whether its parameters are valid.

    Why: the question is answered by raising an exception or not, which a graph can't.
    Cost: parameters that eager would refuse (a NaN) give the numbers that follow from them.
    Upstream: not filed.
    Seen in: InformerForPrediction
    """
    initialize = Distribution.__init__

    def unchecked(self: Any, *shapes: Any, validate_args: bool | None = None, **named_shapes: Any) -> None:
        initialize(self, *shapes[:2], **named_shapes, validate_args=False)

    def patch(self: Any, *args: Any, **kwargs: Any) -> Distribution:
        with mock.patch.object(Distribution, "__init__", unchecked):
            return original(self, *args, **kwargs)

    return patch
