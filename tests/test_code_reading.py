"""A definition's digest changes exactly when its code does, and its references are all that it can use of the package."""

import pytest

from exporters.code_reading import Module

MODULES = frozenset({"exporters", "exporters.a", "exporters.b", "exporters.zoo", "exporters.zoo.c"})


def read(text: str) -> Module:
    return Module("exporters.a", "exporters/a.py", text.encode(), MODULES)


def digest(body: str) -> str:
    (found,) = read(f"def f(x):\n    {body}\n").definition("f")
    return found.digest


def references(text: str, name: str = "f") -> set[str]:
    return set(read(text).references(name))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("return x", "'doc'\n    return x"),
        ("return x", "# why\n    return (x)"),
        ("return [x, 1]", "return [\n        x,\n        1,\n    ]"),
        ("return 'a'", 'return "a"'),
    ],
    ids=["docstring", "comment", "layout", "quotes"],
)
def test_the_same_code_has_the_same_digest(one: str, other: str) -> None:
    assert digest(one) == digest(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("return 1", "return 1.0"),
        ("return 1", "return True"),
        ("return 'a'", "return b'a'"),
        ("return x", "return 'x'"),
        ("return None", "return 'None'"),
        ("return [x], x", "return [x, x]"),
        ("return f(x, *[x])", "return f(x, [x])"),
        ("return f(x)(x)", "return f(x, x)"),
        ("return x[1:]", "return x[:1]"),
        ("return x.a.b", "return x.b.a"),
        ("assert x", "x"),
        ("if x: return 1\n    return 2", "if x:\n        return 1\n        return 2"),
        ("return lambda y: y", "return lambda *y: y"),
        ("async def g(): pass", "def g(): pass"),
        ("return f'{x}'", "return f'{x!r}'"),
    ],
)
def test_other_code_has_another_digest(one: str, other: str) -> None:
    assert digest(one) != digest(other)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("def g(): ...\ndef f(): g()", {"exporters.a:g"}),
        ("from exporters.b import g\ndef f(): g()", {"exporters.b:g"}),
        ("from exporters.b import g as h\ndef f(): h()", {"exporters.b:g"}),
        ("from exporters import b\ndef f(): b.g()", {"exporters.b:g"}),
        ("from exporters import b\ndef f(): h(b)", {"exporters.b:*"}),
        ("from exporters import zoo\ndef f(): zoo.c.g()", {"exporters.zoo.c:*"}),
        ("import exporters.b as b\ndef f(): b.g()", {"exporters.b:g"}),
        ("def f():\n    from exporters.b import g\n    g()", {"exporters.b:g", "exporters.b:"}),
        ("def f():\n    import exporters.zoo.c\n    exporters.zoo.c.g()", {"exporters.zoo.c:*", "exporters.zoo.c:"}),
        ("def f(): importlib.import_module('exporters.b')", {"exporters.b:*"}),
        ("def g(): ...\n@g\ndef f(): ...", {"exporters.a:g"}),
        ("import torch\ndef f(): torch.exp()", set()),
    ],
)
def test_references(text: str, expected: set[str]) -> None:
    assert references(text) - {"exporters:"} == expected


def test_a_local_import_is_local() -> None:
    assert references("def g():\n    from exporters.b import h\ndef f(): h()") == set()


def test_what_binds_nothing_belongs_to_importing_the_module() -> None:
    module = read(
        "import torch\nfrom exporters import b\n'text'\ntorch.x = b.g\nfor y in (): pass\n"
        "if TYPE_CHECKING:\n    from exporters.zoo import c\n"
    )
    assert len(module.definition("")) == 3  # the import, the assignment, the loop
    assert set(module.references("")) == {"exporters.b:", "exporters:", "exporters.b:g", "exporters.a:y"}
    assert len(module.definition("y")) == 1


@pytest.mark.parametrize("line", ["from . import b", "from exporters.b import *"])
def test_an_import_that_cannot_be_followed_is_refused(line: str) -> None:
    with pytest.raises(ValueError, match=r"exporters/a.py:2: import by name and with the full path"):
        read(f"x = 1\n{line}")
