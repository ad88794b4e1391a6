"""Which errors mean an absent package, and that a model which needs one is skipped rather than failed."""

from pathlib import Path

import pytest
from zoo_helpers import in_new_process

from exporters.chain import Request, run
from exporters.errors import MissingPackage
from exporters.source import Source, resolve
from exporters.zoo import requirements


def raised_from(error: Exception, cause: Exception) -> Exception:
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    ("error", "packages"),
    [
        (ModuleNotFoundError("No module named 'absent_a.part'", name="absent_a.part"), ["absent_a"]),
        (ImportError("X requires the absent_a library but it was not found in your environment."), ["absent_a"]),
        (
            ImportError("X requires the PIL library but it was not found in y.\nX requires the timm library but it was not found"),
            ["Pillow", "timm"],
        ),
        (raised_from(ImportError("Could not import module 'X'."), ModuleNotFoundError(name="absent_a")), ["absent_a"]),
        # a bug, here or upstream, and no package to install
        (ModuleNotFoundError("No module named 'torch.gone'", name="torch.gone"), []),
        (ModuleNotFoundError("No module named 'exporters.gone'", name="exporters.gone"), []),
        (ImportError("cannot import name 'x' from 'y'"), []),
        (ImportError("X requires the newest torch"), []),
        (ValueError("X requires the absent_a library but it was not found"), []),
    ],
)
def test_an_absent_package_is_told_from_a_broken_import(error: Exception, packages: list[str]) -> None:
    assert requirements.absent(error) == packages


def test_a_class_whose_module_needs_a_package_is_known_without_importing_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requirements, "_installed", lambda module: module != "torchaudio")
    assert requirements.skip_reason("HiggsAudioV2TokenizerModel") == "not installed: torchaudio"
    monkeypatch.setattr(requirements, "_installed", lambda module: True)
    assert requirements.skip_reason("HiggsAudioV2TokenizerModel") == ""


@pytest.mark.parametrize("model", ["BertModel", "LlamaForCausalLM@decode", "no class of the zoo", ""])
def test_what_needs_nothing_more_is_not_skipped(model: str) -> None:
    assert requirements.skip_reason(model) == ""


def test_the_chain_skips_a_module_s_package_without_torch(tmp_path: Path) -> None:
    code = (
        "import sys\nfrom exporters.zoo import requirements\nrequirements._installed = lambda module: False\n"
        "from exporters.chain import Request, run\n"
        f"report = run(Request(model='HiggsAudioV2TokenizerModel', home={str(tmp_path)!r}))\n"
        "print(report.outcome, report.reason, 'torch' in sys.modules)"
    )
    assert in_new_process(code) == "skipped not installed: torchaudio False"


def build_raises(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    def build(self: Source) -> None:
        raise error

    monkeypatch.setattr(Source, "_build", build)


def test_the_chain_skips_what_its_build_finds_absent(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    build_raises(monkeypatch, ImportError("X requires the PIL library but it was not found in your environment."))
    report = run(Request(model="BertModel", home=str(tmp_path)))
    assert (report.outcome, report.reason, report.error, report.stages) == ("skipped", "not installed: Pillow", None, [])


def test_the_chain_fails_where_an_import_is_broken(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    build_raises(monkeypatch, ImportError("cannot import name 'x' from 'torch'"))
    report = run(Request(model="BertModel", home=str(tmp_path)))
    assert report.outcome == "failed"
    assert report.error is not None
    assert (report.error.stage, report.error.type) == ("traced_program", "ImportError")


def test_a_real_class_names_what_it_needs() -> None:
    if requirements._installed("timm"):
        pytest.skip("timm is installed here")
    with pytest.raises(MissingPackage, match="timm"):
        resolve("TimmBackbone").sample()
