"""Model classes that upstream bugs or their own patterns keep from an export, each with its reason. Both lists are expected to shrink."""

from dataclasses import dataclass


@dataclass(frozen=True)
class KnownIssue:
    """Why a model class is left out.

    Attributes:
        scope: a backend, a family, or `all`; of no account for `ONNX_DISABLE_OPTIMIZE`.
        dynamic_only: whether it exports with every axis at its traced size.
        reason: for a skip the change that the model needs; for the optimizer the bug.
        upstream: the issue, `owner/repo#number`; always there for `ONNX_DISABLE_OPTIMIZE`.
    """

    scope: str
    reason: str
    upstream: str = ""
    dynamic_only: bool = False

    def covers(self, backend: str, *, dynamic: bool) -> bool:
        """Whether it keeps an export for `backend`, with dynamic axes or without, from being tried."""
        concerns = self.scope == "all" or backend == self.scope or backend.startswith(f"{self.scope}.")
        return concerns and (dynamic or not self.dynamic_only)


# model class -> a confirmed bug of onnxscript's optimizer that breaks it
ONNX_DISABLE_OPTIMIZE: dict[str, KnownIssue] = {}

# model class -> why it can't be exported as it is
EXPORT_SKIPS: dict[str, KnownIssue] = {
    "EdgeTamVideoModel": KnownIssue(
        "all",
        "forward takes an inference session, a Python object that holds the video, the prompts and what was remembered of earlier frames,"
        " and writes to it: the model has to take and return these as tensors, a frame at a time",
    ),
    "HYV4VLVisionModel": KnownIssue(
        "all",
        "each image's position embeddings are resized by a factor that a Python loop computes from its height and width: the model has to"
        " compute them for all patches at once, with the grid as a tensor",
    ),
}


def skip_reason(model: str, backend: str, *, dynamic: bool) -> str:
    """Why `model` is not exported for `backend`, or an empty string."""
    issue = EXPORT_SKIPS.get(model)
    return issue.reason if issue is not None and issue.covers(backend, dynamic=dynamic) else ""


def optimizes(model: str) -> bool:
    """Whether onnxscript's optimizer may have the graph of this class."""
    return model not in ONNX_DISABLE_OPTIMIZE
