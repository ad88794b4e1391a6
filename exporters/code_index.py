"""What zooport's own source says of itself, read without importing it: which workarounds there are, and what each piece of code reaches.

The unit is a definition at the top level of a module: a function, a class, an assignment. What a definition refers to by name, in its
own module or in another one of this package, it reaches; what it reaches can change what it does. A digest over the syntax trees of all
that is reached, comments, docstrings and layout left out, is a *fingerprint*: it changes whenever behaviour can. That makes two kinds:
one for each workaround, and one for the rest of what a family's stages run.

References are over-approximated: every name that occurs counts, whatever its scope. What can't be followed is named as a root below
(`ROOTS`), and tests/test_code_index.py holds the index to what is registered when the modules are imported.
"""

import ast
import contextlib
import functools
import gc
import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from exporters.code_reading import Module
from exporters.docstrings import parse_fields
from exporters.store import json_digest, write_whole

FOLDER = Path(__file__).parent
# of this index' own rules: raise it when they change what a fingerprint means
FORMAT = 2

_DECORATORS = {"register_patch": "patch", "register_fx_node_fix": "fx_node_fix", "register_fx_program_fix": "fx_program_fix"}
# assignments that register what they hold: what refers to a table doesn't thereby reach the functions in it
_TABLES = {"_ONNX_TRANSLATION_TABLE": "translation", "_IR_FIXES": "ir_fix"}

# Code that runs for every stage of a family, less the workarounds; for what makes a sample; for what verifies.
_MAKERS = ("exporters.stage_makers:StageMaker", "exporters.exporter_dynamo:DynamoExporter")
ROOTS: dict[str, tuple[str, ...]] = {
    "dynamo": _MAKERS,
    "onnx": (*_MAKERS, "exporters.exporter_onnx:OnnxExporter"),
    "executorch": (*_MAKERS, "exporters.exporter_executorch:ExecutorchExporter"),
    "sample": (
        "exporters.zoo.build:build",
        "exporters.zoo.checkpoints:load",
        "exporters.zoo.model_file:load",
        "exporters.identity:identify",
    ),
    "verification": ("exporters.verification:verify", "exporters.runtimes:run_job"),
}
# A stage reaches a sample only through its digest (exporters/identity.py), and the store, the ledger and this index don't make anything.
_NOT_FOLLOWED = (
    "exporters.zoo",
    "exporters.source",
    "exporters.store",
    "exporters.ledger",
    "exporters.code_index",
    "exporters.code_reading",
    "exporters.report",
)
# what decides on samples beside code
_SAMPLE_DATA = ("zoo/overrides.json",)


@dataclass(frozen=True)
class Workaround:
    """One registration, as the source has it.

    Attributes:
        kind: `patch`, `fx_node_fix`, `fx_program_fix`, `translation` or `ir_fix`.
        targets: dotted paths of a patch; operators of a fix or a translation, none where it reads every node.
        fingerprint: of the function, its registration and all that it reaches.
        file: relative to the folder that holds the package.
        fields: the docstring's.
    """

    name: str
    kind: str
    scope: str
    targets: tuple[str, ...]
    fingerprint: str
    file: str
    line: int
    fields: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class CodeIndex:
    """All workarounds in order of module and line, and the fingerprint of each set of `ROOTS`."""

    workarounds: tuple[Workaround, ...]
    core: Mapping[str, str]


def code_index(cache: Path | None = None, folder: Path = FOLDER) -> CodeIndex:
    """The index of the package in `folder`; read from `cache` (a folder, optional) if the same sources were indexed before."""
    sources = {path: path.read_bytes() for path in sorted(folder.rglob("*.py"))}
    data = [(folder / name).read_bytes() for name in _SAMPLE_DATA if (folder / name).exists()]
    digest = hashlib.sha256(f"{FORMAT}".encode())
    for part in (*(piece for path, text in sources.items() for piece in (str(path.relative_to(folder)).encode(), text)), *data):
        digest.update(hashlib.sha256(part).digest())
    return _cached(digest.hexdigest(), cache, folder)


@functools.cache
def _cached(digest: str, cache: Path | None, folder: Path) -> CodeIndex:
    stored = cache / f"code-{digest[:32]}.json" if cache else None
    if stored is not None:
        try:
            known = json.loads(stored.read_text())
            rows = [Workaround(**{**row, "targets": tuple(row["targets"])}) for row in known["workarounds"]]
            return CodeIndex(tuple(rows), known["core"])
        except (OSError, ValueError, KeyError, TypeError):
            pass  # not there, or not readable any more: it is made again
    with _without_collector():
        index = _Sources(folder).index()
    if stored is not None:
        content = {"workarounds": [asdict(row) for row in index.workarounds], "core": dict(index.core)}
        with contextlib.suppress(OSError):  # a read-only home costs this time in every process, and no more
            write_whole(stored, json.dumps(content, indent=1))
    return index


@contextlib.contextmanager
def _without_collector() -> Iterator[None]:
    """Syntax trees are many objects and live until the end: looking through them for garbage takes half as long as reading them."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


# ── The package ───────────────────────────────────────────────────────────────


class _Modules:
    """The modules of the package by name, each read when it is asked for: much of the package concerns no stage."""

    def __init__(self, texts: Mapping[str, tuple[str, bytes]]) -> None:
        self._texts = texts
        self._names = frozenset(texts)
        self._read: dict[str, Module] = {}

    def __contains__(self, name: str) -> bool:
        return name in self._names

    def __getitem__(self, name: str) -> Module:
        if name not in self._read:
            self._read[name] = Module(name, *self._texts[name], self._names)
        return self._read[name]

    def registering(self) -> list[str]:
        """Modules that can register a workaround, sorted."""
        marks = [name.encode() for name in (*_DECORATORS, *_TABLES)]
        return sorted(name for name, (_, text) in self._texts.items() if any(mark in text for mark in marks))


class _Sources:
    """All modules of the package, and what reaches what."""

    def __init__(self, folder: Path) -> None:
        files = {_module_name(path, folder): path for path in sorted(folder.rglob("*.py"))}
        self._modules = _Modules({name: (str(path.relative_to(folder.parent)), path.read_bytes()) for name, path in files.items()})
        self._data = "".join(hashlib.sha256((folder / name).read_bytes()).hexdigest() for name in _SAMPLE_DATA if (folder / name).exists())
        self._constants: dict[str, dict[str, Any]] = {}
        self._references: dict[str, frozenset[str]] = {}
        self._digests: dict[str, str] = {}

    def index(self) -> CodeIndex:
        core = {name: self._fingerprint(roots, follow_samples=name == "sample") for name, roots in ROOTS.items()}
        core["sample"] = json_digest([core["sample"], self._data])
        return CodeIndex(tuple(self._workarounds()), core)

    # ── Workarounds ───────────────────────────────────────────────────────────

    def _workarounds(self) -> Iterator[Workaround]:
        for module in map(self._modules.__getitem__, self._modules.registering()):
            found = [*self._decorated(module), *self._tabled(module)]
            yield from sorted(found, key=lambda each: each.line)

    def _decorated(self, module: Module) -> Iterator[Workaround]:
        for statements in module.definitions.values():
            for function in statements:
                if not isinstance(function, ast.FunctionDef):
                    continue
                for call in function.decorator_list:
                    if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id in _DECORATORS:
                        scope, *paths = self._evaluate(module, ast.Tuple(elts=call.args, ctx=ast.Load()))
                        operators = [self._evaluate(module, each.value) for each in call.keywords if each.arg == "operators"]
                        yield self._workaround(module, function, _DECORATORS[call.func.id], scope, (*paths, *(operators or [()])[0]))

    def _tabled(self, module: Module) -> Iterator[Workaround]:
        """Functions in the tables: by operator, or each with the operators that it reads."""
        for table, kind in _TABLES.items():
            targets: dict[str, list[str]] = {}
            for statement in module.definitions.get(table, []):
                value = getattr(statement, "value", None)
                if not isinstance(value, ast.Dict):
                    continue
                for key, item in zip(value.keys, value.values, strict=True):
                    named, told = (item, [key]) if kind == "translation" else (key, [item])
                    if isinstance(named, ast.Name) and told[0] is not None:
                        evaluated = self._evaluate(module, told[0])
                        targets.setdefault(named.id, []).extend([evaluated] if isinstance(evaluated, str) else evaluated)
            for name, operators in targets.items():
                function = module.definitions[name][0]
                assert isinstance(function, ast.FunctionDef), f"{module.name}:{name} is in {table} and not a function"
                yield self._workaround(module, function, kind, "onnx", tuple(operators))

    def _workaround(self, module: Module, function: ast.FunctionDef, kind: str, scope: str, targets: tuple[str, ...]) -> Workaround:
        fingerprint = json_digest([kind, scope, targets, self._fingerprint((f"{module.name}:{function.name}",))])
        first_line = min([function.lineno, *(decorator.lineno for decorator in function.decorator_list)])
        fields = parse_fields(module.docstring(function.name))
        return Workaround(f"{scope}:{function.name}", kind, scope, targets, fingerprint, module.file, first_line, fields)

    def _evaluate(self, module: Module, node: ast.expr) -> Any:
        """The value of an expression over literals and the module's own constants.

        Raises:
            ValueError: it needs more than that.
        """
        expression = ast.fix_missing_locations(ast.Expression(node))
        try:
            return eval(compile(expression, module.file, "eval"), _Constants(self, module))
        except (NameError, TypeError, AttributeError) as error:
            raise ValueError(
                f"{module.file}:{getattr(node, 'lineno', '?')}: a registration is made of literals and constants of its module"
            ) from error

    def constant(self, module: Module, name: str) -> Any:
        """Raises KeyError if `name` isn't one assignment of something that can be evaluated."""
        known = self._constants.setdefault(module.name, {})
        if name not in known:
            statements = module.definitions.get(name, [])
            if len(statements) != 1 or not isinstance(statements[0], ast.Assign | ast.AnnAssign) or statements[0].value is None:
                raise KeyError(name)
            known[name] = self._evaluate(module, statements[0].value)
        return known[name]

    # ── Reach ─────────────────────────────────────────────────────────────────

    def _fingerprint(self, roots: Iterable[str], *, follow_samples: bool = False) -> str:
        reached = self._reached(roots, follow_samples=follow_samples)
        return json_digest(sorted((key, self._digest(key)) for key in reached))

    def _reached(self, roots: Iterable[str], *, follow_samples: bool) -> set[str]:
        reached: set[str] = set()
        waiting = list(roots)
        while waiting:
            key = waiting.pop()
            if key in reached:
                continue
            module = key.partition(":")[0]
            if module in self._modules and (follow_samples or not self._is_left_out(module)):
                reached.add(key)
                waiting.extend(self._refers_to(key))
        return reached

    @staticmethod
    @functools.cache
    def _is_left_out(module: str) -> bool:
        return any(module == name or module.startswith(f"{name}.") for name in _NOT_FOLLOWED)

    def _refers_to(self, key: str) -> frozenset[str]:
        if key not in self._references:
            self._references[key] = frozenset(self._find_references(key))
        return self._references[key]

    def _find_references(self, key: str) -> Iterator[str]:
        module_name, _, name = key.partition(":")
        module = self._modules[module_name]
        if name == "*":
            yield from (f"{module_name}:{each}" for each in module.definitions)
            return
        # whoever uses a module has it imported: what that runs has been run, and what it imports in turn
        yield f"{module_name}:"
        if name not in module.definitions and name in module.imports:  # handed on from elsewhere
            yield module.whole(module.imports[name])
        elif name not in _TABLES:
            yield from module.references(name)

    def _digest(self, key: str) -> str:
        """Of a definition's syntax trees; of a table and of what is not in this package, nothing."""
        if key not in self._digests:
            module_name, _, name = key.partition(":")
            found = [] if name in _TABLES else self._modules[module_name].definition(name)
            self._digests[key] = "".join(each.digest for each in found)
        return self._digests[key]


class _Constants(dict[str, Any]):
    """A namespace that evaluates a module's constants as they are asked for, with the builtins that make collections."""

    def __init__(self, sources: _Sources, module: Module) -> None:
        super().__init__(__builtins__={each.__name__: each for each in (tuple, list, set, frozenset, dict, sorted, range, zip)})
        self._sources, self._module = sources, module

    def __missing__(self, name: str) -> Any:
        return self._sources.constant(self._module, name)


def _module_name(path: Path, folder: Path) -> str:
    parts = path.relative_to(folder.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
