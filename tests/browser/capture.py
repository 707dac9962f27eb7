"""Pictures of the dashboard from a real browser: for the tests, and for the documentation.

python -m tests.browser.capture --store STORE --out docs/screenshots [--page leaderboard] [--theme light]
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from dashboard.serve import ADDRESS, STORE_VARIABLE, check_port, command

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

INSTALL = "apt-get install -y chromium fonts-dejavu-core"
WIDTH, HEIGHT = 1280, 900
START_SECONDS = 60.0
DRAW_MILLISECONDS = 60_000
THEMES = ("light", "dark")
ADDRESSES = {
    "overview": "",
    "leaderboard": "leaderboard",
    "ablations": "ablations",
    "curves": "curves",
    "run": "run?show=metrics",
    "sql": "sql?q=SELECT+plan%2C+label%2C+seed%2C+benchmark%2C+accuracy+FROM+final_scores+ORDER+BY+ALL",
}
"""Picture -> the page's address."""


@dataclass(frozen=True, slots=True)
class Shot:
    """One picture, and what the page said."""

    name: str
    theme: str
    file: Path
    text: str
    exceptions: int


def chromium() -> str | None:
    """The browser's program, if there is one."""
    return shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


@contextlib.contextmanager
def serving(store: Path) -> Generator[str]:
    """A dashboard of ``store`` on a free port, ended afterwards; gives its address."""
    port = check_port(0)
    server = subprocess.Popen(
        command(port, open_browser=False),
        env={**os.environ, STORE_VARIABLE: str(store.resolve())},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        _wait_until_up(server, port)
        yield f"http://{ADDRESS}:{port}"
    finally:
        server.terminate()
        server.communicate()


def _wait_until_up(server: subprocess.Popen[str], port: int) -> None:
    end = time.monotonic() + START_SECONDS
    while time.monotonic() < end:
        if server.poll() is not None:
            raise RuntimeError(f"the dashboard ended with status {server.returncode}: {server.communicate()[0]}")
        connection = http.client.HTTPConnection(ADDRESS, port, timeout=2)
        with contextlib.suppress(OSError), contextlib.closing(connection):
            connection.request("GET", "/_stcore/health")
            if connection.getresponse().status == 200:
                return
        time.sleep(0.1)
    raise RuntimeError(f"the dashboard was not up after {START_SECONDS:.0f} s")


@contextlib.contextmanager
def browsing() -> Generator[Browser]:
    """A browser without a window."""
    from playwright.sync_api import sync_playwright

    program = chromium()
    if program is None:
        raise RuntimeError(f"no browser: {INSTALL}")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=program,
            args=["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"],
        )
        try:
            yield browser
        finally:
            browser.close()


def settle(page: Page) -> None:
    """Wait until the page is drawn whole."""
    page.wait_for_selector('[data-testid="stApp"][data-test-script-state="notRunning"]', timeout=DRAW_MILLISECONDS)
    page.wait_for_selector("h1", timeout=DRAW_MILLISECONDS)
    page.wait_for_function(
        '() => document.querySelectorAll(\'[data-testid="stSkeleton"], [data-testid="stSpinner"]\').length === 0',
        timeout=DRAW_MILLISECONDS,
    )
    # Charts and tables draw themselves after the script has ended.
    page.wait_for_timeout(800)


def open_page(browser: Browser, address: str, theme: str, *, height: int = HEIGHT) -> Page:
    """A new page in one theme, drawn whole."""
    page = browser.new_page(
        viewport={"width": WIDTH, "height": height},
        color_scheme="dark" if theme == "dark" else "light",
        reduced_motion="reduce",
    )
    page.goto(address)
    settle(page)
    return page


def _fit(page: Page) -> None:
    """Make the window as high as what it shows."""
    height = page.evaluate(
        "() => document.querySelector('[data-testid=\"stMain\"]').scrollHeight",
    )
    page.set_viewport_size({"width": WIDTH, "height": max(400, int(height))})
    page.wait_for_timeout(400)


def capture(url: str, browser: Browser, out: Path, pages: Sequence[str], themes: Sequence[str]) -> list[Shot]:
    """Take the pages of a dashboard at ``url`` in these themes, as ``<page>-<theme>.png`` under ``out``."""
    out.mkdir(parents=True, exist_ok=True)
    shots = []
    for name in pages:
        for theme in themes:
            page = open_page(browser, f"{url}/{ADDRESSES[name]}", theme)
            _fit(page)
            file = out / f"{name}-{theme}.png"
            page.screenshot(path=str(file))
            text = page.inner_text('[data-testid="stApp"]')
            exceptions = page.locator('[data-testid="stException"]').count()
            shots.append(Shot(name, theme, file, text, exceptions))
            page.close()
    return shots


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description="Take pictures of the dashboard of a store.")
    parser.add_argument("--store", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--page", action="append", choices=list(ADDRESSES), help="default: all")
    parser.add_argument("--theme", action="append", choices=list(THEMES), help="default: both")
    given = parser.parse_args()
    with serving(given.store) as url, browsing() as browser:
        shots = capture(url, browser, given.out, given.page or tuple(ADDRESSES), given.theme or THEMES)
    for shot in shots:
        print(f"{shot.file} ({shot.file.stat().st_size / 1000:.0f} kB)")
    broken = [shot for shot in shots if shot.exceptions]
    if broken:
        sys.exit(f"an exception is shown on: {', '.join(f'{s.name} ({s.theme})' for s in broken)}")


if __name__ == "__main__":
    main()
