"""`zoo.toml`: where it is looked for, what it may say, and that writing an entry leaves the rest as it is."""

import json
import tomllib
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from exporters.errors import CheckpointError, StoreError, UsageError
from exporters.zoo import zoo_file


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ZOOPORT_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.fixture
def project(tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project with an empty `zoo.toml`, entered two folders below it."""
    inside = tmp_path / "project" / "src" / "deep"
    inside.mkdir(parents=True)
    (tmp_path / "project" / "zoo.toml").write_text("")
    monkeypatch.chdir(inside)
    return tmp_path / "project"


def checkpoint(folder: Path) -> Path:
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps({"model_type": "bert", "architectures": ["BertModel"]}))
    save_file({"a": torch.zeros(4)}, folder / "model.safetensors")
    return folder


def write(file: Path, text: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


# ── Reading ───────────────────────────────────────────────────────────────────


def test_the_nearest_file_upwards_and_then_home(project: Path, home: Path) -> None:
    write(project / "zoo.toml", '[checkpoints.mine]\nhub = "a/project"\n[checkpoints.both]\nhub = "b/project"\n')
    write(home / "zoo.toml", '[checkpoints.yours]\nhub = "a/home"\n[checkpoints.both]\nhub = "b/home"\n')
    assert {name: entry.hub for name, entry in zoo_file.read().items()} == {"mine": "a/project", "both": "b/project", "yours": "a/home"}


def test_without_a_file_there_is_none(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert zoo_file.read() == {}


def test_a_folder_starts_at_the_file(project: Path) -> None:
    write(project / "zoo.toml", '[checkpoints.a]\npath = "models/a"\n[checkpoints.b]\npath = "/models/b"\n')
    named = zoo_file.read()
    assert named["a"].folder == project / "models" / "a"
    assert named["b"].folder == Path("/models/b")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[checkpoints", "is no TOML"),
        ('[checkpoint.a]\nhub = "a/b"', "has 'checkpoint'"),
        ("checkpoints = 3", "is no table"),
        ("[checkpoints]\na = 3", "no table of strings"),
        ("[checkpoints.a]\nhub = 3", "no table of strings"),
        ('[checkpoints.a]\nhub = "a/b"\npath = "x"', "either path or hub"),
        ("[checkpoints.a]", "either path or hub"),
        ('[checkpoints.a]\nhub = "a/b"\nhead = "x"', "has 'head'"),
        ('[checkpoints.a]\nhub = "./a"', "no hub id"),
        ('[checkpoints.a]\npath = "a"\nrevision = "x"', "a folder has no revision"),
        ('[checkpoints.a]\nhub = "a/b"\ntask = "text-clasification"', "no task called"),
        ('[checkpoints.BertModel]\nhub = "a/b"', "is a class of the zoo"),
        ('[checkpoints."a|b"]\nhub = "a/b"', "can't be a name"),
        ('[checkpoints."a@decode"]\nhub = "a/b"', "can't be a name"),
    ],
)
def test_what_a_file_can_t_say(project: Path, text: str, said: str) -> None:
    write(project / "zoo.toml", text)
    with pytest.raises(UsageError, match=said) as caught:
        zoo_file.read()
    assert str(project / "zoo.toml") in str(caught.value)
    assert caught.value.next


# ── Writing ───────────────────────────────────────────────────────────────────


def test_an_entry_goes_into_the_project(project: Path, home: Path) -> None:
    checkpoint(project / "src" / "deep" / "tiny")
    entry = zoo_file.add("tiny", "tiny", task="feature-extraction")
    assert (project / "zoo.toml").read_text() == '[checkpoints.tiny]\npath = "src/deep/tiny"\ntask = "feature-extraction"\n'
    assert zoo_file.read() == {"tiny": entry}
    assert entry.folder == project / "src" / "deep" / "tiny"
    assert not home.exists()


def test_an_entry_goes_home_where_there_is_no_project(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    zoo_file.add("tiny", str(checkpoint(tmp_path / "tiny")))
    zoo_file.add("far.1", "org/far", revision="v2")
    assert tomllib.loads((home / "zoo.toml").read_text()) == {
        "checkpoints": {"tiny": {"path": str(tmp_path / "tiny")}, "far.1": {"hub": "org/far", "revision": "v2"}}
    }
    assert [file.name for file in home.iterdir()] == ["zoo.toml"]


OTHERS = """# models of ours\r
\r
[checkpoints.first]  # the first
hub = "a/first"  # and why
[ checkpoints . odd ]
hub = "a/odd"

[checkpoints.second]
# from last year
hub = "a/second"

# about the third
[checkpoints.third]
hub = "a/third"
# the end"""


def test_the_rest_stays_as_it_is(project: Path) -> None:
    (project / "zoo.toml").write_bytes(OTHERS.encode())
    zoo_file.add("fourth", "a/fourth")
    assert (project / "zoo.toml").read_bytes() == (OTHERS + '\n\n[checkpoints.fourth]\nhub = "a/fourth"\n').encode()


def test_only_the_entry_is_replaced(project: Path) -> None:
    (project / "zoo.toml").write_bytes(OTHERS.encode())
    zoo_file.add("second", "a/newer", replace=True)
    assert (project / "zoo.toml").read_bytes() == OTHERS.replace('# from last year\nhub = "a/second"', 'hub = "a/newer"').encode()
    zoo_file.add("third", "a/newer", revision="v3", replace=True)
    assert (project / "zoo.toml").read_bytes().endswith(b'[checkpoints.third]\nhub = "a/newer"\nrevision = "v3"\n# the end')


def test_an_entry_is_replaced_where_it_is(project: Path, home: Path) -> None:
    write(home / "zoo.toml", '[checkpoints.tiny]\nhub = "a/old"\n')
    zoo_file.add("tiny", "a/new", replace=True)
    assert (home / "zoo.toml").read_text() == '[checkpoints.tiny]\nhub = "a/new"\n'
    assert (project / "zoo.toml").read_text() == ""


@pytest.mark.parametrize("text", ['[checkpoints]\ntiny = {hub = "a/old"}\n', 'checkpoints.tiny.hub = "a/old"\n'])
def test_a_form_that_can_t_be_edited_is_left_alone(project: Path, text: str) -> None:
    write(project / "zoo.toml", text)
    with pytest.raises(StoreError, match="only a person can change"):
        zoo_file.add("tiny", "a/new", replace=True)
    assert (project / "zoo.toml").read_text() == text


def test_a_name_that_is_taken_is_refused(project: Path, home: Path) -> None:
    write(home / "zoo.toml", '[checkpoints.tiny]\nhub = "a/old"\n')
    with pytest.raises(UsageError, match="already has tiny: a/old") as caught:
        zoo_file.add("tiny", "a/new")
    assert "--replace" in caught.value.next


@pytest.mark.parametrize(
    ("name", "where", "options", "said"),
    [
        ("BertModel", "a/b", {}, "class of the zoo"),
        ("LlamaForCausalLM@decode", "a/b", {}, "class of the zoo"),
        ("x y", "a/b", {}, "can't be a name"),
        ("x", "a/b", {"task": "text-clasification"}, "no task called"),
        ("x", "checkpoint", {"revision": "v2"}, "a folder has no revision"),
    ],
)
def test_what_can_t_be_named(project: Path, name: str, where: str, options: dict[str, str], said: str) -> None:
    checkpoint(Path("checkpoint"))
    with pytest.raises(UsageError, match=said):
        zoo_file.add(name, where, **options)
    assert (project / "zoo.toml").read_text() == ""


@pytest.mark.parametrize("where", ["./nowhere", "nowhere", "empty"])
def test_what_is_no_checkpoint(project: Path, where: str) -> None:
    Path("empty").mkdir()
    with pytest.raises(CheckpointError):
        zoo_file.add("x", where)


def test_a_file_that_can_t_be_written_is_told(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(target: Path, text: str) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(zoo_file, "write_whole", full)
    with pytest.raises(StoreError, match="No space left"):
        zoo_file.add("x", "a/b")
