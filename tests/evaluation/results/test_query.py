"""One SELECT, bounded, and every mistake as one readable line."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import duckdb
import pytest

from evaluation.results.query import QueryError, query_to_parquet, run_query
from evaluation.results.query_process import NotOneSelect, answer
from evaluation.results.snapshot import open_snapshot
from evaluation.results.store import NoSnapshotError
from tests.evaluation.results.factory import Study, write_study


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("store")
    (path / "secret.csv").write_text("a,b\n1,2\n")
    write_study(path, Study(seeds=(0,), problems=6))
    return path


def test_a_query_and_its_forms(store: Path) -> None:
    result = run_query(store, "SELECT label, n_problems FROM final_scores ORDER BY label; ")
    assert result.columns == ("label", "n_problems") and result.types == ("VARCHAR", "BIGINT")
    assert result.rows[0] == ("Base", 6) and len(result.rows) == 5 and not result.truncated
    assert result.to_csv().splitlines()[:2] == ["label,n_problems", "Base,6"]
    assert '"OPSD, another problem\'s hint",6' in result.to_csv()
    assert json.loads(json.dumps(result.to_dict()))["rows"][0] == ["Base", 6]


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT 1",
        "FROM runs LIMIT 1",
        "WITH a AS (SELECT 1) FROM a",
        "VALUES (1)",
        "(SELECT 1)",
        "SHOW TABLES",
        "DESCRIBE runs",
        "SELECT update FROM scores WHERE update = 20 ORDER BY update LIMIT 1",
        "-- a comment\nSELECT 1 -- another",
        "SELECT comment FROM duckdb_columns() WHERE table_name = 'scores' LIMIT 1",
    ],
)
def test_what_counts_as_a_select(store: Path, sql: str) -> None:
    assert len(answer(store, sql, 100)["rows"]) >= 1


DENIED = [
    "INSERT INTO runs SELECT * FROM runs",
    "WITH x AS (INSERT INTO runs SELECT * FROM runs RETURNING *) SELECT * FROM x",
    "WITH x AS (DELETE FROM runs RETURNING *) SELECT * FROM x",
    "WITH x AS (UPDATE runs SET seed = 1 RETURNING *) SELECT * FROM x",
    "WITH x AS (COPY (SELECT 1) TO '{store}/out.csv') SELECT 1",
    "DELETE FROM runs",
    "UPDATE runs SET seed = 1",
    "TRUNCATE runs",
    "DROP TABLE runs",
    "CREATE TABLE t (i INTEGER)",
    "CREATE TEMP TABLE t (i INTEGER)",
    "CREATE MACRO f(x) AS x",
    "COPY runs TO '{store}/out.csv'",
    "COPY (SELECT 1) TO '{store}/out.csv'",
    "EXPORT DATABASE '{store}/out'",
    "ATTACH '{store}/other.duckdb'",
    "ATTACH ':memory:' AS m",
    "DETACH results",
    "USE memory",
    "INSTALL httpfs",
    "LOAD httpfs",
    "SET threads = 8",
    "SET enable_external_access = true",
    "RESET threads",
    "PRAGMA database_list",
    "PRAGMA table_info('runs')",
    "CALL pragma_version()",
    "CHECKPOINT",
    "VACUUM",
    "BEGIN",
    "PREPARE a AS SELECT 1",
    "EXECUTE a",
    "EXPLAIN SELECT 1",
    "CREATE SECRET s (TYPE s3)",
    "SELECT 1; SELECT 2",
    "SELECT 1; DROP TABLE runs",
    "SELECT * FROM read_csv('{store}/secret.csv')",
    "FROM '{store}/secret.csv'",
    "SELECT * FROM read_text('{store}/secret.csv')",
    "SELECT * FROM read_blob('/etc/passwd')",
    "SELECT * FROM read_json('/etc/passwd')",
    "SELECT * FROM read_parquet('{store}/runs/*/samples/*.parquet')",
    "SELECT * FROM glob('{store}/*')",
    "SELECT * FROM sniff_csv('/etc/passwd')",
    "SELECT * FROM read_duckdb('{store}/results.duckdb')",
    "SELECT * FROM duckdb_secrets()",
    "SELECT * FROM enable_logging()",
    "SELECT getenv('HOME')",
    "SELECT * FROM sql",  # a Python variable of ours
    "SELECT * FROM store",
    "",
    "   ",
    "-- nothing",
    ";",
]


@pytest.mark.parametrize("sql", DENIED)
def test_denied(store: Path, sql: str) -> None:
    """Asked where the child process asks; the next test takes the whole way."""
    before = sorted(path.name for path in store.iterdir())
    with pytest.raises((NotOneSelect, duckdb.Error)):
        answer(store, sql.format(store=store), 10)
    assert sorted(path.name for path in store.iterdir()) == before


@pytest.mark.parametrize("sql", DENIED[1:6] + DENIED[35:38])
def test_denied_is_one_readable_line(store: Path, sql: str) -> None:
    with pytest.raises(QueryError) as refused:
        run_query(store, sql.format(store=store))
    assert str(refused.value) and "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("sql", "says"),
    [
        ("SELECT nope FROM runs", 'column "nope" not found'),
        ("SELECT * FROM score", "Did you mean"),
        ("SELEC 1", "syntax error"),
        ("DROP TABLE runs", "only SELECT can be run here, not DROP"),
        ("SELECT 1; SELECT 2", "one SELECT statement is wanted, got 2"),
        ("", "one SELECT statement is wanted, got 0"),
    ],
)
def test_mistakes_are_explained(store: Path, sql: str, says: str) -> None:
    with pytest.raises(QueryError, match=says):
        run_query(store, sql)


def test_values_that_json_cannot_say(store: Path) -> None:
    sql = """SELECT 'nan'::DOUBLE AS a, 'inf'::FLOAT AS b, DATE '2026-01-02' AS c, TIMESTAMP '2026-01-02 03:04:05' AS d,
             1.50::DECIMAL(5,2) AS e, 3.00::DECIMAL(5,2) AS f, '\\xAA'::BLOB AS g, INTERVAL 90 SECOND AS h,
             [1, NULL] AS i, {'x': 'nan'::DOUBLE} AS j, MAP {'k': 1} AS k, NULL AS l, true AS m,
             170141183460469231731687303715884105727::HUGEINT AS n, TIMESTAMPTZ '2026-01-02 03:04:05+00' AS o"""
    (row,) = run_query(store, sql).rows
    assert row[:8] == (None, None, "2026-01-02", "2026-01-02T03:04:05", 1.5, 3, "aa", 90.0)
    assert row[8:14] == ([1, None], {"x": None}, {"k": 1}, None, True, 2**127 - 1)
    assert row[14].startswith("2026-01-02T03:04:05")


def test_rows_are_capped_and_it_says_so(store: Path) -> None:
    result = run_query(store, "SELECT * FROM range(5000000)", max_rows=7)
    assert [row[0] for row in result.rows] == list(range(7)) and result.truncated
    assert not run_query(store, "SELECT * FROM range(7)", max_rows=7).truncated
    with pytest.raises(ValueError, match="at least 1"):
        run_query(store, "SELECT 1", max_rows=0)


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT count(*) FROM range(10000000000) a, range(1000) b",
        "WITH RECURSIVE t AS (SELECT 1 AS i UNION ALL SELECT i + 1 FROM t) SELECT count(*) FROM t",
    ],
)
def test_time_is_capped(store: Path, sql: str) -> None:
    start = time.monotonic()
    with pytest.raises(QueryError, match=r"stopped after 1\.5 s"):
        run_query(store, sql, timeout_seconds=1.5)
    assert time.monotonic() - start < 10


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT array_agg(i ORDER BY i) FROM range(200000000) t(i)",
        "SELECT string_agg(i::VARCHAR, '') FROM range(100000000) t(i)",
        "SELECT list_sum(range(600000000))",  # escapes DuckDB's own limit
    ],
)
def test_memory_is_capped(store: Path, sql: str) -> None:
    with pytest.raises(QueryError, match="memory"):
        run_query(store, sql, timeout_seconds=60)


def test_an_engine_that_crashes_is_an_error_like_any_other(store: Path) -> None:
    address = "1::BIGINT::VARCHAR::POINTER"
    sql = f"SELECT * FROM arrow_scan({address}, {address}, {address})"
    with pytest.raises(QueryError):
        run_query(store, sql)


def test_no_snapshot(tmp_path: Path) -> None:
    with pytest.raises(NoSnapshotError, match="run `stillroom demo`"):
        run_query(tmp_path, "SELECT 1")


def test_asking_loads_neither_database_nor_numpy(store: Path) -> None:
    code = (
        "import sys, pathlib; from evaluation.results.query import run_query; "
        "run_query(pathlib.Path(sys.argv[1]), 'SELECT 1'); "
        "print(sorted({'duckdb', 'numpy', 'pyarrow', 'pandas', 'torch', 'ray', 'prefect'} & set(sys.modules)))"
    )
    root = Path(__file__).parents[3]
    done = subprocess.run(
        [sys.executable, "-c", code, str(store)], cwd=root, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"


def test_rows_as_a_parquet_file_with_their_types(store: Path, tmp_path: Path) -> None:
    from pyarrow import parquet

    file = tmp_path / "rows.parquet"
    sql = "SELECT run_id, update, accuracy, evaluated_at, [1, 2] AS pair FROM scores ORDER BY ALL"
    assert query_to_parquet(store, sql, file, max_rows=1000) == (9, False)
    table = parquet.read_table(file)
    assert [str(field.type) for field in table.schema] == [
        "string",
        "int64",
        "double",
        "timestamp[us]",
        "list<element: int32>",
    ]
    with open_snapshot(store) as con:
        assert [tuple(row.values()) for row in table.to_pylist()] == con.execute(sql).fetchall()
    assert query_to_parquet(store, "SELECT * FROM range(10)", file, max_rows=3) == (3, True)
    assert parquet.read_table(file)["range"].to_pylist() == [0, 1, 2]
    assert [path.name for path in tmp_path.iterdir()] == ["rows.parquet"]


def test_a_refused_query_leaves_the_file_as_it_was(store: Path, tmp_path: Path) -> None:
    file = tmp_path / "rows.parquet"
    file.write_bytes(b"mine")
    for sql in ("DROP TABLE runs", "SELECT nope FROM runs", "SELECT * FROM read_text('/etc/passwd')"):
        with pytest.raises(QueryError):
            query_to_parquet(store, sql, file, max_rows=10)
    with pytest.raises(QueryError, match="stopped after"):
        query_to_parquet(
            store, "SELECT count(*) FROM range(10000000000) a, range(9) b", file, max_rows=10, timeout_seconds=1
        )
    assert file.read_bytes() == b"mine" and [path.name for path in tmp_path.iterdir()] == ["rows.parquet"]


def test_a_file_that_cannot_be_written_is_one_line(store: Path, tmp_path: Path) -> None:
    with pytest.raises(QueryError, match="cannot be written as Parquet"):
        query_to_parquet(store, "SELECT 1", tmp_path / "nowhere" / "rows.parquet", max_rows=10)
