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
import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from exporters.docstrings import parse_fields
from exporters.store import json_digest, write_whole

PACKAGE = "exporters"
FOLDER = Path(__file__).parent
# of this index' own rules: raise it when they change what a fingerprint means
FORMAT = 1

_DECORATORS = {"register_patch": "patch", "register_fx_node_fix": "fx_node_fix", "register_fx_program_fix": "fx_program_fix"}
# assignments that register what they hold: what refers to a table doesn't thereby reach the functions in it
_TABLES = {"_ONNX_TRANSLATION_TABLE": "translation", "_IR_FIXES": "ir_fix"}

# Code that runs for every stage of a family, less the workarounds; for what makes a sample; for what verifies.
_MAKERS = ("exporters.stage_makers:StageMaker", "exporters.exporter_dynamo:DynamoExporter")
ROOTS: dict[str, tuple[str, ...]] = {
    "dynamo": _MAKERS,
    "onnx": (*_MAKERS, "exporters.exporter_onnx:OnnxExporter"),
    "executorch": (*_MAKERS, "exporters.exporter_executorch:ExecutorchExporter"),
    "sample": ("exporters.zoo.build:build", "exporters.zoo.checkpoints:load", "exporters.identity:identify"),
    "verification": ("exporters.verification:verify", "exporters.runtimes:main"),
}
# A stage reaches a sample only through its digest (exporters/identity.py), and the store, the ledger and this index don't make anything.
_NOT_FOLLOWED = ("exporters.zoo", "exporters.source", "exporters.store", "exporters.ledger", "exporters.code_index", "exporters.report")
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
    index = _Sources(folder).index()
    if stored is not None:
        content = {"workarounds": [asdict(row) for row in index.workarounds], "core": dict(index.core)}
        with contextlib.suppress(OSError):  # a read-only home costs this time in every process, and no more
            write_whole(stored, json.dumps(content, indent=1))
    return index


# ── One module ────────────────────────────────────────────────────────────────


@dataclass
class _Module:
    """A module's definitions by name; under the empty name what runs when it is imported and binds nothing."""

    name: str
    file: str
    definitions: dict[str, list[ast.stmt]] = field(default_factory=dict)
    imports: dict[str, str] = field(default_factory=dict)  # local name -> `module` or `module:name`
    imported: set[str] = field(default_factory=set)  # modules of the package that importing this one imports
    docstrings: dict[str, str] = field(default_factory=dict)
    digests: dict[str, str] = field(default_factory=dict)  # of definitions asked for so far
    references: dict[str, frozenset[str]] = field(default_factory=dict)


class _Reader:
    """Reads one module into definitions."""

    def __init__(self, name: str, file: str, text: bytes, modules: frozenset[str]) -> None:
        self._modules = modules
        self._module = _Module(name, file, {"": []})
        tree = ast.parse(text)
        for statement in tree.body:
            if isinstance(statement, ast.FunctionDef):
                self._module.docstrings[statement.name] = ast.get_docstring(statement) or ""
        for node in ast.walk(tree):
            if isinstance(node, ast.Import | ast.ImportFrom):
                self._read_import(node)
            elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                _drop_docstring(node)
        for statement in tree.body:
            self._read(statement)

    @property
    def module(self) -> _Module:
        return self._module

    def _read(self, statement: ast.stmt) -> None:
        definitions = self._module.definitions
        match statement:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                definitions.setdefault(name, []).append(statement)
            case ast.Assign() | ast.AnnAssign() | ast.AugAssign():
                for name in _bound(statement):
                    definitions.setdefault(name, []).append(statement)
            case ast.If(test=ast.Name(id="TYPE_CHECKING")) | ast.Expr(value=ast.Constant()):
                pass  # types and docstrings run nothing
            case ast.Import() | ast.ImportFrom():
                if names := set(_imported_modules(statement, self._modules)):
                    # the order of imports is the order of registrations
                    self._module.imported |= names
                    definitions[""].append(statement)
            case _:
                definitions[""].append(statement)
                for name in _bound(statement):
                    definitions.setdefault(name, []).append(statement)

    def _read_import(self, node: ast.Import | ast.ImportFrom) -> None:
        """Local names of the package's modules and definitions, wherever in the module they are imported."""
        if isinstance(node, ast.ImportFrom) and node.module and _is_ours(node.module):
            for alias in node.names:
                whole = f"{node.module}.{alias.name}"
                target = whole if whole in self._modules else f"{node.module}:{alias.name}"
                self._module.imports[alias.asname or alias.name] = target
        elif isinstance(node, ast.Import):
            for alias in node.names:
                if _is_ours(alias.name):
                    self._module.imports[alias.asname or alias.name.partition(".")[0]] = alias.name


@functools.lru_cache(maxsize=512)
def _read(name: str, file: str, text: bytes, modules: frozenset[str]) -> _Module:
    return _Reader(name, file, text, modules).module


def _is_ours(module: str) -> bool:
    return module == PACKAGE or module.startswith(f"{PACKAGE}.")


def _imported_modules(statement: ast.Import | ast.ImportFrom, modules: frozenset[str]) -> Iterator[str]:
    names = [alias.name for alias in statement.names]
    if isinstance(statement, ast.ImportFrom):
        base = statement.module or ""
        names = [base, *(f"{base}.{name}" for name in names)]
    yield from (name for name in names if name in modules)


def _bound(statement: ast.stmt) -> set[str]:
    """Names that a statement binds, in whatever it nests."""
    return {node.id for node in ast.walk(statement) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}


# ── The package ───────────────────────────────────────────────────────────────


class _Modules:
    """The modules of the package by name, each read when it is asked for: much of the package concerns no stage."""

    def __init__(self, texts: Mapping[str, tuple[str, bytes]]) -> None:
        self._texts = texts
        self._names = frozenset(texts)

    def __contains__(self, name: str) -> bool:
        return name in self._names

    def __getitem__(self, name: str) -> _Module:
        return _read(name, *self._texts[name], self._names)

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

    def index(self) -> CodeIndex:
        core = {name: self._fingerprint(roots, follow_samples=name == "sample") for name, roots in ROOTS.items()}
        core["sample"] = json_digest([core["sample"], self._data])
        return CodeIndex(tuple(self._workarounds()), core)

    # ── Workarounds ───────────────────────────────────────────────────────────

    def _workarounds(self) -> Iterator[Workaround]:
        for module in map(self._modules.__getitem__, self._modules.registering()):
            found = [*self._decorated(module), *self._tabled(module)]
            yield from sorted(found, key=lambda each: each.line)

    def _decorated(self, module: _Module) -> Iterator[Workaround]:
        for statements in module.definitions.values():
            for function in statements:
                if not isinstance(function, ast.FunctionDef):
                    continue
                for call in function.decorator_list:
                    if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id in _DECORATORS:
                        scope, *paths = self._evaluate(module, ast.Tuple(elts=call.args, ctx=ast.Load()))
                        operators = [self._evaluate(module, each.value) for each in call.keywords if each.arg == "operators"]
                        yield self._workaround(module, function, _DECORATORS[call.func.id], scope, (*paths, *(operators or [()])[0]))

    def _tabled(self, module: _Module) -> Iterator[Workaround]:
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

    def _workaround(self, module: _Module, function: ast.FunctionDef, kind: str, scope: str, targets: tuple[str, ...]) -> Workaround:
        fingerprint = json_digest([kind, scope, targets, self._fingerprint((f"{module.name}:{function.name}",))])
        first_line = min([function.lineno, *(decorator.lineno for decorator in function.decorator_list)])
        fields = parse_fields(module.docstrings.get(function.name, ""))
        return Workaround(f"{scope}:{function.name}", kind, scope, targets, fingerprint, module.file, first_line, fields)

    def _evaluate(self, module: _Module, node: ast.expr) -> Any:
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

    def constant(self, module: _Module, name: str) -> Any:
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
            module = key.partition(":")[0]
            if key in reached or module not in self._modules:
                continue
            if not follow_samples and any(module == name or module.startswith(f"{name}.") for name in _NOT_FOLLOWED):
                continue
            reached.add(key)
            waiting.extend(self._refers_to(key))
        return reached

    def _refers_to(self, key: str) -> frozenset[str]:
        module, _, name = key.partition(":")
        known = self._modules[module].references
        if name not in known:
            known[name] = frozenset(self._find_references(key))
        return known[name]

    def _find_references(self, key: str) -> Iterator[str]:
        module_name, _, name = key.partition(":")
        module = self._modules[module_name]
        if name == "*":
            yield from (f"{module_name}:{each}" for each in module.definitions)
            return
        # whoever uses a module has it imported: what that runs has been run, and what it imports in turn
        yield f"{module_name}:"
        if name == "":
            yield from (f"{other}:" for other in module.imported)
        if name not in module.definitions:
            if name in module.imports:  # handed on from elsewhere
                yield self._whole(module.imports[name])
            return
        if name in _TABLES:
            return
        for statement in module.definitions[name]:
            yield from self._names_in(module, statement)

    def _names_in(self, module: _Module, statement: ast.stmt) -> Iterator[str]:
        of_modules: set[int] = set()  # names that stand for a module of which one attribute is used; a parent comes before its children
        for node in ast.walk(statement):
            match node:
                case ast.Attribute(value=ast.Name(id=name) as base) if (target := module.imports.get(name, "")) in self._modules:
                    of_modules.add(id(base))
                    inner = f"{target}.{node.attr}"
                    yield f"{inner}:*" if inner in self._modules else f"{target}:{node.attr}"
                case ast.Name(id=name) if id(node) not in of_modules:
                    if name in module.imports:
                        yield self._whole(module.imports[name])
                    elif name in module.definitions:
                        yield f"{module.name}:{name}"
                case ast.Constant(value=str() as text) if text in self._modules and text != PACKAGE:
                    yield f"{text}:*"  # imported by its name

    def _whole(self, target: str) -> str:
        return f"{target}:*" if target in self._modules else target

    def _digest(self, key: str) -> str:
        """Of a definition's syntax trees; of a table and of what is not in this package, nothing."""
        module_name, _, name = key.partition(":")
        module = self._modules[module_name]
        if name not in module.digests:
            statements = [] if name in _TABLES else module.definitions.get(name, [])
            module.digests[name] = json_digest([ast.dump(statement) for statement in statements])
        return module.digests[name]


class _Constants(dict[str, Any]):
    """A namespace that evaluates a module's constants as they are asked for, with the builtins that make collections."""

    def __init__(self, sources: _Sources, module: _Module) -> None:
        super().__init__(__builtins__={each.__name__: each for each in (tuple, list, set, frozenset, dict, sorted, range, zip)})
        self._sources, self._module = sources, module

    def __missing__(self, name: str) -> Any:
        return self._sources.constant(self._module, name)


def _drop_docstring(node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> None:
    """The only text in a syntax tree that changes no behaviour."""
    first = node.body[0]
    if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
        node.body = node.body[1:] or [ast.Pass()]


def _module_name(path: Path, folder: Path) -> str:
    parts = path.relative_to(folder.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
