"""The first node at which one stage leaves another: found by value, since names and operators change between stages.

A node is *right* if the good graph has its value too. The suspects are wrong nodes that read only what is right, and from which wrong nodes
alone lead to a wrong output: the first of them in the order of the graph is where the numbers leave. A wrong value that leads nowhere is
a step of another way to the same result.

Where the graphs share names (everything after the decomposition of an ONNX export) a name is better evidence than a value: a mask that
came out inverted may well equal another mask. There the first node is named whose namesake has another value.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence

import torch

from exporters.drift_programs import Runnable
from exporters.drift_report import DriftNode, NodeName
from exporters.drift_values import INPUT, KnownValues, Value, within


class Nowhere(Exception):
    """No single node makes the difference; the message says why."""


def locate(stage: str, good: Runnable, bad: Runnable, leaves: Sequence[torch.Tensor]) -> DriftNode:
    """The first node of `bad`, the stage called `stage`, whose value `good` doesn't have.

    Args:
        leaves: the tensors of the graph's inputs.

    Raises:
        Nowhere: the outputs agree, or nothing on the way to them differs.
    """
    with KnownValues() as known, KnownValues() as seen:
        good_outputs = good.visit(leaves, known.add)
        bad_outputs = bad.visit(leaves, seen.add)
        search = _Search(known, seen, good_outputs, bad_outputs, bad.follows_names)
        node = search.described(*search.chosen(), stage, bad.fineness)
        inside = bad.closer(node.name)
        return node if inside is None else _closer(node, known, inside, leaves)


def _closer(node: DriftNode, known: KnownValues, inside: Runnable, leaves: Sequence[torch.Tensor]) -> DriftNode:
    """The first node inside another whose value isn't what it is called after; the outer one if there is none."""
    with KnownValues() as seen:
        inside.visit(leaves, seen.add)
        for name, value in seen.values.items():
            if known.agrees(name, seen.tensor(name)) is False:
                return node.model_copy(
                    update={
                        **_named(value).model_dump(),
                        "module": value.module or node.module,
                        "counterpart": _named(known.values[name]),
                        "max_abs_diff": _difference(known.tensor(name), seen.tensor(name)),
                        "fineness": inside.fineness,
                        "starts_at": None,
                    }
                )
    return node.model_copy(update={"fineness": f"{node.fineness}; with every value inside as an output it is right"})


class _Search:
    """Two runs compared: the good graph's values in `known`, the bad one's in `seen`."""

    def __init__(
        self, known: KnownValues, seen: KnownValues, good_outputs: Sequence[str], bad_outputs: Sequence[str], follows_names: bool
    ) -> None:
        self._known, self._seen = known, seen
        # the contents of the good graph that each value of the bad one equals
        self._equal = {name: known.find(seen.tensor(name)) for name in seen.values}
        agrees = {name: known.agrees(name, seen.tensor(name)) if follows_names else None for name in seen.values}
        self._wrong = {
            bad: good
            for good, bad in zip(good_outputs, bad_outputs, strict=False)
            if good in known.values and bad in seen.values and not within(known.tensor(good), seen.tensor(bad))
        }
        if not self._wrong:
            raise Nowhere("run so that every value is seen, this stage's outputs are those of the stage before")
        right = {
            name
            for name, value in seen.values.items()
            if name not in self._wrong and (agrees[name] or (agrees[name] is None and (self._equal[name] or value.presumed)))
        }
        found = {name for name in known.values if name not in self._wrong.values() and known.was_found(name)}
        self._leading = _leading(seen, self._wrong, right)
        self._missing = _leading(known, self._wrong.values(), found)
        self._suspects = _firsts(seen.values, self._leading)
        if not self._suspects:
            raise Nowhere("the wrong outputs are inputs passed through")

    def chosen(self) -> tuple[str, str | None]:
        """The node, and the node of the good graph in whose place it stands.

        With names to go by, the first on the way whose namesake differs. Otherwise the first suspect that reads something which the
        first node missing from it reads too; a suspect that shares nothing with any is another way to the same numbers.
        """
        for name in self._seen.values:
            if name in self._leading and name in self._known.contradicted:
                return name, name
        missing = _firsts(self._known.values, self._missing)
        for name in self._suspects:
            read = {content for source in self._seen.values[name].inputs for content in self._read(source)}
            for other in missing:
                if read & {self._known.content(source) for source in self._known.values[other].inputs if source in self._known.values}:
                    return name, other
        return self._suspects[0], missing[0] if missing else None

    def _read(self, name: str) -> set[int]:
        """The contents that tell one node's inputs from another's: not those of sizes and literals."""
        value = self._seen.values.get(name)
        return self._equal[name] if value is not None and (value.operator == INPUT or not value.presumed) else set()

    def described(self, chosen: str, counterpart: str | None, stage: str, fineness: str) -> DriftNode:
        node = self._seen.values[chosen]
        other = None if counterpart is None else self._known.values[counterpart]
        before = _ancestors(self._seen.values, [chosen], self._leading)
        starts_at = next((name for name in self._suspects if name in before), chosen)
        expected = None if counterpart is None else self._known.tensor(counterpart)
        given = self._seen.tensor(chosen)
        return DriftNode(
            stage=stage,
            name=node.name,
            operator=node.operator,
            module=node.module or (other.module if other is not None else ""),
            counterpart=_named(other) if other is not None else None,
            starts_at=_named(self._seen.values[starts_at]) if starts_at != chosen else None,
            max_abs_diff=_difference(expected, given) if expected is not None and expected.numel() == given.numel() else None,
            fineness=fineness,
        )


def _difference(expected: torch.Tensor, given: torch.Tensor) -> float:
    """The largest absolute difference, entry by entry in row order; infinite where one of the two isn't a number."""
    difference = (given.reshape(-1).double() - expected.reshape(-1).double()).abs()
    return float(difference.nan_to_num(nan=float("inf")).max()) if difference.numel() else 0.0


def _named(value: Value) -> NodeName:
    return NodeName(name=value.name, operator=value.operator, module=value.module)


def _ancestors(values: Mapping[str, Value], ends: Iterable[str], among: Collection[str]) -> set[str]:
    """The names among `among` from which others of them lead to one of `ends`, itself included."""
    found: set[str] = set()
    waiting = list(ends)
    while waiting:
        name = waiting.pop()
        if name in among and name not in found:
            found.add(name)
            waiting.extend(values[name].inputs)
    return found


def _leading(run: KnownValues, wrong: Collection[str], right: Collection[str]) -> set[str]:
    """The names of values that aren't right, from which others of them lead to a wrong output.

    What computes right numbers from a value has that value right too, although the other graph doesn't have it.
    """
    values = run.values
    proven: set[str] = set()
    for name in reversed(values):
        if name in proven or (name in right and not values[name].presumed and run.tells(name)):
            proven.update(source for source in values[name].inputs if source not in wrong)
    suspected = {name for name, value in values.items() if name not in proven and name not in right and value.operator != INPUT}
    return _ancestors(values, wrong, suspected)


def _firsts(values: Mapping[str, Value], among: Collection[str]) -> list[str]:
    """Those that read none of the others, in the order of the graph."""
    return [name for name in values if name in among and not any(source in among for source in values[name].inputs)]
