"""Try every class of the zoo, each in a child of its own, and remember the results as they come.

One process imports torch and transformers once and forks a child for each class: a class that hangs, eats memory or takes
the interpreter down is a result, and the next one starts clean. Results are appended to a file of JSON lines, so that a run
that was interrupted goes on where it was.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from exporters.isolation import Ended, run_forked
from exporters.zoo import catalogue

SECONDS = 60
MEMORY = 4 << 30  # bytes of data of a child
Result = dict[str, Any]


def results_file(home: Path) -> Path:
    return home / "zoo" / "forward.jsonl"


def code_digest() -> str:
    """Of the zoo's code and data: what a result was made with."""
    from importlib.metadata import version

    digest = hashlib.sha256(f"{version('torch')} {version('transformers')}".encode())
    for file in sorted(Path(__file__).parent.glob("*")):
        if file.suffix in (".py", ".json"):
            digest.update(file.read_bytes())
    return digest.hexdigest()[:16]


def read_results(file: Path) -> dict[str, Result]:
    """The last result of every name; a line that a killed run left half written is passed over."""
    found: dict[str, Result] = {}
    if file.is_file():
        for line in file.read_text(encoding="utf-8").splitlines():
            try:
                row = json.loads(line)
            except ValueError:
                continue
            found[row["name"]] = row
    return found


def open_names(names: Iterable[str], known: dict[str, Result], *, failed_only: bool) -> list[str]:
    """What is still to be tried: everything without a result of today's code, or only what isn't `ok`."""
    if failed_only:
        return [name for name in names if known.get(name, {}).get("outcome") != "ok"]
    code = code_digest()
    return [name for name in names if known.get(name, {}).get("code") != code]


def run(names: list[str], file: Path, on_result: Callable[[Result], None] | None = None) -> Iterator[Result]:
    """Try `names` one after another, append each result to `file`, and hand it out.

    A Ctrl-C ends the child in progress and then the run; what was tried stays in the file.
    """
    _import_once()
    code = code_digest()
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("a", encoding="utf-8") as stream:
        for name in names:
            result = {**try_in_child(name), "code": code}
            stream.write(json.dumps(result) + "\n")
            stream.flush()
            if on_result is not None:
                on_result(result)
            yield result


def _import_once() -> None:
    """What every child needs, so that none imports it again; the modeling modules themselves are the children's business."""
    import gc

    import torch
    import transformers.modeling_utils

    import exporters.zoo.probe  # noqa: F401
    from exporters.zoo.overrides import override

    override("")  # read once, so that a run is of one state of the code and the data
    torch.set_num_threads(1)  # a forked child can't use its parent's threads
    transformers.utils.logging.set_verbosity_error()
    gc.collect()
    gc.freeze()  # or every child's collections would copy the parent's pages


def try_in_child(name: str, *, seconds: float = SECONDS, memory: int = MEMORY) -> Result:
    """The result of `name`, tried in a forked child with limits on time and memory."""
    from exporters.zoo import probe

    ended = run_forked(lambda say: say(probe.probe(name)), seconds=seconds, memory=memory)
    result = dict(ended.lines[-1]) if ended.lines else _without_result(name, ended, seconds)
    return {**result, "seconds": ended.seconds, "cpu_seconds": ended.cpu_seconds, "peak_rss_mb": ended.peak_rss_mb}


def _without_result(name: str, ended: Ended, seconds: float) -> Result:
    reason = f"took more than {seconds:.0f} s" if ended.how == "timeout" else f"the child ended with {ended.how}"
    last_words = ended.tail.strip().splitlines()[-1:]
    return {"name": name, "outcome": "failed", "stage": "limit", "reason": ": ".join([reason, *last_words])}


# ── What came out ─────────────────────────────────────────────────────────────


def summary(results: dict[str, Result], names: list[str] | None = None) -> dict[str, Any]:
    """Counts over the public classes and the decode variants, or those of `names`; what needs an absent package is in no share."""
    names = catalogue.names() if names is None else names
    classes = [name for name in names if "@" not in name]
    decodes = [name for name in names if name.endswith("@decode")]
    types: dict[str, list[str]] = {}
    for name in classes:
        types.setdefault(catalogue.entry(name).model_type, []).append(_outcome(results, name))
    known = {kind: outcomes for kind, outcomes in types.items() if set(outcomes) != {"skipped"}}
    return {
        "classes": _count(results, classes),
        "decode": _count(results, decodes),
        "model_types": {
            "ok": sum("ok" in outcomes for outcomes in known.values()),
            "every_class_ok": sum(set(outcomes) <= {"ok", "skipped"} for outcomes in known.values()),
            "skipped": len(types) - len(known),
            "all": len(types),
            "share": round(sum("ok" in outcomes for outcomes in known.values()) / max(1, len(known)), 4),
        },
        "generating": _count_generating(results, classes),
        "cpu_seconds": round(sum(row.get("cpu_seconds", 0.0) for row in results.values())),
    }


def _count_generating(results: dict[str, Result], classes: list[str]) -> dict[str, Any]:
    """How many of all classes that generate decode from a cache, those without one counted as well."""
    generating = [name for name in classes if catalogue.entry(name).generates]
    skipped = sum(_outcome(results, name) == "skipped" for name in generating)
    ok = sum(_outcome(results, f"{name}@decode") == "ok" for name in generating)
    return {"ok": ok, "skipped": skipped, "all": len(generating), "share": round(ok / max(1, len(generating) - skipped), 4)}


def _outcome(results: dict[str, Result], name: str) -> str:
    return str(results.get(name, {}).get("outcome", "untried"))


def _count(results: dict[str, Result], names: list[str]) -> dict[str, Any]:
    outcomes = [_outcome(results, name) for name in names]
    counts: dict[str, Any] = {outcome: outcomes.count(outcome) for outcome in ("ok", "failed", "skipped", "untried")}
    counts["all"] = len(names)
    counts["share"] = round(counts["ok"] / max(1, len(names) - counts["skipped"]), 4)
    return counts


def main() -> int:
    """`python -m exporters.zoo.check [NAME...] [--failed]`: the bare runner, for whoever works on the rules."""
    from exporters.home import home

    arguments = sys.argv[1:]
    file = results_file(home())
    names = [name for name in arguments if not name.startswith("-")]
    todo = names or open_names(catalogue.names(), read_results(file), failed_only="--failed" in arguments)
    for index, result in enumerate(run(todo, file), start=1):
        line = f"{index}/{len(todo)} {result['outcome']:<7} {result['name']} {result['reason'][:300]}"
        print(line + (f"\n        at {result['where']}" if names and "where" in result else ""), flush=True)
    print(json.dumps(summary(read_results(file))))
    return 0


if __name__ == "__main__":
    sys.exit(main())
