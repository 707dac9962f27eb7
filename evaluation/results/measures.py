"""What a problem's answers are worth: the measures that runs can be compared by, one value a problem."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Literal

from evaluation.names import nearest
from evaluation.results.plans import METRICS, CompareError
from evaluation.statistics import majority_at_k, pass_at_k, pass_hat_k

if TYPE_CHECKING:
    import duckdb

Problems = Mapping[str, tuple[float, str]]
"""Problem id -> (value, cluster)."""

SHORT_NAMES = {"lenient": "lenient_accuracy", "format": "format_rate"}
_AT_K = re.compile(r"(pass@|pass\^|maj@)(\d+)")


@dataclass(frozen=True, slots=True)
class Measure:
    """A column of ``problem_scores``, or pass@k, pass^k or maj@k."""

    name: str
    kind: Literal["column", "pass@", "pass^", "maj@"]
    k: int = 0


def parse_measure(text: str) -> Measure:
    """``accuracy``, ``score``, ``lenient``, ``format``, ``pass@4``, ``pass^4``, ``maj@16``; raises CompareError."""
    name = SHORT_NAMES.get(text, text)
    if name in METRICS:
        return Measure(name, "column")
    found = _AT_K.fullmatch(name)
    if found is None or int(found[2]) < 1:
        known = [*METRICS, *SHORT_NAMES, "pass@1", "pass^1", "maj@1"]
        raise CompareError(f"unknown metric {text!r}{nearest(text, known)}")
    kind: Literal["pass@", "pass^", "maj@"] = found[1]  # pyrefly: ignore[bad-assignment]
    return Measure(name, kind, int(found[2]))


def problem_values(
    con: duckdb.DuckDBPyConnection,
    measure: Measure,
    checkpoints: Sequence[tuple[str, int]],
    benchmark: str,
    split: str,
) -> dict[str, Problems]:
    """Run id -> its problems that have a value at its checkpoint (run, update); a run without any is not in it.

    pass@k, pass^k and maj@k of a problem need k scored answers: a problem with fewer has no value.
    """
    columns = "p.n_scored, p.n_passed" if measure.kind in ("pass@", "pass^") else f"p.{measure.name}, NULL"
    if measure.kind == "maj@":
        rows = _votes(con, measure.k, checkpoints, benchmark, split)
    else:
        found = con.execute(
            f"""
            SELECT p.run_id, p.problem_id, coalesce('c:' || p.cluster, 'p:' || p.problem_id), {columns}
            FROM problem_scores p JOIN (SELECT unnest(?) AS run_id, unnest(?) AS update) f USING (run_id, update)
            WHERE p.benchmark = ? AND p.split = ?
            """,
            [[run for run, _ in checkpoints], [update for _, update in checkpoints], benchmark, split],
        ).fetchall()
        rows = ((run, problem, cluster, _value(measure, one, other)) for run, problem, cluster, one, other in found)
    values: dict[str, dict[str, tuple[float, str]]] = defaultdict(dict)
    for run, problem, cluster, value in rows:
        if value is not None:
            values[run][problem] = (value, cluster)
    return dict(values)


@lru_cache(maxsize=4096)
def _value(measure: Measure, one: float | None, other: int | None) -> float | None:
    """From the measure's columns: the value itself, or from the counts of scored and passed answers."""
    if measure.kind == "column":
        return None if one is None else float(one)
    assert one is not None and other is not None
    return (pass_at_k if measure.kind == "pass@" else pass_hat_k)(int(one), other, measure.k)


def _votes(
    con: duckdb.DuckDBPyConnection, k: int, checkpoints: Sequence[tuple[str, int]], benchmark: str, split: str
) -> Iterable[tuple[str, str, str, float | None]]:
    rows = con.execute(
        """
        SELECT v.run_id, v.problem_id, any_value(coalesce('c:' || p.cluster, 'p:' || p.problem_id)),
               coalesce(sum(votes) FILTER (said = 'right'), 0)::BIGINT,
               list(votes::BIGINT ORDER BY votes) FILTER (said <> 'right'),
               coalesce(sum(votes) FILTER (said IS NULL), 0)::BIGINT
        FROM (
            SELECT a.run_id, a.update, a.problem_id, vote(verdict, extracted) AS said, count(*) AS votes
            FROM graded_answers a JOIN (SELECT unnest($runs) AS run_id, unnest($updates) AS update) f
                USING (run_id, update)
            WHERE benchmark = $benchmark AND split = $split AND verdict <> 'not_scored'
            GROUP BY ALL
        ) v
        JOIN problem_scores p ON p.run_id = v.run_id AND p.update = v.update AND p.problem_id = v.problem_id
            AND p.benchmark = $benchmark AND p.split = $split
        GROUP BY v.run_id, v.problem_id
        """,
        {
            "runs": [run for run, _ in checkpoints],
            "updates": [update for _, update in checkpoints],
            "benchmark": benchmark,
            "split": split,
        },
    ).fetchall()
    for run, problem, cluster, passed, others, silent in rows:
        yield run, problem, cluster, majority_at_k(passed, tuple(others or ()), silent, k)
