"""The dashboard in a real browser: every page in both themes, following links, and results that arrive meanwhile."""

from __future__ import annotations

import re
from collections.abc import Generator
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import parse_qs, urlsplit

import pytest

from evaluation.results.ingest import ingest
from evaluation.results.records import RunRecord
from evaluation.results.spool import Spool
from tests.browser.capture import ADDRESSES, INSTALL, THEMES, browsing, capture, chromium, open_page, serving, settle
from tests.dashboard.conftest import STUDY
from tests.dashboard.grid import PLAN, label, write_grid
from tests.evaluation.results.factory import CELLS, Study, write_base, write_run, write_study

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Download, Page

playwright = pytest.importorskip("playwright.sync_api")
pytestmark = [
    pytest.mark.skipif(chromium() is None, reason=f"no browser: {INSTALL}"),
    pytest.mark.xdist_group("browser"),
]

EXPECTED = {
    "overview": ("Runs done", "Running now", "Needs a look", "A run's name opens its page"),
    "leaderboard": ("Leaderboard", "Baseline", "The runs behind a row"),
    "ablations": ("Ablations", "Difference to Base", "Behind a cell"),
    "curves": ("Curves", "accuracy on addition, test", "Seeds: "),
    "run": ("Rollout tokens", "every recorded update is drawn", "loss"),
    "sql": ("One SELECT", "rows."),
}


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("browser") / "store"
    write_study(folder, STUDY)
    return folder


@pytest.fixture(scope="module")
def url(store: Path) -> Generator[str]:
    with serving(store) as address:
        yield address


@pytest.fixture(scope="module")
def browser() -> Generator[Browser]:
    with browsing() as opened:
        yield opened


@pytest.mark.parametrize("pages", [("leaderboard",), pytest.param(tuple(ADDRESSES), marks=pytest.mark.slow)])
def test_pages_in_both_themes(
    url: str, browser: Browser, tmp_path: Path, pages: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(ADDRESSES, "run", "run?run=demo-opsd-1&show=metrics")  # unasked it shows the untrained model
    shots = capture(url, browser, tmp_path, pages, THEMES)
    assert {(shot.name, shot.theme) for shot in shots} == {(name, theme) for name in pages for theme in THEMES}
    for shot in shots:
        assert shot.exceptions == 0, f"{shot.name} ({shot.theme}): {shot.text}"
        assert all(text in shot.text for text in EXPECTED[shot.name]), shot.text
        assert shot.file.read_bytes().startswith(b"\x89PNG") and shot.file.stat().st_size > 10_000
        assert brightness(shot.file) > 200 if shot.theme == "light" else brightness(shot.file) < 60


def brightness(file: Path) -> float:
    """Mean grey value of a picture, 0 to 255."""
    import numpy as np
    from PIL import Image

    return float(np.asarray(Image.open(file).convert("L")).mean())


def test_from_a_number_to_its_answers_and_back(url: str, browser: Browser) -> None:
    page = open_page(browser, f"{url}/leaderboard?plan=demo&row=OPSD", "light")
    page.get_by_text(re.compile(r"^seed 1: ")).click()
    page.wait_for_function("() => document.querySelector('h1')?.innerText === 'Run'")
    settle(page)
    assert "run=demo-opsd-1" in page.url and "show=answers" in page.url
    assert page.get_by_text("Read an answer").count() == 1
    for _ in range(3):  # the first step back may only take what the page itself put into the address
        page.go_back()
        settle(page)
        if urlsplit(page.url).path == "/leaderboard":
            break
    page.wait_for_function("() => document.querySelector('h1')?.innerText === 'Leaderboard'")
    assert "row=OPSD" in page.url
    page.close()


def _downloaded(page: Page, button: str) -> Download:
    """What the button gives. A click on a part that is being drawn anew is lost, as it is for a person: click again."""
    for _ in range(3):
        try:
            with page.expect_download(timeout=20_000) as given:
                page.get_by_text(button).click()
            return given.value
        except playwright.TimeoutError:
            settle(page)
    raise AssertionError(f"{button!r} gave nothing in three clicks")


def test_charts_can_be_saved(url: str, browser: Browser, tmp_path: Path) -> None:
    page = open_page(browser, f"{url}/curves?plan=demo", "light")
    with page.expect_download() as svg:
        page.get_by_text("Save as SVG").click()
    svg.value.save_as(tmp_path / "chart.svg")
    text = (tmp_path / "chart.svg").read_text()
    assert svg.value.suggested_filename == "demo-accuracy-addition-test-update.svg"
    assert text.startswith("<svg") and "OPSD" in text and text.count("<path") > 20
    page.hover(".vega-embed")
    with page.expect_download() as png:
        page.get_by_role("button", name="Download as PNG").click()
    png.value.save_as(tmp_path / "chart.png")
    assert (tmp_path / "chart.png").read_bytes().startswith(b"\x89PNG")
    page.get_by_text("Numbers").click()
    settle(page)
    _downloaded(page, "Means as CSV").save_as(tmp_path / "means.csv")
    assert (tmp_path / "means.csv").read_text().count("\n") == 2 + 3 * len(STUDY.cells)
    page.close()


def test_new_results_appear_and_the_view_stays(browser: Browser, tmp_path: Path) -> None:
    study = Study(seeds=(0, 1), updates=2, every=2, problems=20)
    write_base(tmp_path, study)
    write_run(tmp_path, study, CELLS[1], 0)
    ingest(tmp_path)
    with serving(tmp_path) as url:
        page = open_page(browser, f"{url}/leaderboard?plan=demo&metric=format_rate", "light")
        chart = page.locator(".vega-embed svg")
        assert "OPSD" not in chart.inner_html()
        before = page.url
        page.evaluate("() => { document.querySelector('[data-testid=\"stMain\"]').scrollTop = 60 }")
        page.wait_for_timeout(300)
        write_run(tmp_path, study, CELLS[2], 0)
        ingest(tmp_path)
        page.wait_for_function(
            "() => document.querySelector('.vega-embed svg').innerHTML.includes('OPSD')", timeout=60_000
        )
        settle(page)
        assert page.url == before and "metric=format_rate" in page.url
        assert page.evaluate("() => document.querySelector('[data-testid=\"stMain\"]').scrollTop") == 60
        assert page.locator('[data-testid="stException"]').count() == 0
        page.close()


def test_the_page_asks_nobody_else(url: str, browser: Browser) -> None:
    page = browser.new_page()
    asked: set[str] = set()
    page.on("request", lambda request: asked.add(urlsplit(request.url).netloc))
    page.goto(f"{url}/curves?plan=demo")
    settle(page)
    assert asked - {""} == {urlsplit(url).netloc}
    page.close()


def test_a_click_in_the_matrix_leads_to_its_runs(browser: Browser, tmp_path: Path) -> None:
    write_grid(tmp_path)
    with serving(tmp_path) as url:
        page = open_page(browser, f"{url}/ablations?plan={PLAN}", "dark")
        assert page.locator('[data-testid="stException"]').count() == 0
        drawn = page.locator(".vega-embed svg").inner_html()
        assert "failed" in drawn and "3 seeds · 24" in drawn
        box = page.locator(".vega-embed .mark-rect.role-mark path[fill='transparent']").nth(4).bounding_box()
        assert box is not None
        page.mouse.click(box["x"] + box["width"] / 2, box["y"] + 4)
        page.wait_for_function("() => new URL(location.href).searchParams.get('place') === '0.9 × 2'")
        settle(page)
        link = page.url
        assert page.get_by_text(re.compile(r"^seed 2: ")).count() == 1
        again = open_page(browser, link, "light")
        assert again.url == link and again.get_by_text("Behind a cell").count() == 1
        assert again.get_by_text(f"{label(0.9, 2)}", exact=False).count() >= 1
        page.close()
        again.close()


LINKS = {
    "overview": "?flag=failed&of=demo&status=failed",
    "leaderboard": "leaderboard?plan=demo&split=validation&baseline=GRPO&metric=format_rate&by=rollout_tokens"
    "&budget=10000&where=seed%3C2&row=SFT",
    "ablations": "ablations?plan=demo&split=test&baseline=SFT&metric=score&rows=cell&columns=benchmark",
    "curves": "curves?plan=demo&y=accuracy&y=step%3Aloss&x=total_tokens&seeds=0&methods=OPSD&methods=GRPO",
    "run": "run?run=demo-opsd-1&show=spec&other=demo-grpo-0&curve=loss&x=trained_tokens",
    "sql": "sql?q=SELECT+42+AS+answer",
}


@pytest.mark.slow
@pytest.mark.parametrize("name", LINKS)
def test_a_link_restores_every_choice(url: str, browser: Browser, name: str) -> None:
    """What a link names is still in the address after the page is drawn, and again after it is opened anew."""
    page = open_page(browser, f"{url}/{LINKS[name]}", "light")
    asked, shown = parse_qs(urlsplit(LINKS[name]).query), parse_qs(urlsplit(page.url).query, keep_blank_values=True)
    assert {key: shown.get(key) for key in asked} == asked
    assert page.locator('[data-testid="stException"]').count() == 0
    assert page.get_by_text("The link asks for").count() == 0
    again = open_page(browser, page.url, "dark")
    assert parse_qs(urlsplit(again.url).query, keep_blank_values=True) == shown
    page.close()
    again.close()


@pytest.mark.slow
def test_an_unexpected_error_shows_no_traceback(browser: Browser, tmp_path: Path) -> None:
    """A specification whose method is a number is one that no page expects."""
    with Spool(tmp_path / "runs" / "odd", role="driver", attempt=1) as spool:
        spool.append(RunRecord("odd", "opsd", "m", 0, spec={"method": 5}, provenance={}, created_at=1.0))
    ingest(tmp_path)
    with serving(tmp_path) as url:
        page = open_page(browser, f"{url}/run?run=odd&show=controllers", "light")
        text = page.inner_text('[data-testid="stApp"]')
        assert page.locator('[data-testid="stException"]').count() == 1
        assert "Traceback" not in text and ".py" not in text and "AttributeError" not in text
        page.close()
