"""The index of our own source: it names what is registered, and a fingerprint changes exactly when behaviour can."""

import shutil
from pathlib import Path

import pytest

from exporters import code_index as indexed
from exporters.code_index import CodeIndex, code_index


@pytest.fixture(scope="module")
def pristine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package as it is now, whoever edits it meanwhile."""
    target = tmp_path_factory.mktemp("pristine") / "exporters"
    return shutil.copytree(indexed.FOLDER, target, ignore=shutil.ignore_patterns("__pycache__"))


@pytest.fixture(scope="module")
def index(pristine: Path) -> CodeIndex:
    return code_index(folder=pristine)


@pytest.fixture
def package(pristine: Path, tmp_path: Path) -> Path:
    """A copy of the package that a test may edit."""
    return shutil.copytree(pristine, tmp_path / "exporters")


def edit(package: Path, file: str, old: str, new: str) -> CodeIndex:
    path = package / file
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))
    return code_index(folder=package)


def changed(before: CodeIndex, after: CodeIndex) -> tuple[set[str], set[str]]:
    """Names of the workarounds and of the cores whose fingerprints differ."""
    old = {each.name: each.fingerprint for each in before.workarounds}
    new = {each.name: each.fingerprint for each in after.workarounds}
    names = {name for name in old.keys() | new.keys() if old.get(name) != new.get(name)}
    return names, {name for name in before.core if before.core[name] != after.core[name]}


# ── What is registered ────────────────────────────────────────────────────────


def test_the_index_names_what_is_registered_when_the_exporters_are_imported(index: CodeIndex) -> None:
    import exporters.exporter_executorch
    import exporters.exporter_onnx  # noqa: F401
    from exporters.utils import REGISTRY

    ours = [each for each in REGISTRY.select() if each.function.__module__.startswith("exporters.")]
    registered = {(each.kind, each.name, tuple(each.targets)) for each in ours}
    assert {(each.kind, each.name, each.targets) for each in index.workarounds} == registered
    locations = {each.name: each.location for each in ours}
    for each in index.workarounds:
        assert locations[each.name] == f"{indexed.FOLDER.parent / each.file}:{each.line}"
        assert each.fields == next(known.fields for known in ours if known.name == each.name)


def test_the_index_is_the_same_for_a_copy_in_another_folder(index: CodeIndex, package: Path) -> None:
    assert code_index(folder=package) == index


def test_an_index_is_kept_and_a_damaged_one_made_again(package: Path, tmp_path: Path) -> None:
    first = code_index(tmp_path / "cache", folder=package)
    (kept,) = (tmp_path / "cache").glob("code-*.json")
    indexed._cached.cache_clear()
    assert code_index(tmp_path / "cache", folder=package) == first
    kept.write_text(kept.read_text()[:-100])
    indexed._cached.cache_clear()
    assert code_index(tmp_path / "cache", folder=package) == first


def test_a_home_that_cannot_be_written_costs_nothing_but_time(package: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert code_index(tmp_path / "file" / "cache", folder=package).workarounds


def test_a_registration_that_needs_more_than_constants_is_refused(package: Path) -> None:
    with pytest.raises(ValueError, match=r"pooling\.py:\d+: a registration is made of literals"):
        edit(package, "models/pooling.py", '"torch.nn.functional.max_pool1d"', "register_patch.__name__")


# ── Workarounds ───────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (
            "    dtype, dim = self.dtype, dim % len(self.shape)\n",
            "\n    # a remark\n    dtype, dim = (self.dtype, dim % len(self.shape))\n",
        ),
        ('    """Sort with `TopK`', '    """In other words, sort with `TopK`'),
    ],
    ids=["comment", "docstring"],
)
def test_comments_docstrings_and_layout_change_nothing(index: CodeIndex, package: Path, old: str, new: str) -> None:
    assert changed(index, edit(package, "exporter_onnx.py", old, new)) == (set(), set())


def test_a_workarounds_code_changes_its_own_fingerprint_alone(index: CodeIndex, package: Path) -> None:
    after = edit(package, "exporter_onnx.py", "largest=descending, sorted=True", "largest=descending, sorted=False")
    assert changed(index, after) == ({"onnx:_aten_sort_stable"}, set())


def test_what_a_workaround_calls_is_part_of_it(index: CodeIndex, package: Path) -> None:
    after = edit(package, "exporter_onnx.py", "2**63 - 1", "2**62")
    assert changed(index, after) == ({"onnx:_aten_cummax", "onnx:_aten_cummin"}, set())


def test_what_a_workaround_calls_in_another_module_is_part_of_it(index: CodeIndex, package: Path) -> None:
    names, _ = changed(index, edit(package, "executorch_scan.py", "def resize_while_copying(", "@str\ndef resize_while_copying("))
    assert "executorch:_patch_emit_scan" in names


def test_where_a_workaround_is_registered_is_part_of_it(index: CodeIndex, package: Path) -> None:
    names, cores = changed(index, edit(package, "models/vision.py", '    "cosmos3_edge",\n', ""))
    assert "dynamo:_patch_packed_attention" in names
    assert cores == set()


def test_a_new_workaround_is_one(index: CodeIndex, package: Path) -> None:
    new = '@register_patch("dynamo", "torch.nn.functional.max_pool2d")\ndef _patch_new(original):\n    return original\n\n\n'
    after = edit(package, "models/pooling.py", '@register_patch("dynamo"', new + '@register_patch("dynamo"')
    assert changed(index, after) == ({"dynamo:_patch_new"}, set())


def test_a_translation_in_the_table_and_an_ir_fix_with_its_operators_are_workarounds(index: CodeIndex, package: Path) -> None:
    after = edit(
        package,
        "exporter_onnx.py",
        "_IR_FIXES: dict[IrFix, tuple[str, ...]] = {}",
        'def _fix_ir_new(model):\n    return 0\n\n\n_IR_FIXES: dict[IrFix, tuple[str, ...]] = {_fix_ir_new: ("TopK", "Sort")}',
    )
    assert changed(index, after) == ({"onnx:_fix_ir_new"}, set())
    (found,) = (each for each in after.workarounds if each.kind == "ir_fix")
    assert (found.scope, found.targets) == ("onnx", ("TopK", "Sort"))


@pytest.mark.parametrize(
    "added",
    ["torch.backends.flags = 1", "if torch.cuda.is_available():\n    def later(): return 1", "for each in ():\n    torch.add = each"],
    ids=["attribute", "branch", "loop"],
)
def test_what_importing_a_module_does_concerns_all_that_use_it(index: CodeIndex, package: Path, added: str) -> None:
    names, cores = changed(index, edit(package, "models/pooling.py", '@register_patch("dynamo"', f'{added}\n\n\n@register_patch("dynamo"'))
    assert "dynamo:_patch_max_pool1d" in names
    assert cores == {"dynamo", "onnx", "executorch"}


def test_what_a_workaround_imports_while_it_runs_is_part_of_it(package: Path) -> None:
    """Importing a module runs it, whether or not a name of it is used."""
    before = edit(package, "models/canine.py", "    def ", "    import exporters.models.pooling\n\n    def ")
    after = edit(package, "models/pooling.py", "\ndef ", "\ntorch.flags = 1\n\n\ndef ")
    assert "dynamo:_patch_local_attention" in changed(before, after)[0]


@pytest.mark.parametrize("line", ["from . import muse", "from exporters.zoo.sample import *"])
def test_an_import_that_cannot_be_followed_is_refused(package: Path, line: str) -> None:
    with pytest.raises(ValueError, match=r"pooling\.py:\d+: import by name and with the full path"):
        edit(package, "models/pooling.py", '@register_patch("dynamo"', f'{line}\n\n\n@register_patch("dynamo"')


# ── The rest ──────────────────────────────────────────────────────────────────


def test_what_every_trace_runs_concerns_every_family(index: CodeIndex, package: Path) -> None:
    after = edit(package, "exporter_dynamo.py", "name = model_name(model)", "name = str(model_name(model))")
    assert changed(index, after) == (set(), {"dynamo", "onnx", "executorch"})


def test_a_familys_code_concerns_no_other_family(index: CodeIndex, package: Path) -> None:
    after = edit(package, "exporter_executorch.py", "manager = edge.to_executorch(", "manager = edge.to_executorch(*(), ")
    assert changed(index, after) == (set(), {"executorch"})


def test_what_builds_samples_and_what_verifies_have_fingerprints_of_their_own(index: CodeIndex, package: Path) -> None:
    after = edit(package, "zoo/scaling.py", "def scale_weights(", "@str\ndef scale_weights(")
    assert changed(index, after) == (set(), {"sample"})
    later = edit(package, "zoo/overrides.json", "{", "{ ")
    assert changed(after, later) == (set(), {"sample"})


def test_what_keeps_and_shows_artifacts_concerns_no_stage(index: CodeIndex, package: Path) -> None:
    after = edit(package, "store.py", "class Store:", "class Store(object):")
    # what nobody refers to changes nothing
    later = edit(package, "publish.py", "def publish(", "def publish_(): ...\n\n\ndef publish(")
    assert changed(index, after) == changed(index, later) == (set(), set())


def test_a_module_imported_for_its_registrations_counts(index: CodeIndex, package: Path) -> None:
    """An import is how workarounds come to be registered, and in which order."""
    _, cores = changed(
        index,
        edit(
            package,
            "exporter_dynamo.py",
            "from exporters.models import",
            "from exporters.models import pooling\nfrom exporters.models import",
        ),
    )
    assert cores == {"dynamo", "onnx", "executorch"}
