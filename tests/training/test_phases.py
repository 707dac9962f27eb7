"""Phases, passes and draws of an update on a small model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch

from evaluation.problems import Grade, Problem
from tests.training.small import (
    addition_problems,
    grade,
    graded_by,
    gradients,
    ragged_problems,
    small_method,
    small_trainer,
)
from training.batches import ViewBatch
from training.method import Entropy, Method, PhaseStartWeights, SampledKL, View, override, override_all
from training.methods import METHODS
from training.rollouts import rollout_seed
from training.spec import ComputeSpec
from training.state import TrainingState
from training.update import Trainer, UpdateResult, run_update

DISTILL = "phases.student.terms.distill"
SELF_CRITIQUE = {"kind": "self_critique", "max_new_tokens": 4}


def judged(problem: Problem, text: str) -> Grade:
    """Passes by the text's length, and says something of every failure."""
    return grade(float(len(text) % 2)).model_copy(update={"feedback": "1"})


def trainer_of(method: Method, **how: Any) -> Trainer:
    return small_trainer(method, benchmark=graded_by(judged), **how)


def without_step(trainer: Trainer, problems: list[Problem], update: int = 1) -> tuple[UpdateResult, list[float]]:
    """An update that leaves its gradients where they can be read, and the scales it asked for."""
    scales: list[float] = []

    def step(phase: str, *, gradient_scale: float = 1.0) -> dict[str, float]:
        scales.append(gradient_scale)
        return {"grad_norm": 0.0, "learning_rate": 0.0}

    trainer.learner.step = step  # type: ignore[method-assign]
    return run_update(trainer, update, problems), scales


def counted_forwards(trainer: Trainer) -> list[tuple[str, bool]]:
    """Filled with (weights, graph recorded) of every forward of the learner."""
    calls: list[tuple[str, bool]] = []
    plain = trainer.learner.hidden

    def hidden(weights: Any, batch: ViewBatch, *, grad: bool) -> torch.Tensor:
        calls.append((weights.kind, grad))
        return plain(weights, batch, grad=grad)

    trainer.learner.hidden = hidden  # type: ignore[method-assign]
    return calls


# --- passes ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("key", ["tip", "paint_style", "rlsd"])
def test_one_micro_batch_is_looked_at_once_by_each_view(key: str) -> None:
    method = small_method(key, {"batch.step_prompts": None})
    trainer = trainer_of(method, compute=ComputeSpec(micro_batch_rows=64))
    calls = counted_forwards(trainer)

    run_update(trainer, 1, addition_problems(trainer.method.batch.prompts))

    assert len(calls) == 2 and sum(grad for _, grad in calls) == 1


def test_several_micro_batches_keep_the_teachers_states_between_the_passes() -> None:
    trainer = trainer_of(small_method("tip"), compute=ComputeSpec(micro_batch_rows=1))
    calls = counted_forwards(trainer)

    result = run_update(trainer, 1, addition_problems(3))

    assert sorted(calls) == [("frozen", False)] * 3 + [("student", False)] * 3 + [("student", True)] * 3
    student = sum(len(r.prompt_ids) + len(r.completion.token_ids) for r in result.rollouts)
    read = result.cost["flop"] / trainer.learner.parameters
    assert read == 2 * student + 2 * result.cost["teacher_tokens"] + (2 + 6) * student  # drawn, teacher, two passes


def test_a_method_that_needs_no_statistics_makes_no_pass_for_them() -> None:
    trainer = trainer_of(small_method("opsd"), compute=ComputeSpec(micro_batch_rows=1))
    calls = counted_forwards(trainer)

    run_update(trainer, 1, addition_problems(3))

    assert sorted(calls) == [("frozen", False)] * 3 + [("student", True)] * 3


@pytest.mark.parametrize("kind", ["usd_soft", "usd_hard"])
@pytest.mark.parametrize("rows", [1, 64])
def test_scaling_by_the_weights_afterwards_is_measuring_them_first(kind: str, rows: int) -> None:
    """Alone USD's term is scaled once by 1/Σw; beside another term (here of coefficient 0) Σw is measured first."""
    weighting = {"kind": kind, "price": 0.3}
    alone = small_method("usd", {f"{DISTILL}.weighting": weighting, f"{DISTILL}.entry_clip": None})
    spread = Entropy(coefficient=0.0).model_dump()
    terms = {**alone.model_dump()["phases"]["student"]["terms"], "spread": spread}
    beside = override(alone, "phases.student.terms", terms)
    problems = ragged_problems(3)
    compute = ComputeSpec(micro_batch_rows=rows, head_chunk_tokens=5)

    first, second = trainer_of(alone, compute=compute), trainer_of(beside, compute=compute)
    scaled, scales = without_step(first, problems)
    measured, ones = without_step(second, problems)

    assert ones == [1.0] and scales[0] != 1.0
    assert scaled.metrics["loss"] == pytest.approx(measured.metrics["loss"], rel=1e-5)
    assert scaled.metrics["load/distill"] == pytest.approx(measured.metrics["load/distill"], rel=1e-5)
    for name, gradient in gradients(second).items():
        torch.testing.assert_close(gradients(first)[name] * scales[0], gradient, rtol=1e-4, atol=1e-6)


def test_usd_weights_under_a_constant_divisor_are_measured_first() -> None:
    """The number of sequences with a weight is not known before the pass: Σ w·g / (sequences · max_new_tokens)."""
    weighting = {"kind": "usd_hard", "price": 0.3}
    changes = {f"{DISTILL}.weighting": weighting, f"{DISTILL}.entry_clip": None}
    constant = run_update(
        trainer_of(small_method("usd", {**changes, f"{DISTILL}.reduction": "constant"})), 1, ragged_problems(3)
    )
    mean = run_update(trainer_of(small_method("usd", changes)), 1, ragged_problems(3))

    tokens = sum(len(rollout.completion.token_ids) for rollout in mean.rollouts)
    weight = mean.metrics["weight/distill"]
    assert weight is not None and mean.metrics["loss"] is not None and weight > 0
    assert constant.metrics["loss"] == pytest.approx(mean.metrics["loss"] * weight * tokens / (3 * 9), rel=1e-5)


# --- every term --------------------------------------------------------------------------------------------------

TERMS = [
    (key, phase, name)
    for key, method in METHODS.items()
    for phase, content in method.phases.items()
    for name, term in content.terms.items()
    if getattr(term, "estimator", None) != "k1"
]


@pytest.mark.parametrize(("key", "phase", "name"), TERMS)
def test_each_term_alone_has_a_gradient_and_a_metric_of_it(key: str, phase: str, name: str) -> None:
    method = small_method(key, {"batch.groups": "all", "reward.truncated": "keep"})  # most are cut off at 9 tokens
    if getattr(method.phases[phase].terms[name], "token_clip", None) is not None:
        method = override(method, f"phases.{phase}.terms.{name}.token_clip", None)  # a clipped token has no gradient
    method = override_all(
        method,
        {
            f"phases.{p}.terms.{n}.coefficient": float((p, n) == (phase, name))
            for p, content in method.phases.items()
            for n in content.terms
        },
    )
    trainer = trainer_of(method)
    # A reference KL has gradient 0 where nothing was learned yet: the student is moved away first.
    with torch.no_grad():
        for parameter in trainer.learner.student.parameters():  # type: ignore[attr-defined]
            parameter += 0.05 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(1))
    update = method.phases[phase].every

    result = run_update(trainer, update, addition_problems(method.batch.prompts))

    norm = result.metrics.get(f"grad_norm/{phase}", result.metrics["grad_norm"])
    assert norm is not None and norm > 1e-7
    assert (result.metrics[f"logit_gradient/{name}"] or 0) > 0
    assert result.metrics[f"kept/{name}"] is not None


def test_the_loss_is_the_sum_of_its_terms() -> None:
    method = small_method("sdpg_urkl", {"phases.student.terms.reference_kl.coefficient": 0.7})

    metrics = run_update(trainer_of(method), 30, addition_problems(2)).metrics

    terms = method.at(30).phases["student"].terms
    total = sum(float(term.coefficient) * (metrics[f"loss/{name}"] or 0.0) for name, term in terms.items())  # type: ignore[arg-type]
    assert metrics["loss"] == pytest.approx(total, rel=1e-5, abs=1e-7)


# --- nothing to learn from ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("key", [key for key, method in METHODS.items() if method.uses_rollouts()])
def test_a_batch_that_nothing_scores_does_not_break_an_update(key: str) -> None:
    trainer = small_trainer(small_method(key), benchmark=graded_by(lambda problem, text: grade(None)))

    result = run_update(trainer, 5, addition_problems(trainer.method.batch.prompts))

    assert all(value is None or abs(value) < float("inf") for value in result.metrics.values())
    if key in {"grpo", "dr_grpo", "rlsd", "sdpo_science", "vpd"}:
        assert result.metrics["loss"] == 0 and result.metrics["grad_norm"] == 0


def test_a_phase_without_rows_takes_no_step() -> None:
    trainer = small_trainer(small_method("dapo"), benchmark=graded_by(lambda problem, text: grade(1.0)))
    before = [p.detach().clone() for p in trainer.learner.student.parameters()]  # type: ignore[attr-defined]

    result = run_update(trainer, 1, addition_problems(2))

    assert result.metrics["loss"] is None and "grad_norm" not in result.metrics
    assert result.metrics["groups_dropped"] == 2 and result.cost["rollout_tokens"] > 0
    after = trainer.learner.student.parameters()  # type: ignore[attr-defined]
    assert all(torch.equal(old, new) for old, new in zip(before, after, strict=True))


# --- draws -------------------------------------------------------------------------------------------------------


def batches_of(problems: Sequence[Problem], size: int) -> Callable[[], list[Problem]]:
    starts = iter(range(0, len(problems), size))

    def more() -> list[Problem]:
        start = next(starts)
        return list(problems[start : start + size])

    return more


def test_groups_of_equal_scores_are_replaced_and_charged() -> None:
    problems = addition_problems(8)
    flat = {problems[index].id for index in (0, 3)}
    calls: list[str] = []

    def judge(problem: Problem, text: str) -> Grade:
        calls.append(problem.id)
        return grade(0.0 if problem.id in flat else float(calls.count(problem.id) % 2))

    method = small_method("dapo", {"batch.max_draws": 4, "batch.group_size": 2})
    trainer = small_trainer(method, benchmark=graded_by(judge))

    result = run_update(trainer, 1, problems[:2], more=batches_of(problems[2:], 2))

    # Drawn: 0 (flat), 1, then 2, 3 (flat): groups 1 and 2 are two, and no third batch is drawn.
    assert result.metrics["draws"] == 2 and result.metrics["groups_dropped"] == 2
    assert [problem.id for problem in result.problems] == [problem.id for problem in problems[:4]]
    assert [rollout.index for rollout in result.rollouts] == list(range(8))
    lengths = [len(rollout.completion.token_ids) for rollout in result.rollouts]
    assert result.cost["rollout_tokens"] == sum(lengths)
    assert result.metrics["tokens_dropped"] == sum(lengths[:2]) + sum(lengths[6:])
    assert result.cost["trained_tokens"] == sum(lengths[2:6])


def test_draws_end_at_their_most_and_what_was_found_is_used() -> None:
    problems = addition_problems(6)
    calls: list[str] = []

    def judge(problem: Problem, text: str) -> Grade:
        calls.append(problem.id)
        return grade(float(problem.id == problems[3].id and calls.count(problem.id) == 1))

    method = small_method("dapo", {"batch.max_draws": 3, "reward.truncated": "keep"})
    trainer = small_trainer(method, benchmark=graded_by(judge))

    result = run_update(trainer, 1, problems[:2], more=batches_of(problems[2:], 2))

    assert result.metrics["draws"] == 3 and result.metrics["groups_dropped"] == 5
    assert (result.metrics["grad_norm"] or 0) > 0


def test_further_draws_never_repeat_a_seed() -> None:
    seeds: list[int] = []
    trainer = small_trainer(small_method("dapo"), benchmark=graded_by(lambda problem, text: grade(0.0)))
    plain = trainer.learner.sampler()

    class Spy:
        def sample(self, requests: Any, params: Any) -> Any:
            seeds.extend(request.seed for request in requests)
            return plain.sample(requests, params)

    trainer.learner.sampler = lambda weights: Spy()  # type: ignore[method-assign]
    run_update(trainer, 3, addition_problems(2), more=batches_of(addition_problems(6)[2:], 2))

    assert seeds == [rollout_seed(0, 3, index) for index in range(3 * 2 * 2)]


def test_critiques_are_drawn_counted_and_shown() -> None:
    method = small_method("vpd", {"views.teacher.context": SELF_CRITIQUE})
    trainer = trainer_of(method)

    result = run_update(trainer, 1, addition_problems(2))

    assert 0 < result.cost["auxiliary_tokens"] <= 4 * 4
    assert any("teacher" in shown for shown in result.contexts)
    assert result.metrics["context/teacher"] == sum("teacher" in shown for shown in result.contexts) / 4


def test_a_teacher_that_draws_sees_its_context() -> None:
    method = small_method("seq_kd")
    trainer = trainer_of(method)
    view = method.views[method.rollout_view]
    assert method.rollout_view != "student"

    result = run_update(trainer, 1, addition_problems(3))

    for rollout in result.rollouts:
        plain = trainer.renderer.student_ids(rollout.problem)
        assert (rollout.prompt_ids == plain) == (view.context.kind == "none")
    assert "sampler_logprob_gap" not in result.metrics


# --- buffers and steps -------------------------------------------------------------------------------------------


def test_a_phase_learns_from_all_rollouts_since_it_last_ran() -> None:
    method = small_method("vpd", {"phases.teacher.every": 3, "views.teacher.context": "solution"})
    trainer = trainer_of(method)
    state = TrainingState.initial(method)
    seen: list[int] = []

    for update in range(1, 7):
        result = run_update(trainer, update, addition_problems(2), state)
        tokens = sum(len(rollout.completion.token_ids) for rollout in result.rollouts)
        seen.append(tokens)
        buffered = sum(seen[update - update % 3 : update]) if update % 3 else 0
        assert sum(len(r.completion.token_ids) for r in state.buffers["teacher"]) == buffered
        own = tokens + (sum(seen[update - 3 : update]) if update % 3 == 0 else 0)
        assert result.cost["trained_tokens"] == own
        assert ("loss/preference" in result.metrics) == (update % 3 == 0)


def test_buffered_groups_of_different_updates_stay_apart() -> None:
    """A peer's success is looked for among the rollouts of one update, though problems come again."""
    method = small_method("vpd", {"phases.teacher.every": 2, "views.teacher.context": "peer_success"})
    passes = {1: 1.0, 2: 0.0}
    now = {"update": 1}
    trainer = small_trainer(method, benchmark=graded_by(lambda problem, text: grade(passes[now["update"]])))
    state = TrainingState.initial(method)

    run_update(trainer, 1, addition_problems(2), state)
    now["update"] = 2
    result = run_update(trainer, 2, addition_problems(2), state)

    # Of the 8 buffered rollouts those of update 1 have a peer; update 2's have none and take no part.
    assert result.metrics["kept/preference"] == 0.5


def test_the_prior_of_the_e_step_is_the_student_of_that_moment() -> None:
    """Weights of the prior and the teacher agree when the phase begins: with equal prompts r̃ is 0 and L = 2 log 2."""
    method = small_method("vpd", {"phases.teacher.every": 1, "views.teacher.context": "none"})

    metrics = run_update(trainer_of(method), 1, addition_problems(2)).metrics

    classes = 2 if 0 < (metrics["pass_rate"] or 0) < 1 else 1
    assert metrics["loss/preference"] == pytest.approx(classes * 0.6931471805599453, abs=1e-4)


def test_the_optimiser_steps_once_for_each_part_of_a_batch() -> None:
    method = small_method("grpo", {"batch.prompts": 4, "batch.step_prompts": 2})
    trainer = trainer_of(method)
    phases: list[str] = []
    plain = trainer.learner.step

    def step(phase: str, *, gradient_scale: float = 1.0) -> Any:
        phases.append(phase)
        return plain(phase, gradient_scale=gradient_scale)

    trainer.learner.step = step  # type: ignore[method-assign]
    result = run_update(trainer, 1, addition_problems(4))

    assert phases == ["student", "student"] and result.metrics["optimiser_steps/student"] == 2
    assert result.metrics["ratio/reward"] is not None and result.metrics["ratio/reward"] != 1.0


def test_phase_start_weights_stay_while_a_phase_takes_several_steps() -> None:
    """The KL from the phase's start is 0 at its first step and not at its second; the next phase starts anew."""
    grpo = small_method("grpo", {"batch.prompts": 4})
    data = grpo.model_dump()
    drift = SampledKL(against="start", estimator="k2", coefficient=0.0).model_dump()
    views = {**data["views"], "start": View(weights=PhaseStartWeights()).model_dump()}
    terms = {**data["phases"]["student"]["terms"], "drift": drift}
    changes = {"views": views, "phases.student.terms": terms}
    one, two = (override_all(grpo, {**changes, "batch.step_prompts": size}) for size in (4, 2))

    for method, moves in ((one, False), (two, True)):
        trainer = trainer_of(method)
        for update in (1, 2):
            metrics = run_update(trainer, update, addition_problems(4)).metrics
            assert ((metrics["loss/drift"] or 0) > 1e-6) == moves


def test_the_sampler_is_compared_before_the_weights_move() -> None:
    method = small_method(
        "grpo", {"batch.prompts": 4, "batch.step_prompts": 2, "phases.student.optimiser.learning_rate": 0.1}
    )

    assert (run_update(trainer_of(method), 1, addition_problems(4)).metrics["sampler_logprob_gap"] or 0) < 1e-4


def test_averages_move_once_an_update_however_many_steps() -> None:
    changes = {
        "batch.prompts": 4,
        "batch.step_prompts": 2,
        "views.teacher.weights": {"kind": "ema", "teacher_update_rate": 0.5},
    }
    trainer = trainer_of(small_method("opsd", {"batch.prompts": 4, **changes}))
    learner: Any = trainer.learner
    start = [parameter.detach().clone() for parameter in learner.student.parameters()]

    run_update(trainer, 1, addition_problems(4))

    average = learner._model(trainer.method.views["teacher"].weights)
    for old, new, slow in zip(start, learner.student.parameters(), average.parameters(), strict=True):
        torch.testing.assert_close(slow, (old + new.detach()) / 2)


# --- who takes part ----------------------------------------------------------------------------------------------


def test_no_more_groups_are_learned_from_than_prompts() -> None:
    problems = addition_problems(6)
    calls: list[str] = []

    def judge(problem: Problem, text: str) -> Grade:
        calls.append(problem.id)
        return grade(0.0 if problem.id == problems[0].id else float(calls.count(problem.id) % 2))

    trainer = small_trainer(small_method("dapo"), benchmark=graded_by(judge))

    result = run_update(trainer, 1, problems[:2], more=batches_of(problems[2:], 2))

    # One good group, then two: three are found and the last is dropped, though it would have taught something.
    assert result.metrics["draws"] == 2 and result.metrics["groups_dropped"] == 2
    lengths = [len(rollout.completion.token_ids) for rollout in result.rollouts]
    assert result.cost["trained_tokens"] == sum(lengths[2:6])


@pytest.mark.parametrize("gate", ["all", "positive_advantage", "passed", "failed"])
def test_rollouts_that_were_not_scored_take_no_part_in_gated_terms(gate: str) -> None:
    problems = addition_problems(2)

    def judge(problem: Problem, text: str) -> Grade:
        return grade(None) if problem.id == problems[1].id else judged(problem, text)

    method = small_method("sdpg_urkl", {f"{DISTILL}.gate": gate, f"{DISTILL}.normalise": "tokens"})
    result = run_update(small_trainer(method, benchmark=graded_by(judge)), 30, problems)

    assert result.metrics["kept/distill"] == (1.0 if gate == "all" else 0.5)
    assert result.metrics["kept/reward"] == 0.5


def test_what_was_not_scored_is_no_preference() -> None:
    problems = addition_problems(2)

    def judge(problem: Problem, text: str) -> Grade:
        return grade(None) if problem.id == problems[1].id else grade(1.0)

    method = small_method("vpd", {"phases.teacher.every": 1, "views.teacher.context": "solution"})
    result = run_update(small_trainer(method, benchmark=graded_by(judge)), 1, problems)

    assert result.metrics["kept/preference"] == 0.5 and result.metrics["kept/distill"] == 1.0


def test_cut_off_responses_leave_the_policy_gradient_where_asked() -> None:
    kept = {}
    for choice in ("keep", "drop"):
        method = small_method("grpo", {"reward.truncated": choice})
        result = run_update(trainer_of(method), 1, addition_problems(2))
        kept[choice] = result.metrics["kept/reward"]

    assert kept == {"keep": 1.0, "drop": 1 - (result.metrics["truncated_fraction"] or 0)}
