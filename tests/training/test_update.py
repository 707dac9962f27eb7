from __future__ import annotations

from typing import Any

import pytest
import torch

from evaluation.problems import Grade, Problem
from tests.training.small import (
    NO_CLIP,
    FixedSampler,
    addition_problems,
    grade,
    graded_by,
    gradients,
    ragged_problems,
    small_method,
    small_model,
    small_renderer,
    small_trainer,
)
from training.base_models.tokenizer import END, VOCABULARY
from training.batches import ContextOverflowError, ViewBatch
from training.learners.base import NonFiniteGradientError
from training.learners.hf import HFLearner
from training.method import Adapter, Method
from training.spec import ComputeSpec
from training.update import Trainer, UpdateResult, run_update

SECONDS = {"t_generate", "t_verify", "t_teacher", "t_train", "t_sync"}
DISTILL = "phases.student.terms.distill"


def _without_step(trainer: Trainer, problems: list[Problem]) -> UpdateResult:
    """An update that leaves its gradients where they can be read."""

    def step(phase: str, *, gradient_scale: float = 1.0) -> dict[str, float]:
        return {"grad_norm": 0.0, "learning_rate": 0.0}

    trainer.learner.step = step  # type: ignore[method-assign]
    return run_update(trainer, 1, problems)


def _gradients_of(method: Method, problems: list[Problem], **how: Any) -> dict[str, torch.Tensor]:
    trainer = small_trainer(method, **how)
    _without_step(trainer, problems)
    return gradients(trainer)


def _passes_every_second(problem: Problem, text: str) -> Grade:
    return grade(float(len(text) % 2))


@pytest.mark.parametrize("temperature", [0.5, 1.0])
@pytest.mark.parametrize("key", ["opsd", "opsd_v1"])
def test_teacher_without_context_is_the_student_at_the_first_update(key: str, temperature: float) -> None:
    method = small_method(key, {"views.teacher.context": "none", "sampling.temperature": temperature})
    trainer = small_trainer(method)

    result = run_update(trainer, 1, ragged_problems(3))

    divergence = next(value for name, value in result.metrics.items() if name.startswith("divergence/distill/"))
    assert divergence == pytest.approx(0, abs=1e-6)
    assert result.metrics["grad_norm"] == pytest.approx(0, abs=1e-5)


def test_the_solution_makes_teacher_and_student_differ() -> None:
    result = run_update(small_trainer(small_method("opsd", NO_CLIP)), 1, ragged_problems(3))

    assert (result.metrics["divergence/distill/forward_kl_exact"] or 0) > 0.1


def test_divergence_is_that_of_two_plain_forwards() -> None:
    method = small_method("opsd", {**NO_CLIP, "sampling.temperature": 0.7, "sampling.max_new_tokens": 5})
    model, renderer, problems = small_model(), small_renderer(), ragged_problems(3)

    result = run_update(small_trainer(method, model), 1, problems)

    divergences = []
    for rollout in result.rollouts:
        response = list(rollout.completion.token_ids)
        logs = []
        for prompt in (renderer.privileged_ids(rollout.problem, rollout.problem.solution), rollout.prompt_ids):
            logits = model(input_ids=torch.tensor([[*prompt, *response]])).logits[0].double()
            logs.append(torch.log_softmax(logits[len(prompt) - 1 : -1] / 0.7, dim=-1))
        teacher, student = logs
        divergences += (teacher.exp() * (teacher - student)).sum(-1).tolist()
    assert result.metrics["loss"] == pytest.approx(sum(divergences) / len(divergences), rel=1e-5)


@pytest.mark.parametrize("key", ["sft", "grpo", "opsd", "opsd_v1"])
def test_gradients_reach_every_student_parameter_and_nothing_else(key: str) -> None:
    model = small_model()
    before = {name: parameter.clone() for name, parameter in model.named_parameters()}
    trainer = small_trainer(small_method(key), model, benchmark=graded_by(_passes_every_second))

    _without_step(trainer, addition_problems(trainer.method.batch.prompts))

    found = gradients(trainer)
    assert set(found) == set(before)
    assert sum(float(gradient.square().sum()) for gradient in found.values()) > 0
    assert all(parameter.grad is None for parameter in model.parameters())
    assert all(torch.equal(before[name], parameter) for name, parameter in model.named_parameters())


@pytest.mark.parametrize("key", ["sft", "grpo", "opsd", "opsd_v1"])
@pytest.mark.parametrize("rows", [1, 3])
def test_micro_batches_add_up_to_the_whole_batch(key: str, rows: int) -> None:
    method = small_method(key, {"batch.prompts": 4})
    benchmark = graded_by(_passes_every_second)
    problems = [
        problem.model_copy(update={"solution": (problem.solution or "")[: 5 + 3 * index]})
        for index, problem in enumerate(ragged_problems(4))
    ]

    def compute(micro_batch_rows: int) -> ComputeSpec:
        return ComputeSpec(micro_batch_rows=micro_batch_rows, head_chunk_tokens=7)

    whole = _gradients_of(method, problems, compute=compute(64), benchmark=benchmark)
    parts = _gradients_of(method, problems, compute=compute(rows), benchmark=benchmark)

    for name, gradient in whole.items():
        torch.testing.assert_close(parts[name], gradient, rtol=1e-4, atol=1e-6)


def test_padding_changes_nothing() -> None:
    """A row beside a much longer one gives the gradient it gives alone (at a constant denominator)."""
    constant = {**NO_CLIP, f"{DISTILL}.reduction": "constant"}
    short, long = ragged_problems(5)[0], addition_problems(7)[6]
    end = VOCABULARY[END]
    responses = [(20, 21, end), tuple(range(20, 29))]

    def gradient(problems: list[Problem], drawn: list[tuple[int, ...]], rows: int) -> dict[str, torch.Tensor]:
        method = small_method("opsd", {**constant, "batch.prompts": len(problems)})
        trainer = small_trainer(method, compute=ComputeSpec(micro_batch_rows=rows))
        sampler = FixedSampler(drawn)
        trainer.learner.sampler = lambda weights: sampler  # type: ignore[method-assign]
        _without_step(trainer, problems)
        return gradients(trainer)

    together = gradient([short, long], responses, 2)
    first, second = (gradient([problem], [ids], 1) for problem, ids in zip((short, long), responses, strict=True))
    for name, value in together.items():
        torch.testing.assert_close(value * 2, first[name] + second[name], rtol=1e-4, atol=1e-6)


def test_prompts_are_outside_the_loss() -> None:
    """With states that depend on the response alone, another prompt changes nothing."""
    renderer = small_renderer()

    def loss(problems: list[Problem]) -> float:
        trainer = small_trainer(small_method("sft"))
        learner = trainer.learner
        assert isinstance(learner, HFLearner)
        table = torch.randn(len(VOCABULARY), 32, generator=torch.Generator().manual_seed(1))

        def hidden(weights: object, batch: ViewBatch, *, grad: bool) -> torch.Tensor:
            return table[batch.ids[batch.rows, batch.columns + 1]].requires_grad_(grad)

        learner.hidden = hidden  # type: ignore[method-assign]
        return _without_step(trainer, problems).metrics["loss"] or 0.0

    problems = addition_problems(3)
    other = [problem.model_copy(update={"prompt": problem.prompt}) for problem in ragged_problems(3)]
    other = [p.model_copy(update={"solution": q.solution}) for p, q in zip(other, problems, strict=True)]
    assert renderer.student_ids(problems[0]) != renderer.student_ids(other[0])
    assert loss(problems) == loss(other)


@pytest.mark.parametrize("temperature", [0.7, 1.0, 1.3])
def test_sampler_and_learner_agree_on_ragged_prompts(temperature: float) -> None:
    method = small_method("grpo", {"sampling.temperature": temperature, "batch.prompts": 5})

    result = run_update(small_trainer(method, benchmark=graded_by(_passes_every_second)), 1, ragged_problems(5))

    assert len({len(rollout.prompt_ids) for rollout in result.rollouts}) > 1
    assert (result.metrics["sampler_logprob_gap"] or 0) < 1e-4
    assert result.metrics["ratio/reward"] == pytest.approx(1, abs=1e-6)


def test_a_shift_by_one_is_loud(monkeypatch: pytest.MonkeyPatch) -> None:
    def shifted(self: ViewBatch, hidden: torch.Tensor) -> torch.Tensor:
        return hidden[self.rows, self.columns + 1]

    monkeypatch.setattr(ViewBatch, "gather", shifted)

    result = run_update(small_trainer(small_method("opsd")), 1, ragged_problems(3))

    assert (result.metrics["sampler_logprob_gap"] or 0) > 0.1


def test_sampled_ids_are_trained_on_though_their_text_would_give_others() -> None:
    # The tokenizer skips special tokens on decoding: [4, hint, 5, end] reads "45", which encodes to [4, 5].
    hint, end = VOCABULARY["<|hint|>"], VOCABULARY[END]
    drawn = [(VOCABULARY["4"], hint, VOCABULARY["5"], end)] * 3
    trainer = small_trainer(small_method("opsd"))
    trainer.learner.sampler = lambda weights: FixedSampler(drawn)  # type: ignore[method-assign]
    seen: list[torch.Tensor] = []
    plain = trainer.learner.hidden

    def spy(weights: Any, batch: ViewBatch, *, grad: bool) -> torch.Tensor:
        seen.append(batch.ids[batch.rows, batch.columns + 1])
        return plain(weights, batch, grad=grad)

    trainer.learner.hidden = spy  # type: ignore[method-assign]
    result = _without_step(trainer, addition_problems(3))

    assert [rollout.text for rollout in result.rollouts] == ["45"] * 3
    assert len(seen) == 2 and all(labels.tolist() == list(drawn[0]) * 3 for labels in seen)


def test_the_end_token_is_learned_where_pad_is_the_end_token() -> None:
    renderer = small_renderer()
    renderer.pad_id = renderer.end_id
    trainer = small_trainer(small_method("sft", {"batch.prompts": 2}), renderer=renderer)
    problems = [p.model_copy(update={"solution": s}) for p, s in zip(addition_problems(2), ("1", "12345"), strict=True)]

    result = _without_step(trainer, problems)

    model = small_model()
    losses = []
    for problem in problems:
        prompt, response = renderer.student_ids(problem), renderer.reference_ids(problem.solution or "")
        assert response[-1] == renderer.end_id
        logs = torch.log_softmax(model(input_ids=torch.tensor([[*prompt, *response]])).logits[0].double(), dim=-1)
        losses += [-float(logs[len(prompt) - 1 + t, token]) for t, token in enumerate(response)]
    assert len(losses) == 8
    assert result.metrics["loss"] == pytest.approx(sum(losses) / 8, rel=1e-5)


@pytest.mark.parametrize("score", [0.0, 1.0])
def test_a_group_of_equal_rewards_gives_no_gradient(score: float) -> None:
    trainer = small_trainer(small_method("grpo"), benchmark=graded_by(lambda problem, text: grade(score)))

    result = run_update(trainer, 1, addition_problems(2))

    assert result.metrics["grad_norm"] == 0
    assert result.metrics["reward_mean"] == score


def test_rollouts_that_were_not_scored_leave_reward_terms_only() -> None:
    def never(problem: Problem, text: str) -> Grade:
        return grade(None)

    rewarded = run_update(small_trainer(small_method("grpo"), benchmark=graded_by(never)), 1, addition_problems(2))
    distilled = run_update(small_trainer(small_method("opsd"), benchmark=graded_by(never)), 1, addition_problems(3))

    assert rewarded.metrics["unscored_rate"] == distilled.metrics["unscored_rate"] == 1
    assert rewarded.metrics["grad_norm"] == 0 and rewarded.metrics["loss/reward"] is None
    assert (distilled.metrics["grad_norm"] or 0) > 0


def test_an_unscored_rollout_does_not_dilute_the_others() -> None:
    """Two scored rollouts beside two unscored ones give the gradient they give alone."""
    end = VOCABULARY[END]
    drawn = [(20, 21, end), (22, end), (23, 24, 25, end), (26, end)]
    first, second = addition_problems(2)

    def judge(problem: Problem, text: str) -> Grade:
        return grade(None if problem.id == second.id else float(len(text) == 1))

    def gradient(problems: list[Problem]) -> dict[str, torch.Tensor]:
        method = small_method("grpo", {"batch.prompts": len(problems)})
        trainer = small_trainer(method, benchmark=graded_by(judge))
        trainer.learner.sampler = lambda weights: FixedSampler(drawn)  # type: ignore[method-assign]
        _without_step(trainer, problems)
        return gradients(trainer)

    alone, beside = gradient([first]), gradient([first, second])
    assert sum(float(value.square().sum()) for value in alone.values()) > 0
    for name, value in alone.items():
        torch.testing.assert_close(beside[name], value, rtol=1e-4, atol=1e-7)


def test_a_masked_row_is_not_seen_and_not_learned(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a context is None, the teacher does not run on the row and the row has no part in the term."""
    import training.views

    plain = training.views.build_contexts
    problems = ragged_problems(3)

    def masks_the_second(context: Any, rows: Any, *rest: Any) -> Any:
        built = plain(context, rows, *rest)
        return [built[0], None, built[2]] if context.kind == "solution" else built

    end = VOCABULARY[END]
    drawn: list[tuple[int, ...]] = [(20, 21, end), (22, end), (23, 24, 25, end)]

    def result(chosen: list[Problem], responses: list[tuple[int, ...]], **how: Any) -> UpdateResult:
        trainer = small_trainer(small_method("opsd", {**NO_CLIP, "batch.prompts": len(chosen)}), **how)
        trainer.learner.sampler = lambda weights: FixedSampler(responses)  # type: ignore[method-assign]
        return _without_step(trainer, chosen)

    kept = result([problems[0], problems[2]], [drawn[0], drawn[2]])
    monkeypatch.setattr(training.views, "build_contexts", masks_the_second)
    masked = result(problems, drawn)
    one_by_one = result(problems, drawn, compute=ComputeSpec(micro_batch_rows=1))

    assert masked.cost["teacher_tokens"] == one_by_one.cost["teacher_tokens"] == kept.cost["teacher_tokens"]
    assert masked.metrics["loss"] == pytest.approx(kept.metrics["loss"], rel=1e-5)
    assert one_by_one.metrics["loss"] == pytest.approx(kept.metrics["loss"], rel=1e-5)


def test_the_control_shows_the_next_problems_solution() -> None:
    method = small_method("opsd", {"views.teacher.context": "other_problem"})
    problems = addition_problems(3)

    result = run_update(small_trainer(method), 1, problems)

    assert [contexts["teacher"] for contexts in result.contexts] == [
        problems[1].solution,
        problems[2].solution,
        problems[0].solution,
    ]


def test_a_gradient_that_is_not_finite_is_refused_and_the_weights_stay() -> None:
    trainer = small_trainer(small_method("opsd"))
    learner = trainer.learner
    assert isinstance(learner, HFLearner)
    before = {name: parameter.detach().clone() for name, parameter in learner.student.named_parameters()}
    norm: Any = learner.student.get_submodule("model.norm")
    norm.weight.register_hook(lambda gradient: gradient * float("nan"))

    with pytest.raises(
        NonFiniteGradientError, match=r"'student', optimiser step 1: .* is nan .*model\.norm\.weight.*weights"
    ):
        run_update(trainer, 7, addition_problems(3))

    for name, parameter in learner.student.named_parameters():
        assert torch.equal(before[name], parameter)
        assert parameter.grad is None


def test_truncation_is_refused_with_the_problem_and_its_length() -> None:
    trainer = small_trainer(small_method("opsd"))
    problem = addition_problems(3)[1].model_copy(update={"solution": "1" * 200})
    problems = [addition_problems(3)[0], problem, addition_problems(3)[2]]

    with pytest.raises(ContextOverflowError, match=rf"problem '{problem.id.replace('+', '[+]')}': prompt of \d+"):
        run_update(trainer, 1, problems)


def test_costs_are_counted_by_hand() -> None:
    end = VOCABULARY[END]
    drawn = [(20, 21, end), (22, end), (23, 24, 25, end)]
    trainer = small_trainer(small_method("opsd"))
    trainer.learner.sampler = lambda weights: FixedSampler(drawn)  # type: ignore[method-assign]

    result = run_update(trainer, 1, addition_problems(3))

    # A question has 7 characters and 3 special tokens, the context 1 + 31 tokens more; the responses are 9 tokens.
    parameters = sum(parameter.numel() for parameter in small_model().parameters())
    student, teacher = 3 * 10 + 9, 3 * 42 + 9
    assert result.cost["rollout_tokens"] == result.cost["trained_tokens"] == 9
    assert result.cost["reference_tokens"] == 0
    assert result.cost["teacher_tokens"] == teacher
    assert result.cost["flop"] == parameters * (2 * student + 6 * student + 2 * teacher)
    assert result.cost["wall_seconds"] > 0 and result.cost["gpu_seconds"] == 0
    assert result.metrics["completion_tokens_mean"] == 3
    assert set(result.metrics) >= SECONDS


def test_an_adapters_flop_leave_out_the_gradients_of_frozen_weights() -> None:
    end = VOCABULARY[END]
    method = small_method("opsd").model_copy(update={"adapter": Adapter(rank=2, alpha=4)})
    trainer = small_trainer(method)
    trainer.learner.sampler = lambda weights: FixedSampler([(20, end)] * 3)  # type: ignore[method-assign]

    result = run_update(trainer, 1, addition_problems(3))

    base = sum(parameter.numel() for parameter in small_model().parameters())
    assert isinstance(trainer.learner, HFLearner)
    learning = [p for p in trainer.learner.student.parameters() if p.requires_grad]
    adapter = sum(parameter.numel() for parameter in learning)
    student, teacher = 3 * 10 + 6, result.cost["teacher_tokens"]
    assert 0 < adapter < base
    assert result.cost["flop"] == (base + adapter) * (2 * student + 4 * student + 2 * teacher) + adapter * 2 * student


def test_references_are_charged_as_references() -> None:
    result = run_update(small_trainer(small_method("sft")), 1, addition_problems(3))

    assert result.rollouts == []
    assert result.cost["reference_tokens"] == result.cost["trained_tokens"] == 3 * 32
    assert "rollout_tokens" not in result.cost and "reward_mean" not in result.metrics


def test_an_average_reports_its_half_life() -> None:
    method = small_method("opsd", {"views.teacher.weights": {"kind": "ema", "teacher_update_rate": 0.05}})

    result = run_update(small_trainer(method), 1, addition_problems(3))

    # 0.95^h = ½
    assert result.metrics["half_life/teacher"] == pytest.approx(13.5134, abs=1e-4)


def test_two_sources_in_one_step() -> None:
    """A distillation term on rollouts and a cross-entropy anchor on references share one backward."""
    method = small_method("opsd", NO_CLIP)
    data = method.model_dump()
    data["phases"]["student"]["terms"]["anchor"] = {"kind": "cross_entropy", "coefficient": 0.5}
    both = Method.model_validate(data)
    problems = addition_problems(3)

    summed = _gradients_of(both, problems)
    distill, anchor = _gradients_of(method, problems), _gradients_of(small_method("sft"), problems)

    for name, value in summed.items():
        torch.testing.assert_close(value, distill[name] + 0.5 * anchor[name], rtol=1e-4, atol=1e-6)


def test_distillation_on_references_needs_no_rollouts() -> None:
    method = small_method("opsd", {**NO_CLIP, f"{DISTILL}.data": "references"})

    result = run_update(small_trainer(method), 1, addition_problems(3))

    assert result.rollouts == []
    assert result.cost["reference_tokens"] == 3 * 32 and result.cost["teacher_tokens"] == 3 * (42 + 32)
    assert (result.metrics["divergence/distill/forward_kl_exact"] or 0) > 0.1
    assert (result.metrics["grad_norm"] or 0) > 0


def test_bf16_computes_the_same_up_to_its_rounding() -> None:
    end = VOCABULARY[END]
    drawn = [(20, 21, end), (22, end), (23, 24, 25, end)]
    results = []
    for precision in ("float32", "bfloat16_autocast"):
        trainer = small_trainer(small_method("opsd", NO_CLIP), compute=ComputeSpec(precision=precision))
        trainer.learner.sampler = lambda weights: FixedSampler(drawn)  # type: ignore[method-assign]
        result = _without_step(trainer, addition_problems(3))
        results.append((result.metrics["loss"], torch.cat([g.flatten().double() for g in gradients(trainer).values()])))

    (exact, gradient), (rounded, approximate) = results
    assert rounded == pytest.approx(exact, rel=0.03) and rounded != exact
    assert float(torch.nn.functional.cosine_similarity(gradient, approximate, dim=0)) > 0.99


def test_the_same_update_twice_is_the_same_to_the_bit() -> None:
    def run() -> tuple[UpdateResult, dict[str, torch.Tensor]]:
        trainer = small_trainer(small_method("opsd"), seed=5)
        result = run_update(trainer, 1, ragged_problems(3))
        assert isinstance(trainer.learner, HFLearner)
        return result, trainer.learner.state()["student"]

    (first, weights), (second, again) = run(), run()

    assert [rollout.completion for rollout in first.rollouts] == [rollout.completion for rollout in second.rollouts]
    timeless = [{name: value for name, value in r.metrics.items() if name not in SECONDS} for r in (first, second)]
    assert timeless[0] == timeless[1]
    assert all(torch.equal(weights[name], again[name]) for name in weights)
