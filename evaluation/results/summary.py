"""What one run scored on each benchmark it was evaluated on last: rates with intervals, pass@k and the vote."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from evaluation.statistics import CONFIDENCE, Interval, problem_interval

if TYPE_CHECKING:
    import duckdb

RULE = (
    f"[low, high]: {CONFIDENCE:.0%} over problems, one model: Wilson for one answer a problem, else Student's t on "
    "clustered errors"
)


@dataclass(frozen=True, slots=True)
class Summary:
    """One benchmark of one run; rates are shares of 1, None where nothing could be scored."""

    run_id: str
    benchmark: str
    split: str
    update: int
    problems: int
    samples: int
    answers: int
    unscored: int
    accuracy: float | None
    """avg@k: the mean over problems of the share of right answers."""
    interval: Interval | None
    lenient_accuracy: float | None
    format_rate: float | None
    truncated_rate: float
    completion_tokens: float
    majority: float | None
    """maj@k of all answers, ties broken at random; None with one answer a problem."""
    pass_at: dict[int, float | None]
    pass_hat: dict[int, float | None]
    seconds: float | None

    def to_dict(self) -> dict[str, Any]:
        """For ``--json``."""
        return asdict(self)


def summarise(con: duckdb.DuckDBPyConnection, run_id: str) -> list[Summary]:
    """The run's last whole evaluation on each benchmark and split, in the order of their names."""
    rows = con.execute(
        """
        SELECT benchmark, split, update, n_problems, samples_per_problem, n_answers, n_unscored, accuracy,
               lenient_accuracy, format_rate, truncated_rate, completion_tokens, evaluation_seconds
        FROM scores WHERE run_id = ? AND complete
        QUALIFY update = max(update) OVER (PARTITION BY benchmark, split) ORDER BY benchmark, split
        """,
        [run_id],
    ).fetchall()
    return [_summary(con, run_id, *row) for row in rows]


def _summary(
    con: duckdb.DuckDBPyConnection, run_id: str, benchmark: str, split: str, update: int, *rest: Any
) -> Summary:
    problems, samples, answers, unscored, accuracy, lenient, form, truncated, tokens, seconds = rest
    place = [run_id, update, benchmark, split]
    where = "run_id = ? AND update = ? AND benchmark = ? AND split = ?"
    scored = con.execute(
        f"SELECT accuracy, coalesce('c:' || cluster, 'p:' || problem_id) FROM problem_scores "
        f"WHERE {where} AND accuracy IS NOT NULL ORDER BY problem_id",
        place,
    ).fetchall()
    at = con.execute(f"SELECT k, pass_at_k, pass_hat_k FROM pass_at_k WHERE {where} ORDER BY k", place).fetchall()
    vote = con.execute(f"SELECT maj_at_n FROM majority WHERE {where}", place).fetchone()
    values, clusters = [value for value, _ in scored], [cluster for _, cluster in scored]
    return Summary(
        run_id=run_id,
        benchmark=benchmark,
        split=split,
        update=update,
        problems=problems,
        samples=samples,
        answers=answers,
        unscored=unscored,
        accuracy=accuracy,
        interval=problem_interval(values, clusters) if values else None,
        lenient_accuracy=lenient,
        format_rate=form,
        truncated_rate=truncated,
        completion_tokens=tokens,
        majority=vote[0] if vote is not None and samples > 1 else None,
        pass_at={k: value for k, value, _ in at},
        pass_hat={k: value for k, _, value in at},
        seconds=seconds,
    )
