"""One module's source, read into definitions: what each of them is made of and which names it uses. Imports nothing of what it reads.

A definition is a statement at the top level of a module. Its syntax tree is walked once, and only if somebody asks for it: the walk gives
the digest and the names together, and it is most of what an index costs.
"""

import ast
import hashlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

PACKAGE = "exporters"
# what follows from where a node stands, or is a comment
_SILENT = {"ctx", "kind", "type_comment", "type_ignores"}
_FIELDS = {
    kind: tuple(name for name in kind._fields if name not in _SILENT)
    for kind in vars(ast).values()
    if isinstance(kind, type) and issubclass(kind, ast.AST)
}


@dataclass
class Definition:
    """What a walk over a definition found.

    Attributes:
        digest: sha256 of its syntax tree without comments, docstrings and layout.
        names: that occur in it, whatever their scope.
        attributes: of a name that occurs, as (name, attribute); such a name is not among `names` for that.
        texts: string constants.
        imports: local names that it binds by importing: `module` or `module:name`.
        imported: modules of the package that it imports.
        whole: modules imported by their dotted name, of which anything may be used.
    """

    digest: str = ""
    names: set[str] = field(default_factory=set)
    attributes: set[tuple[str, str]] = field(default_factory=set)
    texts: set[str] = field(default_factory=set)
    imports: dict[str, str] = field(default_factory=dict)
    imported: set[str] = field(default_factory=set)
    whole: set[str] = field(default_factory=set)


class Module:
    """A module's definitions by name; under the empty name what runs when it is imported and binds nothing.

    Attributes:
        file: relative to the folder that holds the package.

    Raises:
        ValueError: an import that can't be followed: a relative one, or one of everything.
    """

    def __init__(self, name: str, file: str, text: bytes, modules: frozenset[str]) -> None:
        self.name, self.file = name, file
        self.definitions: dict[str, list[ast.stmt]] = {"": []}
        self.imports: dict[str, str] = {}  # also those for annotations alone
        self._modules = modules
        self._read: dict[str, list[Definition]] = {}
        for statement in ast.parse(text).body:
            self._sort_in(statement)

    def definition(self, name: str) -> list[Definition]:
        """What each statement that defines a name is made of; none if nothing here does."""
        if name not in self._read:
            self._read[name] = [_Walk(self.file, self._modules).over(statement) for statement in self.definitions.get(name, [])]
        return self._read[name]

    def docstring(self, function: str) -> str:
        return ast.get_docstring(self.definitions[function][0]) or ""  # type: ignore[arg-type]

    def references(self, name: str) -> Iterator[str]:
        """What a definition may use of the package: `module:name`, `module:*` for all of it, `module:` for its being imported."""
        modules = self._modules
        for found in self.definition(name):
            imports = {**self.imports, **found.imports}
            names = set(found.names)
            for base, attribute in found.attributes:
                target = imports.get(base, "")
                if target in modules:
                    yield self.whole(f"{target}.{attribute}") if f"{target}.{attribute}" in modules else f"{target}:{attribute}"
                else:
                    names.add(base)
            for each in names:
                if each in imports:
                    yield self.whole(imports[each])
                elif each in self.definitions:
                    yield f"{self.name}:{each}"
            yield from (f"{text}:*" for text in found.texts if text in modules and text != PACKAGE)  # imported by its name
            yield from (f"{each}:*" for each in found.whole)
            yield from (f"{each}:" for each in found.imported)

    def whole(self, target: str) -> str:
        """`target`, or everything of it if it is a module."""
        return f"{target}:*" if target in self._modules else target

    def _sort_in(self, statement: ast.stmt) -> None:
        names = {""}
        match statement:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                names = {name}
            case ast.Assign() | ast.AnnAssign() | ast.AugAssign():
                names = bound(statement) or {""}
            case ast.Expr(value=ast.Constant()):
                return
            case ast.Import() | ast.ImportFrom():
                self.imports |= _names_imported(statement, self.file, self._modules)
                # the order of imports is the order of registrations
                if not _imported(statement, self._modules):
                    return
            case _:
                for node in ast.walk(statement):
                    if isinstance(node, ast.Import | ast.ImportFrom):
                        self.imports |= _names_imported(node, self.file, self._modules)
                if isinstance(statement, ast.If) and isinstance(statement.test, ast.Name) and statement.test.id == "TYPE_CHECKING":
                    return  # types run nothing
                names |= bound(statement)
        for name in names:
            self.definitions.setdefault(name, []).append(statement)


def bound(statement: ast.stmt) -> set[str]:
    """Names that a statement binds, in whatever it nests."""
    return {node.id for node in ast.walk(statement) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}


# ── Imports ───────────────────────────────────────────────────────────────────


def _is_ours(module: str) -> bool:
    return module == PACKAGE or module.startswith(f"{PACKAGE}.")


def _names_imported(node: ast.Import | ast.ImportFrom, file: str, modules: frozenset[str]) -> dict[str, str]:
    """Local names of the package's modules and definitions."""
    if isinstance(node, ast.Import):
        return {alias.asname: alias.name for alias in node.names if alias.asname and _is_ours(alias.name)}
    base = node.module or ""
    if node.level or (_is_ours(base) and any(alias.name == "*" for alias in node.names)):
        raise ValueError(f"{file}:{node.lineno}: import by name and with the full path, so that it can be followed")
    if not _is_ours(base):
        return {}
    wholes = {alias: f"{base}.{alias.name}" for alias in node.names}
    return {alias.asname or alias.name: whole if whole in modules else f"{base}:{alias.name}" for alias, whole in wholes.items()}


def _imported(node: ast.Import | ast.ImportFrom, modules: frozenset[str]) -> set[str]:
    names = [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom):
        base = node.module or ""
        names = [base, *(f"{base}.{name}" for name in names)]
    return {name for name in names if name in modules}


# ── One definition ────────────────────────────────────────────────────────────


class _Walk:
    """Writes a syntax tree as tokens, in an order from which the tree could be built again, and notes names on the way."""

    def __init__(self, file: str, modules: frozenset[str]) -> None:
        self._file, self._modules = file, modules
        self._found = Definition()
        self._tokens: list[str] = []

    def over(self, statement: ast.stmt) -> Definition:
        self._node(statement)
        self._found.digest = hashlib.sha256("\0".join(self._tokens).encode()).hexdigest()
        return self._found

    def _node(self, node: ast.AST) -> None:
        _HOW.get(node.__class__, _Walk._fields)(self, node)

    def _fields(self, node: ast.AST) -> None:
        tokens = self._tokens
        tokens.append(node.__class__.__name__)
        for name in _FIELDS[node.__class__]:
            value = getattr(node, name, None)
            if value.__class__ is list:
                tokens.append("[")
                for item in value:
                    if isinstance(item, ast.AST):
                        # a constant alone is a docstring or a placeholder, and does nothing
                        if not (item.__class__ is ast.Expr and item.value.__class__ is ast.Constant):
                            self._node(item)
                    else:
                        tokens.append(repr(item))
                tokens.append("]")
            elif isinstance(value, ast.AST):
                self._node(value)
            else:
                tokens.append(repr(value))

    def _name(self, node: ast.Name) -> None:
        self._tokens += ("Name", node.id)
        self._found.names.add(node.id)

    def _attribute(self, node: ast.Attribute) -> None:
        self._tokens += ("Attribute", node.attr)
        if isinstance(node.value, ast.Name):
            self._tokens += ("Name", node.value.id)
            self._found.attributes.add((node.value.id, node.attr))
        else:
            self._node(node.value)

    def _constant(self, node: ast.Constant) -> None:
        self._tokens += ("Constant", repr(node.value))
        if isinstance(node.value, str):
            self._found.texts.add(node.value)

    def _import(self, node: ast.Import | ast.ImportFrom) -> None:
        found = self._found
        found.imports |= _names_imported(node, self._file, self._modules)
        found.imported |= _imported(node, self._modules)
        if isinstance(node, ast.Import):
            found.whole |= {alias.name for alias in node.names if not alias.asname and alias.name in self._modules}
        self._fields(node)


_HOW: Mapping[type, Callable[..., None]] = {
    ast.Name: _Walk._name,
    ast.Attribute: _Walk._attribute,
    ast.Constant: _Walk._constant,
    ast.Import: _Walk._import,
    ast.ImportFrom: _Walk._import,
}
