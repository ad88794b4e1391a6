"""The registries of workarounds, and what installs, applies and observes them.

A workaround is one function under one decorator. A *patch* swaps an attribute while an export runs; a *fix* rewrites the
traced program. Scopes are dotted: an export for `executorch.xnnpack` takes what is registered for `dynamo`, `executorch`
and `executorch.xnnpack`, and nothing else.

Patches are global to the process, so one thread at a time may have any installed; within that thread they nest, each is
installed at most once, and they are restored in reverse order whatever happens.
"""

import contextlib
import functools
import importlib
import inspect
import re
import sys
import threading
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from types import ModuleType
from typing import TYPE_CHECKING, Any, Literal

from exporters.backends import scopes_of
from exporters.docstrings import parse_fields
from exporters.errors import PatchConflict, StaleWorkaround

if TYPE_CHECKING:
    from torch.export import ExportedProgram
    from torch.fx import GraphModule, Node

Kind = Literal["patch", "fx_node_fix", "fx_program_fix", "translation", "ir_fix"]
PatchFactory = Callable[[Callable[..., Any]], Callable[..., Any]]
FxNodeFix = Callable[["GraphModule", "Node"], bool]
FxProgramFix = Callable[["ExportedProgram"], "ExportedProgram | None"]

# ── Registrations ─────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Registration:
    """One workaround in one scope: what it is, where it stands, why it exists.

    Attributes:
        targets: dotted paths of a patch, operator names (`aten.slice.Tensor`, `TopK`) of a fix or a translation; empty where a fix
            reads every node.
    """

    kind: Kind
    scope: str
    function: Callable[..., Any]
    targets: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return f"{self.scope}:{self.function.__name__}"

    @property
    def location(self) -> str:
        """`file:line` of the function."""
        code = inspect.unwrap(self.function).__code__
        return f"{code.co_filename}:{code.co_firstlineno}"

    @property
    def fields(self) -> dict[str, str]:
        """The docstring's fields: `summary`, then `Why`, `Upstream`, `Seen in` and others, each on one line."""
        return parse_fields(inspect.getdoc(self.function) or "")


class Registry:
    """What is registered, in order of registration."""

    def __init__(self) -> None:
        self._registrations: list[Registration] = []

    def add(self, registration: Registration) -> None:
        """Raises ValueError if the same name is registered twice in a scope."""
        if any(known.name == registration.name and known.kind == registration.kind for known in self._registrations):
            raise ValueError(f"{registration.name} is registered twice")
        self._registrations.append(registration)

    def remove(self, registration: Registration) -> None:
        self._registrations.remove(registration)

    def select(self, kind: Kind | None = None, scopes: Sequence[str] | None = None) -> list[Registration]:
        """Registrations of a kind in the given scopes (all of them where None), scope by scope, then as registered."""
        chosen = [r for r in self._registrations if kind is None or r.kind == kind]
        if scopes is None:
            return chosen
        return [r for scope in scopes for r in chosen if r.scope == scope]


REGISTRY = Registry()


def register_patch(scope: str, *paths: str) -> Callable[[PatchFactory], PatchFactory]:
    """Register a patch: a factory that is given the original and returns its replacement.

    Args:
        scope: `dynamo`, `onnx`, `executorch` or `executorch.<backend>`. Decorators stack for several scopes.
        paths: dotted paths of methods or functions, such as `torch.where`; the factory is called once for each.
    """
    if not paths:
        raise ValueError("a patch needs at least one path")

    def decorate(factory: PatchFactory) -> PatchFactory:
        REGISTRY.add(Registration("patch", scope, factory, paths))
        return factory

    return decorate


def register_fx_node_fix(scope: str, *, operators: Sequence[str] = ()) -> Callable[[FxNodeFix], FxNodeFix]:
    """Register a node fix, `fix(graph_module, node) -> bool`: it may rewrite around one node and says whether it did.

    Args:
        operators: names of the call targets that it can touch (`aten.index_put_.default`); it sees no other node.
    """

    def decorate(fix: FxNodeFix) -> FxNodeFix:
        REGISTRY.add(Registration("fx_node_fix", scope, fix, tuple(operators)))
        return fix

    return decorate


def register_fx_program_fix(scope: str) -> Callable[[FxProgramFix], FxProgramFix]:
    """Register a program fix, `fix(exported_program) -> ExportedProgram | None`; None means that nothing was changed."""

    def decorate(fix: FxProgramFix) -> FxProgramFix:
        REGISTRY.add(Registration("fx_program_fix", scope, fix))
        return fix

    return decorate


# ── Observation ───────────────────────────────────────────────────────────────


@dataclass
class Observation:
    """What workarounds did while it was the current one. Counts are calls, nodes changed, and uses.

    Attributes:
        in_reach: patches that could have been called, each as `patch_identity` has it; None where no patches were applied.
        read: operators that the passes of a kind read, by `<kind> <scope>`; there only if such a pass ran.
        absent: patch paths whose package isn't installed, and that package.
        unloaded: patch paths in modeling modules that nobody had imported.
    """

    installed: set[str] = field(default_factory=set)
    called: Counter[str] = field(default_factory=Counter)
    changed: Counter[str] = field(default_factory=Counter)
    used: Counter[str] = field(default_factory=Counter)
    in_reach: set[str] | None = None
    read: dict[str, set[str]] = field(default_factory=dict)
    absent: dict[str, str] = field(default_factory=dict)
    unloaded: set[str] = field(default_factory=set)

    def reads(self, kind: Kind, scopes: Iterable[str], operators: Iterable[str] = ()) -> None:
        """Note that a pass of `kind` with what is registered in `scopes` read a graph with these operators."""
        for scope in scopes:
            self.read.setdefault(f"{kind} {scope}", set()).update(operators)

    @property
    def fired(self) -> list[str]:
        """Names of all workarounds that were called, changed something or were used, sorted."""
        return sorted({*self.called, *self.changed, *self.used})


_observation: ContextVar[Observation | None] = ContextVar("zooport_observation", default=None)


@contextlib.contextmanager
def observe() -> Iterator[Observation]:
    """Collect what every workaround does inside the block; the innermost observation sees it."""
    observation = Observation()
    token = _observation.set(observation)
    try:
        yield observation
    finally:
        _observation.reset(token)


def current_observation() -> Observation:
    """The innermost observation, or one that nobody reads."""
    return _observation.get() or Observation()


def patch_identity(name: str, targets: Sequence[str]) -> str:
    """A patch by what it replaces: one that replaces something else could be called where this one was not."""
    return f"{name} {zlib.crc32(' '.join(targets).encode()):08x}"


# ── Leaving out ───────────────────────────────────────────────────────────────

_left_out: ContextVar[frozenset[str]] = ContextVar("zooport_left_out", default=frozenset())


@contextlib.contextmanager
def leaving_out(names: Iterable[str]) -> Iterator[None]:
    """Export as if the named registrations (`onnx:_patch_where`) didn't exist, for ablation and for canary tests.

    Raises:
        ValueError: nothing of a name is registered.
    """
    names = frozenset(names)
    unknown = names - {registration.name for registration in REGISTRY.select()}
    if unknown:
        raise ValueError(f"not registered: {', '.join(sorted(unknown))}")
    token = _left_out.set(_left_out.get() | names)
    try:
        yield
    finally:
        _left_out.reset(token)


def selected(kind: Kind, scopes: Sequence[str] | None = None, *, without: Sequence[str] = ()) -> list[Registration]:
    """What is registered and not left out, in the order in which it applies."""
    hidden = {*without, *_left_out.get()}
    return [registration for registration in REGISTRY.select(kind, scopes) if registration.name not in hidden]


# ── Patches ───────────────────────────────────────────────────────────────────


class _Installed(threading.local):
    """What this thread has installed now, by registration."""

    def __init__(self) -> None:
        self.registrations: list[Registration] = []


_owner_lock = threading.Lock()
_owner: int | None = None
_installed = _Installed()


def active_patches() -> list[str]:
    """Names of the patches that this thread has installed now."""
    return [registration.name for registration in _installed.registrations]


@contextlib.contextmanager
def _sole_owner() -> Iterator[None]:
    """Hold the process' patches for this thread; the outermost holder gives them back."""
    global _owner
    me = threading.get_ident()
    with _owner_lock:
        if _owner not in (None, me):
            raise PatchConflict(
                "patches are installed by another thread of this process",
                next="export from one thread at a time, or in one process each",
            )
        outermost = _owner is None
        _owner = me
    try:
        yield
    finally:
        if outermost:
            with _owner_lock:
                _owner = None


class AbsentPackage(Exception):
    """The package of a path isn't installed; `args[0]` names it."""


def resolve(path: str) -> tuple[Any, str, Any]:
    """The owner, attribute name and raw attribute (descriptors unresolved) that a dotted path names.

    Raises:
        AbsentPackage: a package on the way isn't installed.
        StaleWorkaround: the package is there, but the rest of the path isn't.
    """
    parts = path.split(".")
    owner: ModuleType | Any = None
    depth = 0
    for end in range(1, len(parts)):
        name = ".".join(parts[:end])
        try:
            owner = importlib.import_module(name)
        except ModuleNotFoundError as error:
            missing = error.name or name
            if end == 1 or not path.startswith(missing):
                raise AbsentPackage(missing) from error
            break
        depth = end
    for name in parts[depth:-1]:
        owner = getattr(owner, name, None)
    try:
        raw = inspect.getattr_static(owner, parts[-1]) if inspect.isclass(owner) else getattr(owner, parts[-1])
    except AttributeError as error:
        raise StaleWorkaround(f"{path} doesn't exist in what is installed", next="delete the patch, or mend its path") from error
    return owner, parts[-1], raw


MODELING_MODULE = re.compile(r"transformers\.models\.\w+\.modeling_\w+")


def _is_unloaded(path: str) -> bool:
    """Whether a path names a modeling module that isn't imported: no model can be of a class in it, and to import it takes time."""
    module = MODELING_MODULE.match(path)
    return module is not None and module[0] not in sys.modules


def _replacement(registration: Registration, raw: Any) -> Any:
    """What the factory makes of the original, counted, and wrapped as the original was (static or class method)."""
    wrapper = type(raw) if isinstance(raw, staticmethod | classmethod) else None
    original = raw.__func__ if wrapper else raw
    replacement = registration.function(original)
    if not callable(replacement) or inspect.isclass(replacement):
        raise TypeError(f"{registration.name} must return a function, not {replacement!r}")

    @functools.wraps(original if callable(original) else replacement)
    def counted(*args: Any, **kwargs: Any) -> Any:
        current_observation().called[registration.name] += 1
        return replacement(*args, **kwargs)

    return wrapper(counted) if wrapper else counted


@contextlib.contextmanager
def apply_patches(backend: str, *, without: Sequence[str] = ()) -> Iterator[None]:
    """Install every patch registered for `backend` and the scopes that it inherits, for the block.

    Args:
        backend: dotted backend name, or a bare scope such as `dynamo`.
        without: names of registrations (`onnx:_patch_where`) to leave out, for ablation and for canary tests.

    A path in a modeling module of transformers that isn't imported is passed over.

    Raises:
        PatchConflict: another thread has patches installed.
        StaleWorkaround: a path's package is installed, but its attribute is gone. Nothing stays patched.
    """
    with _sole_owner(), contextlib.ExitStack() as stack:
        observation = current_observation()
        patches = selected("patch", scopes_of(backend), without=without)
        observation.in_reach = (observation.in_reach or set()) | {patch_identity(each.name, each.targets) for each in patches}
        for registration in patches:
            if registration in _installed.registrations:
                continue
            patched = False
            for path in registration.targets:
                if _is_unloaded(path):
                    observation.unloaded.add(path)
                    continue
                try:
                    owner, name, raw = resolve(path)
                except AbsentPackage as absent:
                    observation.absent[path] = str(absent)
                    continue
                replacement = _replacement(registration, raw)
                # an inherited attribute has to be deleted again, not set on the heir
                inherited = inspect.isclass(owner) and name not in vars(owner)
                stack.callback(delattr, owner, name) if inherited else stack.callback(setattr, owner, name, raw)
                setattr(owner, name, replacement)
                patched = True
            if not patched:
                continue
            _installed.registrations.append(registration)
            stack.callback(_installed.registrations.remove, registration)
            observation.installed.add(registration.name)
        yield


# ── Fixes ─────────────────────────────────────────────────────────────────────


def target_name(node: "Node") -> str:
    """The name by which fixes declare a node's target: `aten.add.Tensor`, `_operator.getitem`, `sym_size.int`."""
    target = node.target
    if isinstance(target, str):
        return target
    if type(target).__name__ == "OpOverload":
        return str(target)
    return f"{getattr(target, '__module__', '')}.{getattr(target, '__name__', target)}"


def apply_fx_node_fixes(backend: str, graph_module: "GraphModule", *, without: Sequence[str] = ()) -> int:
    """Run every node fix of `backend` over the nodes of `graph_module` and of its subgraphs; the number of changes."""
    from torch.fx import GraphModule

    scopes = scopes_of(backend)
    fixes = selected("fx_node_fix", scopes, without=without)
    observation = current_observation()
    observation.reads("fx_node_fix", scopes)
    changes = 0
    for module in graph_module.modules():
        if not isinstance(module, GraphModule):
            continue
        changed_here = 0
        names = _call_targets(module)
        observation.reads("fx_node_fix", scopes, names)
        for fix in fixes:
            if fix.targets and names.isdisjoint(fix.targets):
                continue
            changed = 0
            for node in list(module.graph.nodes):
                if node._erased or (fix.targets and (node.op != "call_function" or target_name(node) not in fix.targets)):
                    continue
                changed += fix.function(module, node)
            if changed:
                observation.changed[fix.name] += changed
                changed_here += changed
                # what it put in, the fixes after it read
                names = _call_targets(module)
                observation.reads("fx_node_fix", scopes, names)
        if changed_here:
            module.graph.lint()
            module.recompile()
        changes += changed_here
    return changes


def _call_targets(module: "GraphModule") -> set[str]:
    return {target_name(node) for node in module.graph.nodes if node.op == "call_function"}


def apply_fx_program_fixes(backend: str, program: "ExportedProgram", *, without: Sequence[str] = ()) -> "ExportedProgram":
    """Run every program fix of `backend`, in order of registration, each on what the one before it returned."""
    scopes = scopes_of(backend)
    observation = current_observation()
    observation.reads("fx_program_fix", scopes)
    for fix in selected("fx_program_fix", scopes, without=without):
        before = _node_counts(program)
        fixed = fix.function(program)
        if fixed is not None:
            observation.changed[fix.name] += _differences(before, _node_counts(fixed))
            program = fixed
    return program


def _node_counts(program: "ExportedProgram") -> Counter[str]:
    return Counter(f"{node.op} {target_name(node)}" for node in program.graph.nodes)


def _differences(before: Counter[str], after: Counter[str]) -> int:
    """Nodes that came or went; at least one, for what was changed in place."""
    return max(1, ((before - after) + (after - before)).total())
