"""What the assets need from outside: something that runs one chain and tells what happens.

An interface only. `orchestration` provides it, so that assets know nothing of processes and pools.
"""

from abc import abstractmethod
from collections.abc import Iterator, Mapping

import dagster as dg

from exporters.report import Parity, Report, StageReport


class ChainRunner(dg.ConfigurableResource):
    """Runs one (backend, model) through its chain."""

    @abstractmethod
    def run(self, model: str, backend: str, *, until: str | None = None, run_id: str = "") -> Iterator[StageReport | Parity | Report]:
        """Yield each stage as it ends, then each comparison, then the report, always last.

        Args:
            model: name of a model class of the zoo, or of a checkpoint that a `zoo.toml` names.
            backend: dotted backend name.
            until: name of the last stage that is wanted; None wants the whole chain and its verification.
            run_id: kept with what is made, so that a later run that finds it can say whose it is.
        """


class RecipeReader(dg.ConfigurableResource):
    """Says what stages would be made with now."""

    @abstractmethod
    def versions(self, family: str, stage: str) -> Mapping[tuple[str, str], str]:
        """The recipe's version by (backend, model), for every partition of which this stage was ever made."""
