"""docs/results.md says what is there, and its queries run."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from evaluation.results.query_process import answer
from evaluation.results.snapshot import open_snapshot
from tests.evaluation.results.factory import Study, write_tuned_study

PAGE = (Path(__file__).parents[3] / "docs" / "results.md").read_text(encoding="utf-8")
QUERIES = re.findall(r"```sql\n(.*?)```", PAGE, re.DOTALL)
SCRIPTS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("docs")
    write_tuned_study(folder / "store", Study(samples=4))
    return folder / "store"


def test_there_are_worked_queries() -> None:
    assert len(QUERIES) >= 10 and len(SCRIPTS) == 1


@pytest.mark.parametrize("sql", QUERIES)
def test_worked_query(store: Path, sql: str) -> None:
    rows = answer(store, sql, 1000)["rows"]
    assert rows and any(value is not None for row in rows for value in row)


def test_worked_script(store: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(store.parent)
    exec(compile(SCRIPTS[0], "docs/results.md", "exec"), {})
    assert "'completion': '#0'" in capsys.readouterr().out


def test_the_page_names_every_table_and_view_and_no_other(store: Path) -> None:
    with open_snapshot(store) as con:
        views = {name for (name,) in con.execute("SELECT view_name FROM duckdb_views() WHERE NOT internal").fetchall()}
        tables = {
            name for (name,) in con.execute("SELECT table_name FROM duckdb_tables() WHERE NOT internal").fetchall()
        }
    assert named_in("## Views") == views
    assert named_in("## Tables") == tables


def named_in(heading: str) -> set[str]:
    section = PAGE.partition(heading)[2].partition("\n## ")[0]
    rows = [line.split("|")[1] for line in section.splitlines() if line.startswith("| `")]
    return {name for row in rows for name in re.findall(r"`(\w+)`", row)}
