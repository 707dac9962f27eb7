"""The database that one process writes: its connection, its tables and views."""

from __future__ import annotations

import hashlib
import tomllib
import uuid
from importlib import resources
from pathlib import Path

import duckdb

from evaluation.results.settle import unsettle_scores
from evaluation.results.store import StoreBusyError, StoreDamagedError

WRITER_SETTINGS = {"threads": "2", "memory_limit": "2GB"}
"""The ingestor shares its machine with training."""


def _text(name: str) -> str:
    return resources.files("evaluation.results").joinpath(name).read_text(encoding="utf-8")


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def connect_writer(database: Path) -> duckdb.DuckDBPyConnection:
    """The read-write connection; the caller holds the ingest lock."""
    try:
        return duckdb.connect(str(database), config=dict(WRITER_SETTINGS))
    except duckdb.IOException as error:
        text = str(error)
        if "Could not set lock" in text:
            reason = text.partition(": ")[2].partition(" See also")[0]
            raise StoreBusyError(
                f"{database} is open in another program ({reason}): close it there and read results.ro.duckdb instead"
            ) from error
        raise StoreDamagedError(
            f"{database} cannot be opened ({text.splitlines()[0]}): make it again with `stillroom ingest --rebuild`"
        ) from error
    except (duckdb.FatalException, duckdb.InternalException, duckdb.SerializationException) as error:
        raise StoreDamagedError(
            f"{database} is damaged ({str(error).splitlines()[0]}): make it again with `stillroom ingest --rebuild`"
        ) from error


def schema_is_current(con: duckdb.DuckDBPyConnection) -> bool:
    """Whether the database has the tables of this version; False for another version's and for an empty file."""
    tables = con.execute("SELECT 1 FROM duckdb_tables() WHERE table_name = 'schema_version'").fetchone()
    if tables is None:
        return False
    row = con.execute("SELECT schema_sha256 FROM schema_version").fetchone()
    return row is not None and row[0] == _sha256(_text("schema.sql"))


def is_empty(con: duckdb.DuckDBPyConnection) -> bool:
    """Whether the file is a database without tables yet."""
    row = con.execute("SELECT count(*) FROM duckdb_tables()").fetchone()
    return row is not None and row[0] == 0


def create_schema(con: duckdb.DuckDBPyConnection) -> None:
    """Tables, views and comments, in one transaction."""
    con.begin()
    con.execute(_text("schema.sql"))
    con.execute(
        "INSERT INTO schema_version VALUES (?, '', ?, ?, 0)",
        [_sha256(_text("schema.sql")), duckdb.__version__, uuid.uuid4().hex[:12]],
    )
    _create_views(con)
    con.commit()


def refresh_views(con: duckdb.DuckDBPyConnection) -> None:
    """Define the views and comments again if another version of Stillroom defined them."""
    row = con.execute("SELECT views_sha256 FROM schema_version").fetchone()
    if row is not None and row[0] != _views_sha256():
        con.begin()
        _create_views(con)
        unsettle_scores(con)
        con.commit()


def _views_sha256() -> str:
    return _sha256(_text("views.sql") + _text("catalogue.toml"))


def _create_views(con: duckdb.DuckDBPyConnection) -> None:
    for (view,) in con.execute("SELECT view_name FROM duckdb_views() WHERE NOT internal").fetchall():
        con.execute(f"DROP VIEW {view}")  # another version may have had more
    con.execute(_text("views.sql"))
    _comment(con)
    con.execute("UPDATE schema_version SET views_sha256 = ?, revision = revision + 1", [_views_sha256()])


def _comment(con: duckdb.DuckDBPyConnection) -> None:
    """Put catalogue.toml into the database's own catalogue; a relation or column without a text gets none."""
    catalogue = tomllib.loads(_text("catalogue.toml"))
    columns, overrides = catalogue["columns"], catalogue["override"]
    found = con.execute("SELECT table_name, column_name FROM duckdb_columns() WHERE NOT internal").fetchall()
    views = {name for (name,) in con.execute("SELECT view_name FROM duckdb_views() WHERE NOT internal").fetchall()}
    statements = [
        f"COMMENT ON {'VIEW' if name in views else 'TABLE'} {name} IS {_literal(catalogue['relations'].get(name))}"
        for name in dict.fromkeys(name for name, _ in found)
    ]
    statements += [
        f'COMMENT ON COLUMN {name}."{column}" IS {_literal(overrides.get(name, {}).get(column, columns.get(column)))}'
        for name, column in found
    ]
    con.execute(";\n".join(statements))


def _literal(text: str | None) -> str:
    return "NULL" if text is None else "'" + text.replace("'", "''") + "'"


def revision(con: duckdb.DuckDBPyConnection) -> str:
    """Names this state of this database: differs after every ingest that changed something."""
    row = con.execute("SELECT database_id, revision FROM schema_version").fetchone()
    assert row is not None
    return f"{row[0]}-{row[1]}"
