"""The models for which a fix of ExecuTorch's was written: each is verified at the sizes that it failed at, with the fix at work."""

from pathlib import Path

import pytest

from exporters.chain import Request, run

MODELS = {
    "GraniteSpeech5ForCTC": {"executorch:_fix_mod_of_negative"},
    "AutoformerForPrediction": {"executorch:_fix_fourier_layout", "executorch:_fix_empty_of_size"},
}


@pytest.mark.slow
@pytest.mark.e2e
@pytest.mark.parametrize("model", sorted(MODELS))
def test_effect(model: str, tmp_path: Path) -> None:
    report = run(Request(model=model, backend="executorch.xnnpack", home=str(tmp_path)))
    assert report.outcome == "verified", report.error
    assert {name for stage in report.stages for name in stage.fired} >= MODELS[model]
