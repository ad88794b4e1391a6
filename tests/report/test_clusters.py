"""Failures of one cause come together whatever numbers and names their messages have, and others don't."""

import random

import pytest
from report_samples import failed, ran, skipped, verified

from exporters.report import Report
from orchestration.report.clusters import Cluster, cluster, normalize
from orchestration.report.snapshot import take


def clusters(*reports: Report, types: dict[str, str] | None = None) -> list[Cluster]:
    return cluster(take({(report.backend, report.model): report for report in reports}, 0.0).partitions, types)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (
            "Expected input at 'input_ids'.shape[1] to be <= 11, but got 14",
            "Expected input at 'input_ids'.shape[1] to be <= 3, but got 140",
        ),
        (
            "sample: logits: 740 of 9216 values beyond the bound, the worst by 0.00171",
            "other: scores: 1 of 3 values beyond the bound, the worst by 2e-05",
        ),
        ("Could not guard on data-dependent expression Eq(u77, 0)", "Could not guard on data-dependent expression Eq(u3, 0)"),
        ("can't read /home/a/model-1/x.bin", "can't read /tmp/b/c.bin"),
        ("object <Node at 0x7f12ab34cd> of add_12", "object <Node at 0x7fffe00011> of add_3"),
        ("mat1 and mat2 shapes (2, 3, 4)", "mat1 and mat2 shapes (7, 9)"),
        ("artifact 0123456789abcdef0123 is missing", "artifact fedcba98765432100000 is missing"),
        ("run 1b4e28ba-2fa1-11d2-883f-0016d3cca427 ended", "run 6fa459ea-ee8a-3ca4-894e-db77e160355e ended"),
        ("took 3.5 of  -1e5", "took 12.25 of 4E+2"),
    ],
)
def test_numbers_names_paths_and_ids_make_no_difference(one: str, other: str) -> None:
    assert normalize(one) == normalize(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("No ONNX function found for aten.median.dim", "No ONNX function found for aten.mode.default"),
        ("dtype torch.float16", "dtype torch.float32"),
        ("the runtime has no kernel for aten::conv1d", "the runtime has no kernel for aten::conv2d"),
        ("method->execute() failed with error 0x12", "method->execute() failed with error 0x20"),
        ("not installed: timm", "not installed: Pillow"),
        ("'int' object has no attribute 'name'", "'int' object has no attribute 'shape'"),
    ],
)
def test_what_tells_causes_apart_stays(one: str, other: str) -> None:
    assert normalize(one) != normalize(other)


def test_the_models_own_names_make_no_difference() -> None:
    one = failed("MuseGlimmerForConditionalGeneration", message="eager returns MuseGlimmerOutput, in muse_glimmer.py")
    other = failed("BertModel", message="eager returns BertOutput, in bert.py")
    found = clusters(one, other, types={"MuseGlimmerForConditionalGeneration": "muse_glimmer", "BertModel": "bert"})
    assert [each.cause for each in found] == ["eager returns MODELOutput, in MODEL.py"]


def test_what_all_agree_on_is_told_as_it_is() -> None:
    slow = "was stopped after 1800 s: lowering {}"
    (alone,) = clusters(failed("BertModel", message=slow.format("BertModel")))
    assert alone.cause == "was stopped after 1800 s: lowering BertModel"
    both = failed("BertModel", message=slow.format("BertModel")), failed("ViTModel", message=slow.format("ViTModel"))
    (together,) = clusters(*both)
    assert (together.cause, together.example) == (
        "was stopped after 1800 s: lowering MODEL",
        "was stopped after 1800 s: lowering BertModel",
    )
    assert together.id == alone.id
    (unlike,) = clusters(failed("A", message="shapes (2, 3) of 7"), failed("B", message="shapes (2, 3, 4) of 7"))
    assert unlike.cause == "shapes (N, …) of N"  # which word is which isn't known


def test_they_are_told_apart_by_stage_and_type_too() -> None:
    assert len(clusters(failed("A", message="same"), failed("B", message="same", stage="traced_program"))) == 2


def test_only_failures_are_in_one() -> None:
    assert clusters(verified("A"), skipped("B")) == []


def test_what_it_unlocks_is_counted_in_models_and_those_that_fail_in_nothing_else() -> None:
    trace = {"stage": "traced_program", "message": "can't trace"}
    reports = [failed("A", backend, **trace) for backend in ("dynamo", "onnx")]
    reports += [failed("B", "dynamo", **trace), ran("B", "onnx"), ran("C", "onnx")]
    first, second = clusters(*reports)
    assert (first.models, first.alone, len(first.partitions), first.backends) == (("A", "B"), 1, 3, ("dynamo", "onnx"))
    assert (second.models, second.alone, second.example) == (("B", "C"), 1, ran("B").error.message)


def test_the_order_of_what_comes_in_makes_no_difference() -> None:
    reports = [failed(f"M{n}Model", message=f"cause {'abcdefg'[n % 7]} of {n}") for n in range(50)]
    expected = clusters(*reports)
    partitions = take({(report.backend, report.model): report for report in reports}, 0.0).partitions
    for seed in range(5):
        random.Random(seed).shuffle(partitions)
        assert cluster(partitions) == expected
    assert [len(each.models) for each in expected] == [8, 7, 7, 7, 7, 7, 7]
