"""Writes what happened in a segment's updates: rollouts with their texts, and the problems they answer."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from evaluation.problems import Problem
from evaluation.results.records import ProblemRecord, RolloutRecord
from evaluation.results.spool import Spool, write_samples
from training.rollouts import Rollout
from training.update import UpdateResult

TOKENS_PER_FILE = 1_000_000
"""Response tokens after which a samples file is written: bounds what is held in memory."""


class RolloutRecorder:
    """Collects the rollouts of one segment; records follow the file with their texts, so each finds its text.

    File names depend on the segment and on token counts only: a segment done again replaces its files.
    """

    def __init__(self, spool: Spool, run_dir: Path, run_id: str, segment: int, benchmark_version: str) -> None:
        self._spool = spool
        self._run_dir = run_dir
        self._run_id = run_id
        self._segment = segment
        self._benchmark_version = benchmark_version
        self._part = 0
        self._tokens = 0
        self._rows: list[dict[str, Any]] = []
        self._records: list[RolloutRecord] = []
        self._problems: set[str] = set()

    def add(self, result: UpdateResult) -> None:
        """Takes in one update's problems and rollouts."""
        for problem in result.problems:
            self._add_problem(problem)
        for index, (rollout, contexts) in enumerate(zip(result.rollouts, result.contexts, strict=True)):
            self._records.append(self._record(result.update, index, rollout))
            self._rows.append(_row(result.update, index, rollout, contexts))
            self._tokens += len(rollout.completion.token_ids)
        if self._tokens >= TOKENS_PER_FILE:
            self._write()

    def close(self) -> None:
        """Writes what is left."""
        if self._rows:
            self._write()

    def _write(self) -> None:
        name = f"{self._segment:05d}-{self._part:03d}"
        file = write_samples(self._run_dir, "rollouts", name, self._rows)
        for row, record in enumerate(self._records):
            self._spool.append(replace(record, sample_file=file, sample_row=row))
        self._part += 1
        self._tokens, self._rows, self._records = 0, [], []

    def _record(self, update: int, index: int, rollout: Rollout) -> RolloutRecord:
        grade = rollout.grade
        assert grade is not None, "rollouts are graded before they are recorded"
        return RolloutRecord(
            run_id=self._run_id,
            update=update,
            index=index,
            problem_id=rollout.problem.id,
            weights_version=update - 1,
            prompt_tokens=len(rollout.prompt_ids),
            completion_tokens=len(rollout.completion.token_ids),
            truncated=rollout.truncated,
            verdict=grade.verdict,
            score=grade.score,
            reward=rollout.reward,
        )

    def _add_problem(self, problem: Problem) -> None:
        if problem.id in self._problems:
            return
        self._problems.add(problem.id)
        self._spool.append(
            ProblemRecord(
                run_id=self._run_id,
                benchmark=problem.benchmark,
                benchmark_version=self._benchmark_version,
                split=problem.split,
                problem_id=problem.id,
                cluster=problem.cluster,
                answer=problem.answer,
                prompt="\n\n".join(message.content for message in problem.prompt),
            )
        )


def _row(update: int, index: int, rollout: Rollout, contexts: dict[str, str]) -> dict[str, Any]:
    grade = rollout.grade
    return {
        "update": update,
        "index": index,
        "problem_id": rollout.problem.id,
        "prompt": "\n\n".join(message.content for message in rollout.problem.prompt),
        "contexts": json.dumps(contexts, ensure_ascii=False),
        "completion": rollout.text,
        "prompt_ids": list(rollout.prompt_ids),
        "token_ids": list(rollout.completion.token_ids),
        "logprobs": list(rollout.completion.logprobs),
        "finish_reason": rollout.completion.finish_reason,
        "feedback": grade.feedback if grade else None,
    }
