"""What a run carries from update to update beside its weights."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from evaluation.problems import Grade, Problem
from evaluation.samplers.base import Completion
from training.controllers import Controllers
from training.method import Method
from training.rollouts import Rollout

BUFFERS = "buffers"
"""Name of the checkpoint's file with the buffered rollouts' tokens."""

_LOGPROBS, _PROMPTS, _RESPONSES = "logprobs", "prompts", "responses"


@dataclass(slots=True)
class TrainingState:
    """Changed in place by ``run_update``."""

    controllers: Controllers
    problems_drawn: int = 0
    """Places of the training order that were used: where the next batch begins."""
    shifts: dict[str, float] = field(default_factory=dict)
    """Preference term -> its running shift δ."""
    buffers: dict[str, list[Rollout]] = field(default_factory=dict)
    """Phase with rollouts "since_last" -> the rollouts since it last ran."""

    @classmethod
    def initial(cls, method: Method) -> TrainingState:
        buffered = [name for name, phase in method.phases.items() if phase.rollouts == "since_last"]
        return cls(Controllers(method), buffers={name: [] for name in buffered})

    def to_json(self) -> dict[str, Any]:
        return {
            "controllers": self.controllers.state(),
            "problems_drawn": self.problems_drawn,
            "shifts": dict(self.shifts),
            "buffers": {phase: [_description(rollout) for rollout in rows] for phase, rows in self.buffers.items()},
        }

    def tensors(self) -> dict[str, Tensor]:
        """The token ids and log-probabilities of the buffers, packed; empty without buffered rollouts."""
        packed: dict[str, Tensor] = {}
        for phase, rows in self.buffers.items():
            if rows:
                prompts = [token for rollout in rows for token in rollout.prompt_ids]
                responses = [token for rollout in rows for token in rollout.completion.token_ids]
                logprobs = [value for rollout in rows for value in rollout.completion.logprobs]
                packed[f"{_PROMPTS}/{phase}"] = torch.tensor(prompts, dtype=torch.int64)
                packed[f"{_RESPONSES}/{phase}"] = torch.tensor(responses, dtype=torch.int64)
                packed[f"{_LOGPROBS}/{phase}"] = torch.tensor(logprobs, dtype=torch.float64)
        return packed

    def load(self, saved: Mapping[str, Any], tensors: Mapping[str, Tensor], problems: Sequence[Problem]) -> None:
        """Takes over what ``to_json`` and ``tensors`` gave. Raises ValueError where it is of another method or data."""
        if set(saved["buffers"]) != set(self.buffers):
            raise ValueError(f"the state buffers for phases {sorted(saved['buffers'])}, not {sorted(self.buffers)}")
        self.controllers.load_state(saved["controllers"])
        self.problems_drawn = saved["problems_drawn"]
        self.shifts = dict(saved["shifts"])
        by_id = {problem.id: problem for problem in problems}
        self.buffers = {phase: _rollouts(phase, rows, tensors, by_id) for phase, rows in saved["buffers"].items()}


def _description(rollout: Rollout) -> dict[str, Any]:
    return {
        "problem": rollout.problem.id,
        "group": rollout.group,
        "prompt_tokens": len(rollout.prompt_ids),
        "tokens": len(rollout.completion.token_ids),
        "finish_reason": rollout.completion.finish_reason,
        "text": rollout.text,
        "grade": None if rollout.grade is None else rollout.grade.model_dump(mode="json"),
        "reward": rollout.reward,
        "update": rollout.update,
        "index": rollout.index,
        "critiques": dict(rollout.critiques),
    }


def _rollouts(
    phase: str, rows: Sequence[Mapping[str, Any]], tensors: Mapping[str, Tensor], problems: Mapping[str, Problem]
) -> list[Rollout]:
    if not rows:
        return []
    prompts, responses, logprobs = (tensors[f"{name}/{phase}"].tolist() for name in (_PROMPTS, _RESPONSES, _LOGPROBS))
    found, prompt_at, token_at = [], 0, 0
    for row in rows:
        if row["problem"] not in problems:
            raise ValueError(f"the state buffers a rollout of problem {row['problem']!r}, which is no training problem")
        prompt_end, token_end = prompt_at + row["prompt_tokens"], token_at + row["tokens"]
        found.append(
            Rollout(
                problem=problems[row["problem"]],
                group=row["group"],
                prompt_ids=tuple(prompts[prompt_at:prompt_end]),
                completion=Completion(
                    tuple(responses[token_at:token_end]), tuple(logprobs[token_at:token_end]), row["finish_reason"]
                ),
                text=row["text"],
                grade=None if row["grade"] is None else Grade.model_validate(row["grade"]),
                reward=row["reward"],
                update=row["update"],
                index=row["index"],
                critiques=row["critiques"],
            )
        )
        prompt_at, token_at = prompt_end, token_end
    return found
