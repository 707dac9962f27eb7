"""Tables made of results, against values worked out by hand."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from dashboard import frames
from dashboard.escaping import plain
from evaluation.results.comparison import Comparison, Row, SeedScore
from evaluation.results.curves import COST_AXES
from evaluation.results.query import QueryResult
from evaluation.statistics import Interval


def row(label: str, values: list[float], **changed: Any) -> Row:
    """A row of a comparison with one seed a value."""
    given: dict[str, Any] = {
        "benchmark": "addition",
        "label": label,
        "method": "opsd",
        "is_control": False,
        "is_baseline": False,
        "axes": "{}",
        "seeds": tuple(SeedScore(i, f"{label}-{i}", 40, v) for i, v in enumerate(values)),
        "n_seeds": len(values),
        "n_planned": 3,
        "n_problems": 50,
        "mean": float(np.mean(values)),
        "interval": Interval(0.5, 0.7) if len(values) >= 3 else None,
        "is_unanimous": False,
        "seed_t_interval": None,
        "standard_error": 0.01,
        "unscored_rate": 0.04,
        "cost": {
            **dict.fromkeys(("reference_tokens", "auxiliary_tokens", "flop", "gpu_seconds")),
            **{"rollout_tokens": 1000.0, "trained_tokens": 900.0, "teacher_tokens": 1500.0, "wall_seconds": 12.5},
        },
        "delta": 0.25,
        "delta_interval": Interval(0.1, 0.4),
        "n_pairs": len(values),
        "n_paired_problems": 50,
        "p_value": 0.01,
        "p_holm": 0.02,
        "rule": "a rule",
    }
    return Row(**(given | changed))


def comparison(*rows: Row) -> Comparison:
    return Comparison("plan", "edition", "test", "accuracy", "Base", rows, ())


def test_leaderboard_shows_percent_and_points() -> None:
    table = frames.leaderboard(comparison(row("OPSD", [0.5, 0.6, 0.7])))
    (shown,) = frames.records(table)
    assert shown["score"] == pytest.approx(60.0) and shown["interval"] == "[50.0, 70.0]"
    assert shown["delta"] == 25.0 and shown["delta_interval"] == "[+10.0, +40.0]"
    assert (shown["seeds"], shown["problems"], shown["unscored"]) == ("3 of 3", 50, 4.0)
    assert (shown["rollout_tokens"], shown["wall_seconds"], shown["p_holm"]) == (1000.0, 12.5, 0.02)


def test_leaderboard_without_interval_or_test() -> None:
    base = row("Base", [0.3], is_baseline=True, delta=None, delta_interval=None, p_value=None, p_holm=None, rule=None)
    (shown,) = frames.records(frames.leaderboard(comparison(base)))
    assert shown["role"] == "baseline" and shown["interval"] == "–" and shown["delta_interval"] == "–"
    assert np.isnan(shown["delta"]) and np.isnan(shown["p_holm"]) and shown["seeds"] == "1 of 3"


def test_an_empty_leaderboard_has_its_columns() -> None:
    assert {"method", "score", "p_holm"} <= set(frames.leaderboard(comparison()).columns)


def test_a_control_is_marked() -> None:
    table = frames.leaderboard(comparison(row("OPSD", [0.5] * 3), row("wrong hint", [0.1] * 3, is_control=True)))
    assert list(table["role"]) == ["", "control"]


def test_labels_are_told_apart_by_their_axes_only_where_they_repeat() -> None:
    names = frames.cell_names(
        [("A", "{}"), ("B", '{"views.teacher.weights": "ema"}'), ("B", '{"x": 1}'), ("C", '{"x": 1}')]
    )
    assert list(names.values()) == ["A", "B (weights=ema)", "B (x=1)", "C"]


def test_score_rows_keep_every_seed() -> None:
    means, seeds = frames.score_rows([row("A", [0.5, 0.6, 0.7]), row("B", [0.2, 0.4])])
    assert list(seeds["value"]) == [0.5, 0.6, 0.7, 0.2, 0.4]
    assert means["low"].isna().tolist() == [False, True]


def points(values: Mapping[int, Sequence[float | None]]) -> pd.DataFrame:
    """update -> a value a seed, as rows of one metric."""
    rows = [
        {"name": "A", "is_base": False, "seed": s, "run_id": f"r{s}", "update": u, "value": v}
        | {cost: float(u * 10 + s) for cost in COST_AXES}
        for u, seeds in values.items()
        for s, v in enumerate(seeds)
    ]
    return pd.DataFrame(rows).astype({"value": float})


def test_step_curves_are_means_with_students_interval() -> None:
    values = [1.0, 2.0, 4.0]
    (curve,) = frames.records(frames.step_curves(points({5: values})))
    low, high = stats.t.interval(0.95, 2, loc=np.mean(values), scale=stats.sem(values))
    assert curve["mean"] == pytest.approx(7 / 3)
    assert (curve["low"], curve["high"]) == pytest.approx((low, high))
    assert (curve["n_seeds"], curve["n_planned"], curve["rollout_tokens"]) == (3, 3, 51.0)


def test_step_curves_keep_every_update_and_say_how_many_seeds() -> None:
    curve = frames.step_curves(points({1: [1.0, 2.0, 3.0], 2: [1.0, None, 3.0], 3: [None, None, None]}))
    assert list(curve["update"]) == [1, 2, 3]
    assert list(curve["n_seeds"]) == [3, 2, 0]
    assert curve["mean"].tolist()[:2] == [2.0, 2.0] and np.isnan(curve["mean"].iloc[2])
    assert curve["low"].isna().tolist() == [False, True, True]  # below three seeds no band


def test_points_without_a_place_are_counted() -> None:
    frame = pd.DataFrame({"gpu_seconds": [None, 1.0, None], "mean": [1, 2, 3]})
    placed, missing = frames.split_unplaced(frame, "gpu_seconds")
    assert list(placed["mean"]) == [2] and missing == 2


@pytest.mark.parametrize(
    ("seconds", "shown"), [(0, "0 s"), (59, "59 s"), (60, "1 min"), (5400, "1.5 h"), (181_440, "2.1 d"), (-3, "0 s")]
)
def test_duration(seconds: float, shown: str) -> None:
    assert frames.duration(seconds) == shown


def test_differences_name_each_place_once() -> None:
    first = {"a": {"b": 1, "c": [1, 2]}, "same": "x", "only": None, "empty": {}}
    second = {"a": {"b": 2, "c": [1, 3, 4]}, "same": "x", "empty": []}
    table = frames.differences(first, second).set_index("path")
    assert dict(table["this"]) == {"a.b": "1", "a.c.1": "2", "only": "null", "empty": "{}", "a.c.2": "absent"}
    assert dict(table["other"]) == {"a.b": "2", "a.c.1": "3", "only": "absent", "empty": "[]", "a.c.2": "4"}
    assert frames.differences(first, first).empty


def test_texts_are_found_by_file_and_row() -> None:
    answers = pd.DataFrame({"sample_file": ["a", "a", "b", "gone"], "sample_row": [1, 7, 0, 0]})
    texts = {
        "a": pd.DataFrame({"completion": ["x", "y"], "feedback": [None, "close"]}),
        "b": pd.DataFrame({"completion": ["z"]}),
    }
    table = frames.with_texts(answers, texts)
    assert list(table["completion"]) == ["y", None, "z", None]
    assert list(table["feedback"]) == ["close", None, None, None]


def test_query_results_keep_their_types() -> None:
    result = QueryResult(
        ("n", "x", "ok", "at", "text", "many", "n"),
        ("BIGINT", "DOUBLE", "BOOLEAN", "TIMESTAMP", "VARCHAR", "BIGINT[]", "HUGEINT"),
        [(2**53 + 1, 0.5, True, "2026-01-02T03:04:05.678", "½", [1, 2], 10**30), (None,) * 7],
        truncated=False,
    )
    table = frames.result_table(result)
    assert list(table.columns) == ["n", "x", "ok", "at", "text", "many", "n_2"]
    assert table["n"].iloc[0] == 2**53 + 1  # a float could not hold it
    assert table["at"].iloc[0] == pd.Timestamp("2026-01-02 03:04:05.678")
    assert (table["many"].iloc[0], table["n_2"].iloc[0]) == ("[1, 2]", str(10**30))
    assert table.iloc[1].isna().all()


def test_a_query_without_rows_has_its_columns() -> None:
    table = frames.result_table(QueryResult(("a", "b"), ("BIGINT", "TIMESTAMP"), [], truncated=False))
    assert list(table.columns) == ["a", "b"] and table.empty


def test_lists_show_the_beginning_of_long_texts() -> None:
    answers = pd.DataFrame({"completion": ["x" * 301, "y" * 300, None], "prompt": ["a", "b", "c"]})
    shown = frames.shortened(answers, ("completion",), 300)
    assert list(shown["completion"])[:2] == ["x" * 300 + "…", "y" * 300] and pd.isna(shown["completion"].iloc[2])
    assert len(answers["completion"].iloc[0]) == 301


@pytest.mark.parametrize(
    "text",
    ["OPSD, β = ½", "a*b*c", "$x_1$ and $y$", ":red[hot]", "[a](b)", "`code`", "# head", "1. one", "<b>", "a\\b"],
)
def test_texts_that_are_not_ours_are_shown_as_they_are(text: str) -> None:
    escaped = plain(text)
    assert re.sub(r"\\(.)", r"\1", escaped) == text
    # No special sign is left without its backslash.
    assert not re.search(r"(?<!\\)(?:\\\\)*[*_`$\[\]<>#]", escaped)


def test_lines_are_joined() -> None:
    assert plain("one\n\n- two") == "one \\- two"


def test_means_of_fewer_seeds_are_partial() -> None:
    curve = frames.mark_partial(pd.DataFrame({"name": list("AAABB"), "n_seeds": [3, 3, 1, 2, 2]}))
    assert list(curve["is_partial"]) == [False, False, True, False, False]
