"""From stored traces to what the page shows: values, colours, alternatives, prompts. Pure: no page, no store."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pandas as pd

from evaluation.results.traces import TokenTrace

ONE_SIDED = (230, 159, 0)
"""Orange, laid over the page's own background: readable on white and on dark, and told apart without red or green."""
POSITIVE, NEGATIVE = (0, 114, 178), (213, 94, 0)
"""Blue and vermilion for values of two signs."""
STRONGEST = 0.6
"""Opacity of the strongest colour: the text on it stays readable."""
FULL_FROM = 0.98
"""Quantile of the shown values from which the colour is the strongest, so that one outlier does not pale the rest."""
SMALLEST_SCALE = 1e-3
"""A scale is at least this wide: rounding is not painted."""

Values = Sequence[float | None]


@dataclass(frozen=True, slots=True)
class Measure:
    """One number a token that can be painted."""

    title: str
    unit: str
    signed: bool = False


MEASURES = {
    "divergence": Measure("divergence of the method", "nats"),
    "forward_kl": Measure("KL(teacher ‖ student)", "nats"),
    "log_ratio": Measure("log teacher − log student of the token", "nats", signed=True),
    "student_entropy": Measure("entropy of the student", "nats"),
    "teacher_entropy": Measure("entropy of the teacher", "nats"),
    "surprise": Measure("−log probability to the student", "nats"),
    "weight": Measure("weight in the method", ""),
}
"""Name in the address -> measure, in the order of the menu."""


def values_of(trace: TokenTrace, measure: str) -> Values | None:
    """The measure at every token; None where the trace has none (no teacher, or no such number)."""
    if measure == "log_ratio":
        if trace.teacher_logprob is None:
            return None
        return [t - s for t, s in zip(trace.teacher_logprob, trace.student_logprob, strict=True)]
    if measure == "surprise":
        return [-value for value in trace.student_logprob]
    return getattr(trace, measure)


def measures_of(traces: Iterable[TokenTrace]) -> list[str]:
    """The measures that at least one of the traces has."""
    shown = list(traces)
    return [name for name in MEASURES if any(values_of(trace, name) is not None for trace in shown)]


def scale_of(series: Iterable[Values | None]) -> float:
    """The absolute value from which a colour is strongest, one for all series."""
    known = [abs(value) for values in series if values is not None for value in values if value is not None]
    return max(SMALLEST_SCALE, float(np.quantile(known, FULL_FROM))) if known else SMALLEST_SCALE


def colour(value: float | None, scale: float, *, signed: bool) -> str:
    """A CSS colour for ``value``; no colour for a token without a value."""
    if value is None or not math.isfinite(value):
        return "transparent"
    base = (POSITIVE if value >= 0 else NEGATIVE) if signed else ONE_SIDED
    strength = STRONGEST * min(1.0, abs(value) / scale)
    return f"rgba({base[0]},{base[1]},{base[2]},{strength:.3f})"


def shown(piece: str) -> str:
    """A token as the map writes it: line ends, tabs and tokens of spaces alone can be seen."""
    if piece == "":
        return "▯"  # part of the character that the next token completes
    text = piece.replace("\r", "␍").replace("\t", "⇥\t").replace("\n", "⏎\n")
    return text if piece.strip(" ") else text.replace(" ", "␣")


def token_cells(trace: TokenTrace, measure: str, scale: float) -> list[list[str]]:
    """[text, colour, what the pointer says] of every token."""
    values = values_of(trace, measure)
    known: Values = values if values is not None else [None] * len(trace.tokens)
    signed = MEASURES[measure].signed
    return [
        [shown(piece), colour(value, scale, signed=signed), _hint(trace, index, measure, value)]
        for index, (piece, value) in enumerate(zip(trace.tokens, known, strict=True))
    ]


def _hint(trace: TokenTrace, index: int, measure: str, value: float | None) -> str:
    lines = [f"{index}: {name_of(trace.tokens[index])}  {MEASURES[measure].title} {number(value)}"]
    if trace.teacher_top is not None and trace.teacher_top_prob is not None:
        lines.append("teacher: " + _listed(trace.teacher_top[index], trace.teacher_top_prob[index]))
    lines.append("student: " + _listed(trace.student_top[index], trace.student_top_prob[index]))
    return "\n".join(lines)


def _listed(tokens: Sequence[str], shares: Sequence[float]) -> str:
    return ", ".join(f"{name_of(token)} {share:.1%}" for token, share in zip(tokens, shares, strict=True))


def name_of(piece: str) -> str:
    """A token in one line, its borders marked."""
    return f"“{shown(piece)}”".replace("\n", "")


def number(value: float | None) -> str:
    """Three digits; "–" for none."""
    return "–" if value is None else f"{value:.3g}"


def alternatives(trace: TokenTrace, index: int) -> tuple[pd.DataFrame | None, pd.DataFrame]:
    """The likeliest tokens at a place, the teacher's and the student's, with their probabilities in percent to both."""

    def table(tokens: list[str], own: list[float], other: list[float] | None, names: tuple[str, str]) -> pd.DataFrame:
        columns: dict[str, Any] = {"token": [name_of(token) for token in tokens], names[0]: [100 * p for p in own]}
        if other is not None:
            columns[names[1]] = [100 * p for p in other]
        return pd.DataFrame(columns)

    other = trace.student_top_teacher_prob
    student = table(
        trace.student_top[index],
        trace.student_top_prob[index],
        None if other is None else other[index],
        ("student", "teacher"),
    )
    if trace.teacher_top is None or trace.teacher_top_prob is None or trace.teacher_top_student_prob is None:
        return None, student
    own, to_student = trace.teacher_top_prob[index], trace.teacher_top_student_prob[index]
    return table(trace.teacher_top[index], own, to_student, ("teacher", "student")), student


def strongest(trace: TokenTrace, measure: str) -> int:
    """The place of the largest absolute value; 0 where there is none."""
    values = values_of(trace, measure) or []
    known = [(abs(value), -index) for index, value in enumerate(values) if value is not None]
    return -max(known)[1] if known else 0


def added(student_prompt: str, teacher_prompt: str) -> tuple[str, str, str]:
    """The teacher's prompt in three parts: what it shares before, what it has more, what it shares after."""
    start = 0
    for a, b in zip(student_prompt, teacher_prompt, strict=False):
        if a != b:
            break
        start += 1
    most = min(len(student_prompt), len(teacher_prompt)) - start
    end = 0
    while end < most and student_prompt[-1 - end] == teacher_prompt[-1 - end]:
        end += 1
    stop = len(teacher_prompt) - end
    # Of the equal ways to place the difference the earliest: it begins and ends where markers do, not inside them.
    while start and start < stop and teacher_prompt[start - 1] == teacher_prompt[stop - 1]:
        start, stop = start - 1, stop - 1
    return teacher_prompt[:start], teacher_prompt[start:stop], teacher_prompt[stop:]


def token_table(trace: TokenTrace) -> pd.DataFrame:
    """One row a token, for a spreadsheet."""
    columns: Mapping[str, Any] = {
        "place": range(len(trace.tokens)),
        "token_id": trace.token_ids,
        "token": trace.tokens,
        "student_logprob": trace.student_logprob,
        "student_entropy": trace.student_entropy,
        "teacher_logprob": trace.teacher_logprob,
        "teacher_entropy": trace.teacher_entropy,
        "forward_kl": trace.forward_kl,
        "divergence": trace.divergence,
        "weight": trace.weight,
    }
    return pd.DataFrame({name: values for name, values in columns.items() if values is not None})


def as_json(trace: TokenTrace, facts: Mapping[str, Any]) -> str:
    """Everything stored of a trace, with the facts about it."""
    return json.dumps({**facts, **asdict(trace)}, indent=1, ensure_ascii=False, default=str)
