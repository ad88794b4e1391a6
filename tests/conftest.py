"""Shared by all tests: no model hub, and a home of their own."""

import os
from pathlib import Path

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ.setdefault("OMP_NUM_THREADS", "1")
# doubles are run in processes of their own
os.environ["PYTHONPATH"] = os.pathsep.join([str(Path(__file__).parent / "doubles"), *filter(None, [os.environ.get("PYTHONPATH")])])
