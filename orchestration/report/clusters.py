"""Failures with one cause, found by what their messages have in common once names and numbers of the single model are taken out."""

import hashlib
import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from orchestration.report.snapshot import Partition

# what of a message belongs to one model or one run, in the order in which it is taken out
_RULES: tuple[tuple[re.Pattern[str], str], ...] = tuple(
    (re.compile(pattern), by)
    for pattern, by in (
        # which output of which input set differs first says little of why
        (r"^\w+: [\w.\[\]']+: (?=\d+ of \d+ values|shape |dtype |NaN )", ""),
        (r"0x[0-9a-fA-F]{5,}", "0x…"),  # an address; short ones are error codes
        (r"\b[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b", "…"),
        (r"\b(?=[0-9a-f]*\d)(?=[0-9a-f]*[a-f])[0-9a-f]{12,}\b", "…"),
        (r"(?<![\w.:])(?:~|\.{1,2})?(?:/[\w.@+=-]+){2,}/?", "PATH"),
        (r"(?<![\w.])[-+]?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?(?![\w.]*[a-zA-Z])", "N"),  # not of int8, conv2d
        (r"\b([su])\d+\b", r"\1N"),  # symbols: s77, u3
        (r"(?<=[A-Za-z])_\d+(?=\W|_|$)", "_N"),  # nodes: add_12, getitem_3
        (r"\bN(?:, ?N)+", "N, …"),  # shapes, of any rank
        (r"\s+", " "),
    )
)

# what follows an architecture's name in the name of a class
_STEM = re.compile(r"For[A-Z]|Model$|LMHead|PreTrained|@")


@dataclass(frozen=True)
class Cluster:
    """Failures that stop at the same stage for the same cause.

    Attributes:
        cause: what their messages have in common (`in_common`).
        example: one message as it was.
        id: the same in every report, for links.
        partitions: (backend, model) of each.
        models: how many different models; repairing the cause lets these go on, to what may stop them next.
        alone: models that fail in nothing else: it is all that keeps them from being verified everywhere.
    """

    stage: str
    kind: str
    cause: str
    example: str
    id: str
    partitions: tuple[tuple[str, str], ...]
    models: tuple[str, ...]
    alone: int

    @property
    def backends(self) -> tuple[str, ...]:
        return tuple(sorted({backend for backend, _ in self.partitions}))


def normalize(message: str, names: Sequence[str] = ()) -> str:
    """A message without what belongs to one model or one run.

    Args:
        names: of the model itself, and of its architecture; they become `MODEL`.
    """
    text = message
    for name in sorted({name for name in names if len(name) > 2 and name in message}, key=len, reverse=True):
        text = re.sub(rf"(?<![A-Za-z]){re.escape(name)}(?![a-z])", "MODEL", text)
    for pattern, by in _RULES:
        text = pattern.sub(by, text)
    return text.strip()


def in_common(masked: str, messages: Sequence[str]) -> str:
    """The message where all say the same, else the masked one with those words as they were on which all agree.

    Args:
        masked: what `normalize` makes of each of them.
    """
    if len(set(messages)) == 1:
        return messages[0]
    masks, rows = masked.split(), [message.split() for message in messages]
    if any(len(row) != len(masks) for row in rows):
        return masked
    return " ".join(words[0] if len(set(words)) == 1 else mask for mask, *words in zip(masks, *rows, strict=True))


def cluster(partitions: Iterable[Partition], model_types: dict[str, str] | None = None) -> list[Cluster]:
    """The clusters of all that fail, those that hold back most models first.

    Args:
        model_types: by model, where that is known.
    """
    types = model_types or {}
    groups: dict[tuple[str, str, str], list[Partition]] = defaultdict(list)
    for each in partitions:
        if each.failing:
            name = each.model.partition("@")[0]
            names = (each.model, name, _STEM.split(name)[0], types.get(each.model, ""))
            groups[each.stage, each.kind, normalize(each.message, names)].append(each)
    in_how_many: dict[str, set[tuple[str, str, str]]] = defaultdict(set)
    for key, members in groups.items():
        for each in members:
            in_how_many[each.model].add(key)
    found = []
    for (stage, kind, cause), members in groups.items():
        members.sort(key=lambda each: each.key)
        models = tuple(sorted({each.model for each in members}))
        alone = sum(len(in_how_many[model]) == 1 for model in models)
        example = members[0].message
        identity = hashlib.sha256("\0".join((stage, kind, cause)).encode()).hexdigest()[:8]
        found.append(
            Cluster(
                stage,
                kind,
                in_common(cause, [each.message for each in members]),
                example,
                identity,
                tuple(each.key for each in members),
                models,
                alone,
            )
        )
    return sorted(found, key=lambda each: (-len(each.models), -len(each.partitions), each.stage, each.kind, each.cause))
