"""Marks which copies of a fact count, for the runs that got new facts.

A fact written twice (work redone after a crash) counts once: the highest attempt, then the last written. The marks
are columns of the fact tables, so that a view is a plain filter and stays fast on millions of rows.
"""

from __future__ import annotations

import duckdb

from evaluation.results.facts import TABLES

KEYS = {
    "runs": "run_id",
    "cells": "run_id, plan, plan_hash, label, axes",
    "run_events": "run_id, sequence",
    "step_costs": "run_id, update",
    "rollouts": "run_id, update, rollout_index",
    "problems": "run_id, benchmark, split, problem_id",
    "answers": "run_id, answer_key",
    "grades": "run_id, answer_key, grader, version",
    "evaluations": "run_id, update, benchmark, split",
}
"""What identifies a fact of each table."""

_NEWEST = "attempt DESC, written_at DESC, writer DESC, seq DESC"


def settle(con: duckdb.DuckDBPyConnection) -> None:
    """Bring the marks up to date for every run in ``unsettled``, and empty that table, in one transaction."""
    con.begin()
    pending = con.execute("SELECT count(*) FROM unsettled").fetchone()
    if pending and pending[0]:
        for table in TABLES.values():
            _mark(con, table, "superseded", f"row_number() OVER (PARTITION BY {KEYS[table]} ORDER BY {_NEWEST}) > 1")
            if table == "step_costs":
                _mark_metrics(con)
        # Of several graders' judgements the one written last counts: `stillroom regrade` appends.
        newest = "superseded, written_at DESC, attempt DESC, writer DESC, seq DESC"
        _mark(con, "grades", "is_current", f"row_number() OVER (PARTITION BY run_id, answer_key ORDER BY {newest}) = 1")
        con.execute("DELETE FROM unsettled")
        con.execute("UPDATE schema_version SET revision = revision + 1")
    con.commit()


def _mark(con: duckdb.DuckDBPyConnection, table: str, column: str, value: str) -> None:
    """Set ``column`` to ``value`` where it differs. Almost nothing differs, so the rows are sought first."""
    con.execute(
        f"""
        CREATE OR REPLACE TEMP TABLE changed AS
        SELECT row_id, value FROM (
            SELECT rowid AS row_id, {column} AS present, {value} AS value
            FROM {table} WHERE run_id IN (SELECT run_id FROM unsettled)
        ) WHERE value <> present
        """
    )
    if _some_changed(con):
        con.execute(f"UPDATE {table} SET {column} = changed.value FROM changed WHERE {table}.rowid = changed.row_id")


def _mark_metrics(con: duckdb.DuckDBPyConnection) -> None:
    """The metrics of a step follow the step's line, of which ``changed`` holds those just marked anew."""
    if _some_changed(con):
        con.execute(
            """
            UPDATE steps SET superseded = line.superseded
            FROM (SELECT run_id, writer, seq, superseded FROM step_costs
                  WHERE rowid IN (SELECT row_id FROM changed)) line
            WHERE steps.run_id = line.run_id AND steps.writer = line.writer AND steps.seq = line.seq
            """
        )


def _some_changed(con: duckdb.DuckDBPyConnection) -> bool:
    return con.execute("SELECT 1 FROM changed LIMIT 1").fetchone() is not None
