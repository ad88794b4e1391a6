"""Whether two results are the same: structure first, then names, dtypes, shapes and NaNs, then the numbers."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

ATOL, RTOL = 1e-4, 1e-3
# by dtype of the reference: half types carry 11 and 8 bits
_HALF_BOUNDS = {torch.float16: (2e-3, 1e-2), torch.bfloat16: (2e-2, 3e-2)}


@dataclass(frozen=True)
class Comparison:
    """`max_abs_diff` is over all floating outputs, NaN positions left out; `message` names the first difference that counts."""

    ok: bool
    max_abs_diff: float
    message: str = ""


def compare(names: Sequence[str], reference: Sequence[Any], actual: Sequence[Any]) -> Comparison:
    """Compare flat outputs: floats within `ATOL + RTOL * abs(reference)`, everything else exactly.

    Args:
        names: of the outputs, for messages.
        reference: eager's outputs; tensors, numbers or other values.
    """
    if not len(names) == len(reference) == len(actual):
        return Comparison(False, float("inf"), f"{len(actual)} outputs instead of {len(reference)}")
    worst, message = 0.0, ""
    for name, expected, given in zip(names, reference, actual, strict=True):
        difference, problem = _compare_one(expected, given)
        worst = max(worst, difference)
        if problem and not message:
            message = f"{name}: {problem}"
    return Comparison(not message, worst, message)


def _compare_one(expected: Any, given: Any) -> tuple[float, str]:
    if not isinstance(expected, torch.Tensor):
        given = given.item() if isinstance(given, torch.Tensor) and given.numel() == 1 else given
        return (0.0, "") if expected == given else (float("inf"), f"{given!r} instead of {expected!r}")
    if not isinstance(given, torch.Tensor):
        return float("inf"), f"a {type(given).__name__} instead of a tensor"
    if given.dtype != expected.dtype:
        return float("inf"), f"dtype {given.dtype} instead of {expected.dtype}"
    if given.shape != expected.shape:
        return float("inf"), f"shape {tuple(given.shape)} instead of {tuple(expected.shape)}"
    if expected.numel() == 0:
        return 0.0, ""
    if not expected.dtype.is_floating_point and not expected.dtype.is_complex:
        wrong = int((expected != given).sum())
        return (0.0, "") if not wrong else (0.0, f"{wrong} of {expected.numel()} values differ")
    reference, actual = _wide(expected), _wide(given)
    if not torch.equal(torch.isnan(reference), torch.isnan(actual)):
        return float("inf"), "NaN in other places"
    atol, rtol = _HALF_BOUNDS.get(expected.dtype, (ATOL, RTOL))
    finite = torch.isfinite(reference)
    if not torch.equal(reference[~finite].nan_to_num(), actual[~finite].nan_to_num()):
        return float("inf"), "infinities in other places"
    difference = (reference - actual)[finite].abs()
    if difference.numel() == 0:
        return 0.0, ""
    within = difference <= atol + rtol * reference[finite].abs()
    worst = float(difference.max())
    if bool(within.all()):
        return worst, ""
    return worst, f"{int((~within).sum())} of {expected.numel()} values beyond the bound, the worst by {worst:.3g}"


def _wide(tensor: torch.Tensor) -> torch.Tensor:
    return torch.view_as_real(tensor).double() if tensor.is_complex() else tensor.double()
