"""Where zooport keeps things: `$ZOOPORT_HOME`, by default a folder in the user's data directory."""

import os
from pathlib import Path

import platformdirs

ENVIRONMENT_VARIABLE = "ZOOPORT_HOME"
STORE_VARIABLE = "ZOOPORT_STORE"  # URL of an artifact store elsewhere, such as s3://bucket/prefix


def home() -> Path:
    """The absolute path of zooport's home. It isn't created here: whoever writes into it does."""
    chosen = os.environ.get(ENVIRONMENT_VARIABLE)
    return Path(chosen).expanduser().absolute() if chosen else platformdirs.user_data_path("zooport")


def store_of(home: Path) -> str:
    """URL or folder of the artifact store: `$ZOOPORT_STORE`, by default inside the home."""
    return os.environ.get(STORE_VARIABLE) or str(home / "store")
