"""Stores for the pages' tests, and opening a page of the running app."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from streamlit.navigation.page import calc_hash
from streamlit.testing.v1 import AppTest

from dashboard.navigation import PAGES
from evaluation.results.ingest import ingest
from tests.evaluation.results.factory import CELLS, Cell, Study, write_run, write_study

APP = Path(__file__).resolve().parents[2] / "dashboard" / "app.py"
Open = Callable[..., AppTest]

STUDY = Study(
    updates=20,
    every=10,
    problems=24,
    samples=2,
    splits=("test", "validation"),
    cells=(
        *CELLS,
        Cell("große Übung ½ “β”", "opsd", 0.6),
        Cell("unfinished", "opsd", 0.7, statuses=("queued", "running")),
        Cell("broken", "opsd", 0.5, statuses=("queued", "running", "failed")),
    ),
)
"""Every kind of run: done, a control, running, failed, and a label beyond ASCII."""
FEW_SEEDS = Study(plan="two-seeds", seeds=(0, 1), unscored_rate=0.1, problems=30)


@pytest.fixture(scope="session")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A published store with the plans ``STUDY`` ("demo") and ``FEW_SEEDS``; read only."""
    folder = tmp_path_factory.mktemp("dashboard") / "store"
    write_study(folder, FEW_SEEDS, ingested=False)
    write_study(folder, STUDY)
    return folder


@pytest.fixture(scope="session")
def empty_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with a snapshot in which nothing is."""
    folder = tmp_path_factory.mktemp("empty") / "store"
    ingest(folder)
    return folder


@pytest.fixture(scope="session")
def young_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store whose one run has trained, and not been evaluated yet."""
    folder = tmp_path_factory.mktemp("young") / "store"
    cell = Cell("young", "opsd", 0.5, statuses=("running",))
    study = Study(seeds=(0,), updates=4, every=10, problems=3, cells=(cell,))
    write_run(folder, study, cell, 0)
    ingest(folder)
    return folder


@pytest.fixture
def open_page(monkeypatch: pytest.MonkeyPatch) -> Open:
    """Opens a page of a store by its address, as a browser with that link would."""

    def opened(store: Path, address: str = "overview", **parameters: str | list[str]) -> AppTest:
        monkeypatch.setenv("STILLROOM_STORE", str(store))
        app = AppTest.from_file(str(APP), default_timeout=120)
        app.query_params.update(parameters)
        go_to(app, address)
        return app.run()

    return opened


def go_to(app: AppTest, address: str) -> AppTest:
    """Choose a page of the menu. AppTest itself can only name pages that are files."""
    assert address in PAGES
    first = address == next(iter(PAGES))
    app._page_hash = calc_hash("" if first else address)
    return app
