"""Who did what: every registered workaround with the models on which it was called, changed something or was used."""

from collections import defaultdict
from dataclasses import dataclass, field

from exporters.backends import STAGES
from exporters.code_index import CodeIndex, Workaround
from exporters.store import Store

# the stage at which each kind works; patches of a family are installed while it traces, and until its end
_STAGE_OF_KIND = {
    "fx_node_fix": "decomposed_graph",
    "fx_program_fix": "decomposed_graph",
    "translation": "lowered_onnx",
    "ir_fix": "ir_fixed_model",
}


@dataclass(frozen=True)
class Count:
    """A workaround and its reach.

    Attributes:
        stages: stages at which it did something; where it never did, the one at which it would.
        models: by model, how often it was called, how many nodes it changed, how often it was used, over all stages and backends.
    """

    workaround: Workaround
    stages: tuple[str, ...]
    models: dict[str, int] = field(default_factory=dict)


def count(store: Store, index: CodeIndex) -> list[Count]:
    """Every workaround of the index with its reach over what the store has; in the order of the index."""
    models: dict[str, dict[str, int]] = defaultdict(lambda: defaultdict(int))
    stages: dict[str, set[str]] = defaultdict(set)
    for parts, content in (each for family in STAGES for each in store.refs(family)):
        if len(parts) != 4 or content is None or parts[1] not in STAGES.get(parts[0], ()):
            continue
        deeds = content.get("record", {}).get("deeds", {})
        for counts in deeds.values():
            for name, number in counts.items():
                models[name][parts[3]] += number
                stages[name].add(parts[1])
    order = list(dict.fromkeys(stage for names in STAGES.values() for stage in names))
    return [
        Count(each, tuple(sorted(stages[each.name], key=order.index)) or (_stage_of(each),), dict(sorted(models[each.name].items())))
        for each in index.workarounds
    ]


def _stage_of(workaround: Workaround) -> str:
    if workaround.kind == "patch":
        return "pte" if any(target.startswith("executorch.") for target in workaround.targets) else "traced_program"
    return "traced_program" if workaround.scope == "dynamo" else _STAGE_OF_KIND[workaround.kind]
