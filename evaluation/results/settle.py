"""What must be true of the tables after new facts: each fact counts once, and the stored scores are the computed ones.

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
    "marks": "run_id, mark, value",
    "traces": "run_id, source, update, benchmark, split, problem_id, sample_index",
}
"""What identifies a fact of each table."""

SCORED_FROM = ("problems", "answers", "grades", "evaluations")
"""Tables whose rows decide scores."""

STORED = {
    "problem_scores": "run_id, update, benchmark, split, problem_id",
    "scores": "run_id, update, benchmark, split",
}
"""Views whose rows are stored, with their keys, in the order in which one is computed from the other."""

RUNS_AT_ONCE = 100
"""Runs whose scores are computed by one query: bounds its memory."""

_NEWEST = "attempt DESC, written_at DESC, writer DESC, seq DESC"


def settle(con: duckdb.DuckDBPyConnection) -> None:
    """Bring marks and stored scores up to date for everything in ``unsettled``, and empty it, in one transaction."""
    pending: dict[str, list[str]] = {}
    for table, run in con.execute("SELECT DISTINCT fact_table, run_id FROM unsettled ORDER BY ALL").fetchall():
        pending.setdefault(table, []).append(run)
    if not pending:
        return
    con.begin()
    for table in TABLES.values():
        if table in pending:
            _mark(con, table, "superseded", f"row_number() OVER (PARTITION BY {KEYS[table]} ORDER BY {_NEWEST}) > 1")
        if table == "step_costs" and table in pending:
            _mark_metrics(con)
    if "grades" in pending:
        # Of several judgements of an answer the one written last counts: a later grade supersedes.
        newest = "superseded, written_at DESC, attempt DESC, writer DESC, seq DESC"
        _mark(con, "grades", "is_current", f"row_number() OVER (PARTITION BY run_id, answer_key ORDER BY {newest}) = 1")
    scored = sorted({run for table in SCORED_FROM for run in pending.get(table, [])})
    for runs in _groups(scored):
        for view, key in STORED.items():
            _store(con, view, key, runs)
    con.execute("DELETE FROM unsettled")
    con.execute("UPDATE schema_version SET revision = revision + 1")
    con.commit()


def unsettle_scores(con: duckdb.DuckDBPyConnection) -> None:
    """Ask for all scores to be computed again, after their views have changed."""
    con.execute("INSERT INTO unsettled SELECT DISTINCT run_id, 'answers' FROM answers")


def _groups(runs: list[str]) -> list[tuple[str, ...]]:
    return [tuple(runs[start : start + RUNS_AT_ONCE]) for start in range(0, len(runs), RUNS_AT_ONCE)]


def _mark(con: duckdb.DuckDBPyConnection, table: str, column: str, value: str) -> None:
    """Set ``column`` to ``value`` where it differs. Almost nothing differs, so the rows are sought first."""
    con.execute(
        f"""
        CREATE OR REPLACE TEMP TABLE changed AS
        SELECT row_id, value FROM (
            SELECT rowid AS row_id, {column} AS present, {value} AS value
            FROM {table} WHERE run_id IN (SELECT run_id FROM unsettled WHERE fact_table = '{table}')
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


def _store(con: duckdb.DuckDBPyConnection, view: str, key: str, runs: tuple[str, ...]) -> None:
    """Make the stored rows of ``runs`` those of the computed view, touching only rows that differ."""
    wanted = f"run_id IN ({', '.join('?' * len(runs))})"
    con.execute(f"CREATE OR REPLACE TEMP TABLE fresh AS SELECT * FROM {view}_computed WHERE {wanted}", runs)
    con.execute(
        f"""
        CREATE OR REPLACE TEMP TABLE stale AS
        SELECT {key} FROM (SELECT * FROM {view}_stored WHERE {wanted} EXCEPT SELECT * FROM fresh)
        """,
        runs,
    )
    con.execute(f"DELETE FROM {view}_stored WHERE ({key}) IN (SELECT ({key}) FROM stale)")
    con.execute(
        f"""
        INSERT INTO {view}_stored
        SELECT * FROM fresh ANTI JOIN (SELECT {key} FROM {view}_stored WHERE {wanted}) USING ({key})
        """,
        runs,
    )
