"""The backends and the stages of their chains. Imports nothing heavy: the command line and Dagster read it at start."""

import difflib

from exporters.errors import UnknownBackend

# ── Chains ────────────────────────────────────────────────────────────────────
# One chain a family; every stage of a chain is an asset `<family>/<stage>`.

STAGES: dict[str, tuple[str, ...]] = {
    "dynamo": ("traced_program", "decomposed_graph"),
    "onnx": ("traced_program", "decomposed_graph", "lowered_onnx", "ir_fixed_model"),
    "executorch": ("traced_program", "decomposed_graph", "pte"),
}

BACKENDS: dict[str, tuple[str, ...]] = {
    "dynamo": ("dynamo",),
    "onnx": ("onnx",),
    "executorch": ("executorch.xnnpack", "executorch.portable", "executorch.cuda"),
}


def all_backends() -> list[str]:
    """Every backend name, in the order of the families."""
    return [backend for backends in BACKENDS.values() for backend in backends]


def family_of(backend: str) -> str:
    """The family (`dynamo`, `onnx`, `executorch`) of a backend name.

    Raises:
        UnknownBackend: with near matches, if there is no such backend.
    """
    for family, backends in BACKENDS.items():
        if backend in backends:
            return family
    near = difflib.get_close_matches(backend, all_backends(), n=2, cutoff=0.4)
    hint = f"did you mean {' or '.join(near)}?" if near else f"the backends are {', '.join(all_backends())}"
    raise UnknownBackend(f"no backend called {backend!r}", next=hint)


def scopes_of(backend: str) -> tuple[str, ...]:
    """The registry scopes that an export for `backend` installs, outermost first.

    `executorch.xnnpack` gives `("dynamo", "executorch", "executorch.xnnpack")`: every export traces, so every export
    inherits the `dynamo` scope, then each dotted prefix of its own name.
    """
    scopes = ["dynamo"]
    parts = backend.split(".")
    for end in range(1, len(parts) + 1):
        scope = ".".join(parts[:end])
        if scope not in scopes:
            scopes.append(scope)
    return tuple(scopes)
