"""Which partitions a fleet is made of: any set of (backend, model), by name, by what became of them last, or by what has changed since."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from assets.partitions import Partition
from exporters.backends import all_backends, family_of
from exporters.errors import UsageError
from exporters.report import Report
from exporters.staleness import PartitionState
from exporters.zoo import catalogue, zoo_file

# outcomes that nobody has to look into
WELL = ("verified", "skipped")


@dataclass(frozen=True)
class Scope:
    """What a fleet is chosen from.

    Attributes:
        models: names of the zoo or of a `zoo.toml`; none for all.
        backends: dotted names; none for the one that `zooport export` takes.
        families: of models (text, vision, ...); none for all.
    """

    models: Sequence[str] = ()
    backends: Sequence[str] = ()
    families: Sequence[str] = ()

    def partitions(self) -> list[Partition]:
        """All of them, backend by backend.

        Raises:
            UsageError: there is no such backend, model or family.
        """
        backends = list(dict.fromkeys(self.backends or ["onnx"]))
        for backend in backends:
            family_of(backend)
        return [(backend, model) for backend in backends for model in self._models()]

    def _models(self) -> list[str]:
        named = zoo_file.read()
        if self.models:
            for model in self.models:
                if model not in named:
                    catalogue.entry(model)  # says which names are near, if there is no such one
            return list(dict.fromkeys(self.models))
        families = {name: catalogue.entry(name).family for name in catalogue.names()}
        known = sorted({*families.values(), CHECKPOINT})
        for family in self.families:
            if family not in known:
                raise UsageError(f"no family called {family!r} in the zoo", next=f"the families are {', '.join(known)}")
        wanted = set(self.families or known)
        return [*(name for name, family in families.items() if family in wanted), *(named if CHECKPOINT in wanted else ())]


CHECKPOINT = "checkpoint"


def sampled(partitions: Sequence[Partition], count: int) -> list[Partition]:
    """`count` models spread evenly over all of them, each with all its backends: the same ones every time."""
    models = list(dict.fromkeys(model for _, model in partitions))
    if count >= len(models):
        return list(partitions)
    chosen = {models[index * len(models) // count] for index in range(count)}
    return [partition for partition in partitions if partition[1] in chosen]


def failed(partitions: Iterable[Partition], reports: Mapping[Partition, Report], unfinished: Collection[Partition]) -> list[Partition]:
    """Those that ended otherwise than well, or that a fleet was to make and never did."""
    bad = {key for key, report in reports.items() if report.outcome not in WELL}
    return [partition for partition in partitions if partition in bad or partition in unfinished]


def stale(
    partitions: Iterable[Partition],
    states: Iterable[PartitionState],
    reports: Mapping[Partition, Report],
    environments: Mapping[str, str],
) -> list[Partition]:
    """Those that would come out differently now.

    Of a stage that was made it is known what it was made with. One that failed left nothing to know it by: it counts as stale once
    anything has changed that its backend could run into (`exporters.keys.environment`), and not night after night.
    """
    changed = {(state.backend, state.model) for state in states if any(stage.state == "stale" for stage in state.stages)}
    for partition, report in reports.items():
        if report.outcome not in WELL and report.environment != environments.get(partition[0], ""):
            changed.add(partition)
    return [partition for partition in partitions if partition in changed]


def scope_of_everything() -> Scope:
    """All models and all backends that run on any machine."""
    return Scope(backends=[backend for backend in all_backends() if backend != "executorch.cuda"])
