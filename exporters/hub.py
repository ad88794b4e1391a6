"""A hub id as a local folder: transformers' own cache, and the hub where it can be reached."""

import re
from pathlib import Path

from exporters.errors import CheckpointError

_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+")
# what a checkpoint is read from; the same weights in other formats stay where they are
_PATTERNS = ["*.json", "*.txt", "*.model", "*.safetensors", "*.py", "pytorch_model*.bin"]


def is_hub_id(model: str) -> bool:
    """Whether a name looks like `organization/name`."""
    return _ID.fullmatch(model) is not None


def snapshot(model: str, revision: str | None = None) -> Path:
    """The folder of a hub checkpoint, from the cache or fetched into it; `HF_HUB_OFFLINE=1` keeps to the cache.

    Raises:
        CheckpointError: it isn't cached and the hub can't be reached, or has no such checkpoint.
    """
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError, OfflineModeIsEnabled

    try:
        return Path(snapshot_download(model, revision=revision, allow_patterns=_PATTERNS))
    except (LocalEntryNotFoundError, OfflineModeIsEnabled) as error:
        raise CheckpointError(
            f"{model} is neither a folder, nor a model of the zoo, nor in the hub cache, and the hub can't be reached",
            next="give a class of `zooport zoo`, a local folder, or fetch it first on a machine that reaches the hub",
        ) from error
    except HfHubHTTPError as error:
        raise CheckpointError(
            f"the hub has no checkpoint {model}: {str(error).splitlines()[0]}", next="check the id and the revision"
        ) from error
    except OSError as error:
        raise CheckpointError(f"the hub can't be reached for {model}: {error}", next="give a local folder") from error
