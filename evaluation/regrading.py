"""Grading stored answers again with the graders as they are now. Nothing is generated; old grades stay as facts."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from evaluation.benchmarks.base import Benchmark
from evaluation.grading.batch import grade_many
from evaluation.problems import Grade, Problem, Split
from evaluation.recording import grade_record
from evaluation.results.spool import Spool, read_samples
from evaluation.results.store import Store

if TYPE_CHECKING:
    import duckdb

ROLE = "regrader"
ANSWERS_AT_ONCE = 2048
"""Answers graded and recorded together: what a crash may cost."""


class RegradeError(ValueError):
    """Stored answers that cannot be graded again; the message names the run and the reason."""


@dataclass(frozen=True, slots=True)
class StoredAnswer:
    """One stored answer with the grade that counts now."""

    run_id: str
    key: str
    problem_id: str
    split: Split
    sample_file: str
    sample_row: int
    verdict: str
    grader: str | None
    version: str | None


@dataclass(frozen=True, slots=True)
class Regrading:
    """What a regrading found, run by run and in all."""

    benchmark: str
    answers: int
    runs: int
    changed: Mapping[tuple[str, str], int]
    """(verdict before, verdict now) -> answers."""
    graders: Sequence[str]
    """Graders with their versions, as they are now."""
    recorded: int
    """Grades written: those that differ from the one that counted in verdict, grader or version."""


def stored_answers(con: duckdb.DuckDBPyConnection, benchmark: str, run_ids: Sequence[str]) -> list[StoredAnswer]:
    """The answers of the runs on ``benchmark`` in the order of run, update, problem and sample."""
    rows = con.execute(
        """
        SELECT run_id, answer_key, problem_id, split, sample_file, sample_row, verdict, grader, version
        FROM graded_answers WHERE benchmark = ? AND list_contains(?, run_id)
        ORDER BY run_id, update, split, problem_id, sample_index
        """,
        [benchmark, list(run_ids)],
    ).fetchall()
    return [StoredAnswer(*row) for row in rows]


def regrade(
    store: Path,
    benchmark: Benchmark,
    answers: Sequence[StoredAnswer],
    problems: Mapping[tuple[str, str], Problem],
    *,
    dry_run: bool,
    progress: Callable[[int], None] = lambda done: None,
) -> Regrading:
    """Grade ``answers`` with ``benchmark`` as it is now, and append the grades that differ to the runs' spools.

    ``problems`` by (split, id). ``dry_run`` writes nothing. Recorded part by part: after a crash the same call does the
    rest. Raises RegradeError for an answer whose problem or text is not there any more.
    """
    changed: Counter[tuple[str, str]] = Counter()
    graders: set[str] = set()
    recorded = 0
    for start in range(0, len(answers), ANSWERS_AT_ONCE):
        part = answers[start : start + ANSWERS_AT_ONCE]
        texts = _texts(store, part)
        pairs = [(_problem(benchmark, problems, answer), text) for answer, text in zip(part, texts, strict=True)]
        grades = grade_many(benchmark, pairs)
        fresh: dict[str, list[tuple[StoredAnswer, Grade]]] = defaultdict(list)
        for answer, grade in zip(part, grades, strict=True):
            graders.add(f"{grade.grader} {grade.version}")
            if answer.verdict != grade.verdict:
                changed[answer.verdict, grade.verdict] += 1
            if (answer.verdict, answer.grader, answer.version) != (grade.verdict, grade.grader, grade.version):
                fresh[answer.run_id].append((answer, grade))
        recorded += sum(map(len, fresh.values()))
        if not dry_run:
            _record(store, fresh)
        progress(start + len(part))
    runs = len({answer.run_id for answer in answers})
    return Regrading(benchmark.name, len(answers), runs, dict(changed), sorted(graders), recorded)


def _texts(store: Path, answers: Sequence[StoredAnswer]) -> list[str]:
    wanted: dict[tuple[str, str], list[int]] = defaultdict(list)
    for index, answer in enumerate(answers):
        wanted[answer.run_id, answer.sample_file].append(index)
    texts = [""] * len(answers)
    for (run_id, file), indices in wanted.items():
        try:
            completions = read_samples(Store(store).runs / run_id, file).column("completion").to_pylist()
        except (OSError, ValueError, KeyError) as error:
            raise RegradeError(f"run {run_id}: the texts in {file} cannot be read ({error})") from error
        for index in indices:
            texts[index] = completions[answers[index].sample_row] or ""
    return texts


def _problem(benchmark: Benchmark, problems: Mapping[tuple[str, str], Problem], answer: StoredAnswer) -> Problem:
    problem = problems.get((answer.split, answer.problem_id))
    if problem is None:
        raise RegradeError(
            f"run {answer.run_id}: {benchmark.name} has no problem {answer.problem_id!r} in its {answer.split} split "
            "any more: its data or version changed"
        )
    return problem


def _record(store: Path, fresh: Mapping[str, Sequence[tuple[StoredAnswer, Grade]]]) -> None:
    for run_id, pairs in fresh.items():
        with Spool(Store(store).runs / run_id, role=ROLE, attempt=1) as spool:
            for answer, grade in pairs:
                spool.append(grade_record(run_id, answer.key, grade))
            spool.flush()
