"""The page in a real browser: it opens fast, sorts, searches, is worked by keyboard, light and dark, and fetches nothing.

Without a browser the data and the file are tested, and the rest is skipped with the reason.
"""

import json
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from chromium import EXECUTABLE, Chromium
from report_samples import failed, ran, skipped, verified
from synthetic import weeks

from exporters.code_index import code_index
from exporters.reports import remember
from exporters.store import Store
from orchestration.report import fleet
from orchestration.report.fleet import FleetReport
from orchestration.report.history import History
from orchestration.report.page import data_of, render
from orchestration.report.snapshot import take
from orchestration.report.software import present

Make = Callable[..., FleetReport]

needs_browser = pytest.mark.skipif(EXECUTABLE is None, reason="no Chromium on this machine: apt-get install chromium")

HOSTILE = "</script><script>document.title = 'taken'</script><img src=x onerror=\"document.title = 'taken'\"> <!-- & \u2028"


# ── The file ──────────────────────────────────────────────────────────────────


def embedded(page: str) -> dict[str, object]:
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    assert found is not None
    return dict(json.loads(found[1]))


def test_the_data_comes_back_from_the_page(make: Make) -> None:
    make(0, verified("BertModel"), ran("ViTModel"))
    made = make(1, failed("BertModel", message=HOSTILE), verified("ViTModel", diff=float("inf")), skipped("T5Model", "dynamo"))
    data = embedded(render(made))
    assert data == json.loads(json.dumps(data_of(made)).replace("Infinity", '"inf"'))
    assert data["headline"] == made.headline


def test_nothing_is_fetched_from_anywhere(make: Make) -> None:
    page = render(make(0, verified("BertModel")))
    assert not re.findall(r"""(?:src|href)=["'](?!#|data:)|@import|url\(|fetch\(|XMLHttpRequest|import\(""", page)


def test_an_empty_report_is_a_page(make: Make) -> None:
    assert "zooport" in render(make(0))


# ── In a browser ──────────────────────────────────────────────────────────────


@pytest.fixture(scope="module")
def browser() -> Iterator[Chromium]:
    opened = Chromium()
    yield opened
    opened.close()


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of 2,000 models and eight weeks."""
    home = tmp_path_factory.mktemp("large")
    store, now = Store(home / "store"), time.time()
    *before, (_, last) = weeks(now, models=2_000, count=8)
    for at, reports in before:
        History(store).save(take({(report.backend, report.model): report for report in reports}, at))
    for report in last:
        remember(store, report)
    made = fleet.make(store, home, now=now)
    assert len(made.model_types) == 2_000
    page = home / "report.html"
    page.write_text(render(made))
    return page


def clean(browser: Chromium) -> None:
    assert browser.problems == []
    assert browser.requests == []


# the names in the rows that are drawn, less the sign that folds them and what follows
SHOWN = """[...document.querySelectorAll('#rows .row .name')].map((name) =>
  [...name.childNodes].find((node) => node.nodeType === Node.TEXT_NODE).data)"""
TIMED = "(() => {{ const begin = performance.now(); {}; document.body.offsetHeight; return performance.now() - begin; }})()"


def milliseconds(browser: Chromium, action: str) -> float:
    """The best of three: the machine does other things too."""
    return min(float(browser.run(TIMED.format(action))) for _ in range(3))


def search(browser: Chromium, text: str) -> None:
    browser.run(f"q.value = {json.dumps(text)}; q.dispatchEvent(new Event('input', {{ bubbles: true }}))")


@needs_browser
def test_two_thousand_models_open_within_a_second(browser: Chromium, large: Path) -> None:
    times = []
    for _ in range(3):
        browser.open(large)
        times.append(browser.run("performance.getEntriesByType('navigation')[0].loadEventEnd"))
    assert min(times) < 1_000
    assert browser.run("grid.getAttribute('aria-rowcount')") > "300"
    assert browser.run("document.querySelectorAll('#rows .row').length") < 80  # only what is in sight
    assert "broke" in browser.run("headline.textContent")
    clean(browser)


@needs_browser
def test_sorting_and_searching_two_thousand_models_takes_under_a_tenth_of_a_second(browser: Chromium, large: Path) -> None:
    browser.open(large)
    browser.run("document.getElementById('by-class').click()")
    assert "2,000 models" in browser.run("shown.textContent")
    for column in ("name", "cpu", "failing", "b0"):
        assert milliseconds(browser, f"document.querySelector('[data-column={column}]').click()") < 100
    for text in ("b", "be", "bert median", "zzz", ""):
        assert milliseconds(browser, f"q.value = '{text}'; q.dispatchEvent(new Event('input'))") < 100
    clean(browser)


@needs_browser
def test_columns_sort_both_ways(browser: Chromium, large: Path) -> None:
    browser.open(large)
    browser.run("document.querySelector('[data-column=name]').click()")
    names = browser.run(SHOWN)
    assert names == sorted(names, key=str.lower)
    browser.run("document.querySelector('[data-column=name]').click()")
    down = browser.run(SHOWN)
    assert down != names
    assert down == sorted(down, key=str.lower, reverse=True)
    sorts = "[...document.querySelectorAll('#head [aria-sort]')].map((head) => head.getAttribute('aria-sort'))"
    assert browser.run(sorts)[0] == "descending"
    assert set(browser.run(sorts)[1:]) == {"none"}
    clean(browser)


@needs_browser
def test_it_finds_models_by_name_stage_and_cause_and_says_how_many(browser: Chromium, make: Make, tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    page.write_text(render(make(0, verified("BertModel"), failed("ViTModel"), ran("BertForMaskedLM"))))
    browser.open(page)
    search(browser, "bertmodel")
    assert browser.run(SHOWN) == ["bert", "BertModel"]
    search(browser, "aten.median")
    assert browser.run(SHOWN) == ["vit", "ViTModel"]
    assert browser.run("shown.textContent") == "1 of 3 models"
    search(browser, "bert verification")
    assert browser.run(SHOWN) == ["bert", "BertForMaskedLM"]
    search(browser, "no such model")
    assert "No model fits" in browser.run("rows.textContent")
    browser.run("document.querySelector('#rows .more').click()")
    assert browser.run("shown.textContent") == "3 models"
    browser.run(
        "document.getElementById('f-outcome').value = 'bad'; document.getElementById('f-outcome').dispatchEvent(new Event('change'))"
    )
    assert browser.run(SHOWN) == ["vit"]
    clean(browser)


@needs_browser
def test_a_cause_leads_to_its_models(browser: Chromium, make: Make, tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    page.write_text(render(make(0, verified("BertModel"), failed("ViTModel"), failed("T5Model"), ran("BertForMaskedLM"))))
    browser.open(page)
    assert "unlocks 2 models" in browser.run("clusters.querySelector('.cluster').textContent")
    browser.run("[...clusters.querySelectorAll('button')].find((button) => button.textContent === 'in the table').click()")
    assert sorted(browser.run(SHOWN)) == ["T5Model", "ViTModel", "t5", "vit"]
    clean(browser)


@needs_browser
def test_everything_can_be_reached_by_keyboard(browser: Chromium, make: Make, tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    page.write_text(render(make(0, failed("BertModel"), verified("BertForMaskedLM"), verified("ViTModel"))))
    browser.open(page)
    browser.press("/")
    assert browser.run("document.activeElement.id") == "q"
    assert browser.run("q.value") == ""
    browser.press("ArrowDown")
    assert browser.run("document.activeElement.querySelector('.name').textContent") == "▸berttext"
    browser.press("ArrowRight")
    assert browser.run(SHOWN) == ["bert", "BertModel", "BertForMaskedLM", "vit"]
    browser.press("ArrowDown")
    browser.press("Enter")
    assert browser.run("detail.open") is True
    assert "no function for aten.median" in browser.run("detail.textContent")
    assert "zooport export BertModel --backend onnx" in browser.run("detail.textContent")
    browser.press("Escape")
    assert browser.run("detail.open") is False
    assert browser.run("document.activeElement.dataset.index") == "1"
    browser.press("ArrowLeft")
    browser.press("ArrowLeft")
    assert browser.run(SHOWN) == ["bert", "vit"]
    browser.press("End")
    assert browser.run("document.activeElement.dataset.index") == "1"
    clean(browser)


@needs_browser
def test_it_is_dark_where_that_is_preferred_and_on_demand(browser: Chromium, make: Make, tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    page.write_text(render(make(0, failed("BertModel"))))
    lightness = "getComputedStyle(document.body).backgroundColor.match(/\\d+/g).map(Number).reduce((a, b) => a + b) / 3"
    browser.open(page, dark=True)
    assert browser.run(lightness) < 60
    browser.open(page, dark=False)
    assert browser.run(lightness) > 200
    browser.run("theme.click()")
    assert browser.run(lightness) < 60
    browser.open(page, dark=False)
    assert browser.run(lightness) < 60  # it is remembered
    browser.run("theme.click()")
    assert browser.run(lightness) > 200
    clean(browser)


CONTRAST = Path(__file__).with_name("contrast.js").read_text()


@needs_browser
@pytest.mark.parametrize("dark", [False, True])
def test_all_text_has_enough_contrast(browser: Chromium, large: Path, *, dark: bool) -> None:
    browser.open(large, dark=dark)
    browser.run("localStorage.clear()")
    browser.open(large, dark=dark)
    assert browser.run(CONTRAST) == []


@needs_browser
@pytest.mark.parametrize("width", [360, 800, 1920])
def test_nothing_is_wider_than_the_window(browser: Chromium, large: Path, width: int) -> None:
    browser.open(large, width=width)
    assert browser.run("document.documentElement.scrollWidth") <= width
    clean(browser)


@needs_browser
def test_what_models_say_is_never_markup(browser: Chromium, make: Make, tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    make(0, verified("BertModel"))
    page.write_text(render(make(1, failed("BertModel", message=HOSTILE), verified(HOSTILE), skipped("ViTModel", reason=HOSTILE))))
    browser.open(page)
    browser.run("document.querySelectorAll('#kinds button').forEach((button) => button.click())")
    browser.run("document.getElementById('by-class').click(); document.querySelectorAll('#clusters button')[0].click()")
    browser.run("document.querySelector('#rows .row').click()")
    assert browser.run("document.title") == "zooport fleet report"
    assert browser.run("document.images.length") == 0
    clean(browser)


@needs_browser
def test_what_broke_can_be_seen_since_other_moments(browser: Chromium, make: Make, tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    make(0, verified("BertModel"), verified("ViTModel"))
    make(8, failed("BertModel"), verified("ViTModel"))
    page.write_text(render(make(9, failed("ViTModel"))))
    browser.open(page)
    choices = "[...document.querySelectorAll('#since button')]"
    last, week = browser.run(f"{choices}.map((button) => button.textContent)")
    assert last.endswith("1 broke")
    assert week.endswith("2 broke")
    assert browser.run("headline.firstChild.textContent") == "1 broke"
    assert "ViTModel" in browser.run("changed.textContent")
    assert "BertModel" not in browser.run("changed.textContent")
    browser.run(f"{choices}[1].click()")
    assert browser.run("headline.firstChild.textContent") == "2 broke"
    assert "BertModel" in browser.run("changed.textContent")
    clean(browser)


# ── What is compared, and where from ──────────────────────────────────────────


@pytest.fixture
def two_weeks(make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Since the last report one broke and one is slower; in a week two broke and two were fixed."""
    software = present(code_index())
    monkeypatch.setattr(fleet, "present", lambda _: software.model_copy(update={"packages": {**software.packages, "torch": "1.0"}}))
    others = [failed(f"M{number}") for number in range(3)]
    make(0, verified("BertModel"), verified("ViTModel"), verified("T5Model", cpu=10), *others)
    make(8, failed("BertModel"), verified("M0"), verified("M1"))
    monkeypatch.setattr(fleet, "present", lambda _: software.model_copy(update={"packages": {**software.packages, "torch": "2.0"}}))
    page = tmp_path / "report.html"
    page.write_text(render(make(9, failed("ViTModel"), verified("T5Model", cpu=30))))
    return page


def at(browser: Chromium, page: Path, fragment: str) -> None:
    """Open the page anew at this place."""
    browser.run("location.href = 'about:blank'")
    browser.open(page)
    browser.run(f"location.hash = {json.dumps(fragment)}")
    browser.run(LATER)


LATER = "new Promise((done) => setTimeout(done, 300))"
KIND = "document.querySelector('#kinds [aria-pressed=true]').dataset.kind"
BACKEND = "backends.querySelector('.backend').textContent"


@needs_browser
def test_the_numbers_by_backend_follow_the_moment_that_is_compared_with(browser: Chromium, two_weeks: Path) -> None:
    browser.open(two_weeks)
    assert "3 / 6" in browser.run(BACKEND)
    assert "▼ 1 verified since 23 Jan" in browser.run(BACKEND)
    browser.run("document.querySelectorAll('#since button')[1].click()")
    assert "as many verified since 15 Jan" in browser.run(BACKEND)
    clean(browser)


@needs_browser
def test_what_was_upgraded_is_shown(browser: Chromium, two_weeks: Path) -> None:
    browser.open(two_weeks)
    assert browser.run("upgraded.textContent") == "Upgraded since: torch 1.0 → 2.0"
    clean(browser)


@needs_browser
def test_only_kinds_that_there_are_can_be_chosen(browser: Chromium, two_weeks: Path) -> None:
    browser.open(two_weeks)
    assert browser.run("[...document.querySelectorAll('#kinds button')].map((b) => b.textContent)") == ["1broke", "1slower"]
    assert browser.run("kinds.lastChild.textContent") == "none got worse, fixed, got further, bigger, drifted, new or gone"
    clean(browser)


@needs_browser
def test_shares_are_the_same_wherever_they_stand(browser: Chromium, large: Path) -> None:
    browser.open(large)
    above = browser.run("[...document.querySelectorAll('.backend .share .note')].map((each) => each.textContent)")
    below = browser.run("[...trend.querySelectorAll('text')].map((each) => each.textContent)")
    assert len(above) == 3
    assert all(any(text.startswith(share) for text in below) for share in above)
    clean(browser)


@needs_browser
@pytest.mark.parametrize(
    ("fragment", "script", "expected"),
    [
        ("slower", KIND, "slower"),
        ("fixed&since=1+week", KIND, "fixed"),
        ("fixed", KIND, "broken"),  # none was since the last report: what there is, is shown
        ("since=1+week", "headline.firstChild.textContent", "2 broke"),
        ("since=never", "headline.firstChild.textContent", "1 broke"),
        ("matrix&q=bert&rows=class", SHOWN, ["BertModel"]),
        ("matrix&outcome=good&family=vision&rows=class", SHOWN, []),
        ("outcome=of+another+report&rows=class&q=t5", SHOWN, ["T5Model"]),
        ("rows=class&sort=name", "document.querySelector('#head [aria-sort=ascending]').textContent", "model class ↑"),
        ("model=BertModel", "detail.querySelector('h2').textContent", "BertModel"),
        ("%%%&&=&q", "headline.firstChild.textContent", "1 broke"),
    ],
)
def test_the_address_says_what_is_shown(browser: Chromium, two_weeks: Path, fragment: str, script: str, expected: object) -> None:
    at(browser, two_weeks, fragment)
    assert browser.run(script) == expected
    clean(browser)


@needs_browser
def test_what_is_chosen_is_in_the_address_and_comes_back(browser: Chromium, two_weeks: Path) -> None:
    browser.open(two_weeks)
    browser.run("document.querySelectorAll('#since button')[1].click()")
    browser.run("document.querySelector('[data-kind=fixed]').click()")
    browser.run(LATER)
    assert browser.run("location.hash") == "#fixed&since=1+week"
    search(browser, "m1")
    browser.run(LATER)
    address = browser.run("location.hash")
    assert address == "#matrix&since=1+week&kind=fixed&q=m1"
    browser.run("document.querySelector('nav a[href=\"#failures\"]').click()")
    browser.run(LATER)
    assert browser.run("location.hash") == "#failures&since=1+week&kind=fixed&q=m1"
    assert browser.run("shown.textContent") == "1 of 6 models"
    browser.run("[...clusters.querySelectorAll('button')].find((button) => button.textContent === 'in the table').click()")
    browser.run(LATER)
    cause = browser.run("location.hash")
    assert re.search("&cause=[0-9a-f]{8}", cause)
    at(browser, two_weeks, address)
    assert browser.run(KIND) == "fixed"
    assert browser.run("q.value") == "m1"
    at(browser, two_weeks, cause.replace("&q=m1", ""))
    assert browser.run("shown.textContent") == "3 of 6 models"
    clean(browser)


@needs_browser
def test_a_page_without_anything_says_so(browser: Chromium, make: Make, tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    page.write_text(render(make(0)))
    browser.open(page)
    assert "The first report" in browser.run("headline.textContent")
    clean(browser)
