"""What pages say when there is little or nothing to show, when results arrive, and what they hold open."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from dashboard.navigation import PAGES
from dashboard.views import sql
from evaluation.results.ingest import ingest
from tests.dashboard.conftest import Open, go_to
from tests.dashboard.seen import open_databases, table, texts
from tests.evaluation.results.factory import CELLS, Cell, Study, write_base, write_run


@pytest.mark.parametrize("address", PAGES)
def test_an_absent_store_says_what_to_do(open_page: Open, tmp_path: Path, address: str) -> None:
    app = open_page(tmp_path / "none", address)
    assert not app.exception
    assert "stillroom demo" in texts(app) and "no store" in texts(app)


@pytest.mark.parametrize("address", PAGES)
def test_an_unpublished_store_says_what_to_do(open_page: Open, tmp_path: Path, address: str) -> None:
    write_base(tmp_path, Study())
    app = open_page(tmp_path, address)
    assert not app.exception
    assert "stillroom ingest" in texts(app)


@pytest.mark.parametrize("address", PAGES)
def test_an_empty_snapshot_says_what_to_do(open_page: Open, empty_store: Path, address: str) -> None:
    app = open_page(empty_store, address)
    assert not app.exception and not app.error
    assert "stillroom demo" in texts(app) or address == "sql"


@pytest.mark.parametrize("address", PAGES)
def test_a_plan_without_any_evaluation(open_page: Open, young_store: Path, address: str) -> None:
    app = open_page(young_store, address)
    assert not app.exception and not app.error
    if address == "leaderboard":
        assert list(table(app, "label", "status")["status"]) == ["running"]
    if address == "curves":
        assert app.multiselect(key="choice y").value == ["step:loss"]


@pytest.mark.parametrize("address", PAGES)
def test_a_broken_snapshot_says_what_to_do(open_page: Open, tmp_path: Path, address: str) -> None:
    (tmp_path / "snapshots").mkdir()
    (tmp_path / "snapshots" / "1.duckdb").write_bytes(b"not a database" * 1000)
    (tmp_path / "results.ro.duckdb").symlink_to("snapshots/1.duckdb")
    app = open_page(tmp_path, address)
    assert not app.exception
    assert "stillroom ingest --rebuild" in texts(app)


def test_new_results_show_at_the_next_drawing(open_page: Open, tmp_path: Path) -> None:
    study = Study(seeds=(0,), updates=2, every=2, problems=3)
    write_base(tmp_path, study)
    ingest(tmp_path)
    app = open_page(tmp_path)
    assert {m.label: m.value for m in app.metric}["Runs done"] == "1 of 1"
    write_run(tmp_path, study, CELLS[0], 0)
    ingest(tmp_path)
    app.run()
    assert {m.label: m.value for m in app.metric}["Runs done"] == "2 of 2"


def test_redrawing_holds_no_handles(open_page: Open, store: Path) -> None:
    app = open_page(store, "leaderboard")
    for address in ("leaderboard", "curves", "run", "overview", "sql"):
        go_to(app, address).run()
        assert not app.exception
        assert len(open_databases(store)) <= 1


def test_a_thousand_runs_are_drawn_quickly(open_page: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", lambda _: None)  # writing is not what is measured
    cells = tuple(Cell(f"cell {i}", "opsd", 0.3 + i / 200) for i in range(50))
    study = Study(cells=cells, seeds=tuple(range(20)), updates=2, every=2, problems=3, samples=1, rollouts=0)
    write_base(tmp_path, study)
    for cell in cells:
        for seed in study.seeds:
            write_run(tmp_path, study, cell, seed)
    ingest(tmp_path)
    before = os.times()
    app = open_page(tmp_path)
    runs = [e.value for e in app.dataframe if {"run_id", "created_at"} <= set(e.value.columns)][-1]
    assert len(runs) == 1001
    for address in ("leaderboard", "curves", "run"):
        go_to(app, address).run()
        assert not app.exception
    spent = os.times()
    # Processor seconds of all four pages, the bootstraps of 50 methods included; a busy machine does not count.
    assert spent.user + spent.system - before.user - before.system < 30


def test_a_slow_query_is_not_asked_again_by_itself(
    open_page: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = Study(seeds=(0,), updates=2, every=2, problems=3)
    write_base(tmp_path, study)
    ingest(tmp_path)
    app = open_page(tmp_path, "sql", q="SELECT count(*) AS runs FROM latest_runs")
    write_run(tmp_path, study, CELLS[0], 0)
    ingest(tmp_path)
    monkeypatch.setattr(sql, "SLOW_SECONDS", 0.0)
    app.run()
    assert list(table(app, "runs")["runs"]) == [1] and "Newer results are there" in texts(app)
    app.button[0].click().run()
    assert list(table(app, "runs")["runs"]) == [2] and "Newer results" not in texts(app)
    monkeypatch.setattr(sql, "SLOW_SECONDS", 60.0)
    write_run(tmp_path, study, CELLS[1], 0)
    ingest(tmp_path)
    app.run()
    assert list(table(app, "runs")["runs"]) == [3]
