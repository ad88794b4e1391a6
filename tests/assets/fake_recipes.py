"""A test double of the recipes of a store."""

from collections.abc import Mapping
from typing import ClassVar

from assets.runner import RecipeReader


class FakeRecipes(RecipeReader):
    """What the fake chain says that it was made with, but for what a test has put into `changed`."""

    changed: ClassVar[dict[tuple[str, str], str]] = {}  # by stage and model

    def versions(self, family: str, stage: str) -> Mapping[tuple[str, str], str]:
        return {("onnx", model): self.changed.get((stage, model), f"recipe of {stage} ") for model in ("A", "B", "Gone")}
