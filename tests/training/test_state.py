from __future__ import annotations

import json
import math

import pytest

from evaluation.samplers.base import Completion
from tests.training.small import addition_problems, grade, small_method
from training.rollouts import Rollout
from training.state import TrainingState

METHOD = small_method("vpd")
PROBLEMS = addition_problems(3)


def _rollout(place: int, tokens: int, score: float | None) -> Rollout:
    ids = tuple(range(place, place + tokens))
    return Rollout(
        problem=PROBLEMS[place],
        group=place,
        prompt_ids=(1,) * (place + 2),
        completion=Completion(ids, tuple(-math.pi * token for token in ids), "length" if place else "stop"),
        text="7",
        grade=grade(score),
        reward=None if score is None else score - 0.1,
        update=4,
        index=place,
        critiques={"teacher": "5"} if place else {},
    )


def test_a_state_comes_back_through_text_and_tensors() -> None:
    state = TrainingState.initial(METHOD)
    state.problems_drawn, state.shifts = 12, {"preference": 0.1 + 0.2}
    state.buffers["teacher"] = [_rollout(0, 3, 1.0), _rollout(1, 1, None), _rollout(2, 5, 0.0)]

    again = TrainingState.initial(METHOD)
    again.load(json.loads(json.dumps(state.to_json())), state.tensors(), PROBLEMS)

    assert again.buffers == state.buffers
    assert (again.problems_drawn, again.shifts) == (12, {"preference": 0.1 + 0.2})


def test_an_empty_buffer_needs_no_file() -> None:
    state = TrainingState.initial(METHOD)

    assert state.tensors() == {}
    state.load(state.to_json(), {}, PROBLEMS)
    assert state.buffers == {"teacher": []}


def test_states_of_other_methods_and_data_are_refused() -> None:
    state = TrainingState.initial(METHOD)
    state.buffers["teacher"] = [_rollout(2, 2, 1.0)]
    saved, tensors = state.to_json(), state.tensors()

    with pytest.raises(ValueError, match="is no training problem"):
        TrainingState.initial(METHOD).load(saved, tensors, PROBLEMS[:2])
    with pytest.raises(ValueError, match=r"buffers for phases \['teacher'\], not \[\]"):
        TrainingState.initial(small_method("opsd")).load(saved, tensors, PROBLEMS)
    with pytest.raises(ValueError, match=r"holds controllers \[\], this method has \['usd'\]"):
        TrainingState.initial(small_method("usd")).load({**saved, "buffers": {}}, {}, PROBLEMS)
