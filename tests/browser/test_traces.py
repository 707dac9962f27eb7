"""The page Traces in a real browser: tokens are chosen by a click and a key, links restore them, texts stay texts."""

from __future__ import annotations

import time
from collections.abc import Generator
from typing import TYPE_CHECKING

import pytest

from evaluation.results.ingest import ingest
from tests.browser.capture import INSTALL, browsing, chromium, open_page, serving, settle
from tests.dashboard.traced import OPSD, PIECES, STUDY, trace, write_trace, write_traced_study
from tests.evaluation.results.factory import run_id

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Dialog, Page

pytest.importorskip("playwright.sync_api")
pytestmark = [
    pytest.mark.skipif(chromium() is None, reason=f"no browser: {INSTALL}"),
    pytest.mark.xdist_group("browser"),
]

RUN = run_id(STUDY, OPSD, 0)
LONG = 4000
DRAWN_SECONDS = 10.0
"""Bound for a busy machine; an idle one draws the long answer in under two."""


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Generator[str]:
    store = tmp_path_factory.mktemp("traces") / "store"
    write_traced_study(store)
    write_trace(store, RUN, 5, [trace("long", 5, tokens=["ab "] * LONG)])
    ingest(store)
    with serving(store) as address:
        yield address


@pytest.fixture(scope="module")
def browser() -> Generator[Browser]:
    with browsing() as opened:
        yield opened


def chosen(page: Page) -> str:
    return page.locator(".tokens span.chosen").first.inner_text()


def test_tokens_are_chosen_and_a_link_restores_them(url: str, browser: Browser) -> None:
    page = open_page(browser, f"{url}/traces?problem=p0&run={RUN}&run2={RUN}", "light")
    said: list[str] = []

    def dismiss(dialog: Dialog) -> None:
        said.append(dialog.message)
        dialog.dismiss()

    page.on("dialog", dismiss)
    tokens = page.locator(".tokens").first.locator("span")
    assert tokens.count() == len(PIECES) and page.locator(".tokens").count() == 2
    assert [tokens.nth(i).text_content() for i in (0, 3, 4, 6)] == ["<b>", "⏎\n", "␣", PIECES[6]]
    assert "rgba(230, 159, 0" in (tokens.nth(5).evaluate("e => getComputedStyle(e).backgroundColor") or "")
    tokens.nth(5).click()
    page.wait_for_url("**token=5*")
    settle(page)
    assert chosen(page) == "*x*" and "Token 5" in page.inner_text('[data-testid="stApp"]')
    page.locator(".tokens").first.focus()
    page.keyboard.press("ArrowRight")
    page.wait_for_url("**token=6*")
    settle(page)
    again = open_page(browser, page.url, "dark")
    assert chosen(again) == PIECES[6]
    assert again.locator('[data-testid="stException"]').count() == 0 and not said
    assert again.locator("mark").first.inner_text() == "<|hint|>*two* <img src=x onerror=alert(2)>"
    again.close()
    page.close()


def test_a_long_answer_is_drawn_at_once(url: str, browser: Browser) -> None:
    page = open_page(browser, f"{url}/traces?problem=p0&run={RUN}&two=0", "light")
    began = time.perf_counter()
    page.goto(f"{url}/traces?problem=long&run={RUN}&two=0")
    page.locator(".tokens span").nth(LONG - 1).wait_for(state="attached")
    took = time.perf_counter() - began
    print(f"{LONG} tokens drawn in {took:.2f} s")
    assert page.locator(".tokens span").count() == LONG and took < DRAWN_SECONDS
    page.close()
