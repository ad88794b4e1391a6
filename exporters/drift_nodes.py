"""The first node at which one stage leaves another: found by value, since names and operators change between stages.

A node is *right* if the good graph has its value too. The suspects are wrong nodes that read only what is right, and from which wrong nodes
alone lead to a wrong output: the first of them in the order of the graph is where the numbers leave. A wrong value that leads nowhere is
a step of another way to the same result.

Where the graphs share names (everything after the decomposition of an ONNX export) a name is better evidence than a value: a mask that
came out inverted may well equal another mask. There the first node is named whose namesake has another value.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence

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
        node = search.described(search.chosen(), stage, bad.fineness)
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
        self._right: set[str] = set()
        for name, value in seen.values.items():
            tensor = seen.tensor(name)
            agrees = known.agrees(name, tensor) if follows_names else None
            found = known.find(tensor)
            if agrees or (agrees is None and (found or value.operator == INPUT)):
                self._right.add(name)
        self._wrong = {
            bad: good
            for good, bad in zip(good_outputs, bad_outputs, strict=False)
            if good in known.values and bad in seen.values and not within(known.tensor(good), seen.tensor(bad))
        }
        if not self._wrong:
            raise Nowhere("run so that every value is seen, this stage's outputs are those of the stage before")
        self._right.difference_update(self._wrong)
        self._leading = _leading_to(self._wrong, seen.values, lambda name: name not in self._right)
        self._suspects = [name for name in seen.values if name in self._leading and not self._leading & set(seen.values[name].inputs)]
        if not self._suspects:
            raise Nowhere("the wrong outputs are inputs passed through")

    def chosen(self) -> str:
        """The first suspect; with names to go by, the first node on the way whose namesake differs."""
        by_name = (name for name in self._seen.values if name in self._leading and name in self._known.contradicted)
        return next(by_name, self._suspects[0])

    def described(self, chosen: str, stage: str, fineness: str) -> DriftNode:
        node, counterpart = self._seen.values[chosen], self._counterpart(chosen)
        other = None if counterpart is None else self._known.values[counterpart]
        before = _leading_to([chosen], self._seen.values, lambda name: name in self._leading)
        starts_at = next(name for name in self._suspects if name in before)
        same_size = counterpart is not None and self._known.tensor(counterpart).numel() == self._seen.tensor(chosen).numel()
        return DriftNode(
            stage=stage,
            name=node.name,
            operator=node.operator,
            module=node.module or (other.module if other is not None else ""),
            counterpart=_named(other) if other is not None else None,
            starts_at=_named(self._seen.values[starts_at]) if starts_at != chosen else None,
            max_abs_diff=_difference(self._known.tensor(counterpart), self._seen.tensor(chosen)) if counterpart and same_size else None,
            fineness=fineness,
        )

    def _counterpart(self, chosen: str) -> str | None:
        """The first value of the good graph that the bad one lacks, on the way to the outputs that are wrong there."""
        if chosen in self._known.contradicted:
            return chosen
        ends = set(self._wrong.values())
        values = self._known.values
        missing = _leading_to(ends, values, lambda name: name in ends or not self._known.was_found(name))
        return next((name for name in values if name in missing and not missing & set(values[name].inputs)), None)


def _difference(expected: torch.Tensor, given: torch.Tensor) -> float:
    """The largest absolute difference, entry by entry in row order; infinite where one of the two isn't a number."""
    difference = (given.reshape(-1).double() - expected.reshape(-1).double()).abs()
    return float(difference.nan_to_num(nan=float("inf")).max()) if difference.numel() else 0.0


def _named(value: Value) -> NodeName:
    return NodeName(name=value.name, operator=value.operator, module=value.module)


def _leading_to(ends: Iterable[str], values: Mapping[str, Value], passes: Callable[[str], bool]) -> set[str]:
    """The names from which values that all pass lead to one of `ends`, itself included; inputs of the graph are none of them."""
    found: set[str] = set()
    waiting = [name for name in ends if name in values]
    while waiting:
        name = waiting.pop()
        if name in found or not passes(name) or values[name].operator == INPUT:
            continue
        found.add(name)
        waiting.extend(source for source in values[name].inputs if source in values)
    return found
