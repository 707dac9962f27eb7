"""Token traces: what teacher and student thought of every token of a stored answer, and the files they lie in.

A trace is one row of ``samples/traces-*.parquet``; its TraceRecord names file and row. Texts are pieces, so that a
reader needs neither tokenizer nor model.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evaluation.results.spool import read_samples, write_samples

TRACES = "traces"
"""Kind of the sample files that hold traces."""

Numbers = list[float | None]
Choices = list[list[str]]
Shares = list[list[float]]


@dataclass(frozen=True, slots=True)
class TokenTrace:
    """One answer, token by token. Lists have one entry a token; all of the teacher's are None where none looked.

    Logarithms are natural and divergences in nats, all at ``temperature`` and over the whole vocabulary unless said.
    """

    benchmark: str
    split: str
    problem_id: str
    sample_index: int
    seed: str
    """What the answer was drawn with."""
    student_prompt: str
    teacher_prompt: str | None
    """Both prompts whole, special tokens included."""
    context_kind: str
    context_text: str | None
    """The privileged text in the teacher's prompt."""
    answer: str
    feedback: str | None
    extracted: str | None
    temperature: float
    token_ids: list[int]
    tokens: list[str]
    """Pieces of text that joined are the answer, special tokens included; "" for a token inside a character."""
    student_logprob: list[float]
    student_entropy: list[float]
    student_top: Choices
    """The student's likeliest tokens, as text, most likely first."""
    student_top_prob: Shares
    """Their probabilities to the student."""
    student_top_teacher_prob: Shares | None = None
    """Their probabilities to the teacher."""
    teacher_logprob: list[float] | None = None
    teacher_entropy: list[float] | None = None
    teacher_top: Choices | None = None
    teacher_top_prob: Shares | None = None
    teacher_top_student_prob: Shares | None = None
    forward_kl: list[float] | None = None
    """KL(teacher ‖ student)."""
    divergence: Numbers | None = None
    """The method's own, on its support, its target mixed as the method mixes it, before clips and weights; None at a
    token that takes no part in the loss."""
    weight: Numbers | None = None
    """How much the method counts the token."""


def write_traces(run_dir: Path, name: str, traces: Sequence[TokenTrace]) -> str:
    """Writes the traces to ``samples/traces-<name>.parquet``; returns the path relative to ``run_dir``."""
    return write_samples(run_dir, TRACES, name, [_row(trace) for trace in traces])


def read_trace(run_dir: Path, sample_file: str, sample_row: int) -> TokenTrace:
    """The trace at one row of a file that a TraceRecord names.

    Raises FileNotFoundError for a file that is gone, ValueError for one outside ``run_dir``, without the row, or that
    holds something else.
    """
    table = read_samples(run_dir, sample_file)
    if not 0 <= sample_row < table.num_rows:
        raise ValueError(f"{sample_file} has {table.num_rows} rows and no row {sample_row}")
    row: Mapping[str, Any] = table.slice(sample_row, 1).to_pylist()[0]
    names = [field.name for field in dataclasses.fields(TokenTrace)]
    missing = [name for name in names if name not in row]
    if missing:
        raise ValueError(f"{sample_file} holds no traces: it lacks {', '.join(missing)}")
    return TokenTrace(**{name: row[name] for name in names})


def _row(trace: TokenTrace) -> dict[str, Any]:
    # Not asdict: it copies every list.
    return {field.name: getattr(trace, field.name) for field in dataclasses.fields(trace)}
