"""Stored traces against float64 values computed here from the models themselves, and against the loss's own."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from evaluation.results.spool import read_samples
from evaluation.results.traces import TokenTrace, read_trace
from evaluation.samplers.base import Completion, SamplingParams
from tests.training.sessions import cache, facts, open_session, small_run
from tests.training.small import (
    CONTEXT_LENGTH,
    NO_CLIP,
    addition_problems,
    grade,
    small_method,
    small_model,
    small_trainer,
)
from training.base_models.tokenizer import END, VOCABULARY, encode
from training.checkpoint_evaluation import evaluate_segment
from training.draws import Group
from training.learners.hf import HFLearner
from training.method import Method
from training.methods import METHODS
from training.rollouts import Rollout
from training.spec import RunSpec
from training.traces.building import Looked, looked_at
from training.traces.pieces import token_pieces
from training.traces.reading import TOP
from training.traces.teaching import teaching_of
from training.trainer import Trainer

EMA: dict[str, Any] = {"views.teacher.weights": {"kind": "ema", "teacher_update_rate": 0.3}}


def reference(model: Any, prompt: tuple[int, ...], response: tuple[int, ...]) -> Tensor:
    """[T, V] float64 log-probabilities of a whole forward pass over prompt and response."""
    double = model.__class__(model.config).eval()
    double.load_state_dict(model.state_dict())
    with torch.no_grad():
        logits = double.double()(input_ids=torch.tensor([[*prompt, *response]])).logits[0]
    return torch.log_softmax(logits[len(prompt) - 1 : -1], dim=-1)


def rollout(problem: Any, text: str, reward: float | None = 0.0, group: int = 0) -> Rollout:
    ids = (*encode(text), VOCABULARY[END])
    said = grade(reward).model_copy(update={"feedback": None})
    return Rollout(problem, group, (), Completion(ids, (0.0,) * len(ids), "stop"), text, said, reward)


def groups_of(texts: tuple[str, ...] = ("4+5=9#9", "12#12", "7")) -> list[Group]:
    problems = addition_problems(len(texts))
    return [
        Group(p, [rollout(p, text, group=place)]) for place, (p, text) in enumerate(zip(problems, texts, strict=True))
    ]


def looks_of(method: Method, trainer: Trainer, groups: list[Group]) -> list[Looked]:
    now = method.at(1, {name: {"price": 0.1, "share": 0.5} for name in method.controllers})
    return looked_at(trainer, now, 1, groups, teaching_of(now))


def moved(trainer: Trainer) -> Trainer:
    """The student no longer equals its teacher."""
    assert isinstance(trainer.learner, HFLearner)
    with torch.no_grad():
        for index, parameter in enumerate(trainer.learner.student.parameters()):
            noise = torch.randn(parameter.shape, generator=torch.Generator().manual_seed(index))
            parameter += 0.1 * noise
    return trainer


def test_values_are_those_of_the_models_in_double_precision() -> None:
    method = small_method("opsd", NO_CLIP)
    trainer = moved(small_trainer(method))
    looks = looks_of(method, trainer, groups_of())
    assert isinstance(trainer.learner, HFLearner)
    for look in looks:
        response = look.rollout.completion.token_ids
        student = reference(trainer.learner.student, look.student_prompt, response)
        assert look.teacher_prompt is not None
        teacher = reference(small_model(), look.teacher_prompt, response)
        ids, sides = torch.tensor(response)[:, None], look.sides
        expected = [
            (sides.student.logprob, student.gather(1, ids)[:, 0]),
            (sides.student.entropy, -(student.exp() * student).sum(-1)),
            (sides.forward_kl, (teacher.exp() * (teacher - student)).sum(-1)),
            (look.values["divergence"], (teacher.exp() * (teacher - student)).sum(-1)),
            (sides.student.top_prob, student.exp().topk(TOP).values),
        ]
        assert sides.teacher is not None
        expected += [
            (sides.teacher.logprob, teacher.gather(1, ids)[:, 0]),
            (sides.teacher.entropy, -(teacher.exp() * teacher).sum(-1)),
            (sides.teacher.top_prob, teacher.exp().topk(TOP).values),
            (sides.teacher.other_prob, student.exp().gather(1, teacher.topk(TOP).indices)),
            (sides.student.other_prob, teacher.exp().gather(1, student.topk(TOP).indices)),
        ]
        for found, wanted in expected:
            assert found is not None
            torch.testing.assert_close(found.double(), wanted, atol=2e-5, rtol=2e-5)
        assert torch.equal(sides.teacher.top, teacher.topk(TOP).indices)
        assert sides.forward_kl is not None
        assert float(sides.forward_kl.max()) > 0.01  # the two differ, or the comparison says nothing


def test_the_prompts_differ_by_the_context_alone() -> None:
    method = small_method("opsd")
    trainer = small_trainer(method)
    for look in looks_of(method, trainer, groups_of()):
        assert look.student_prompt == trainer.renderer.student_ids(look.rollout.problem)
        assert look.context_text == look.rollout.problem.solution
        assert look.teacher_prompt == trainer.renderer.privileged_ids(look.rollout.problem, look.context_text)


def test_the_divergence_is_the_methods_own() -> None:
    changes = {
        "phases.student.terms.distill.divergence": {"kind": "jsd", "beta": 0.3},
        "phases.student.terms.distill.skip_tokens": 1,
    }
    method = small_method("opsd", {**NO_CLIP, **changes})
    trainer = moved(small_trainer(method))
    (look, *_) = looks_of(method, trainer, groups_of())
    response = look.rollout.completion.token_ids
    assert isinstance(trainer.learner, HFLearner) and look.teacher_prompt is not None
    p = reference(small_model(), look.teacher_prompt, response).exp()
    q = reference(trainer.learner.student, look.student_prompt, response).exp()
    m = 0.3 * p + 0.7 * q
    wanted = 0.3 * (p * (p / m).log()).sum(-1) + 0.7 * (q * (q / m).log()).sum(-1)
    found = look.values["divergence"].double()
    torch.testing.assert_close(found[1:], wanted[1:], atol=2e-5, rtol=2e-5)
    assert torch.isnan(found[0]), "a token that takes no part has no divergence"
    assert float((found[1:] - look.sides.forward_kl.double()[1:]).abs().max()) > 1e-3  # type: ignore[union-attr]


def test_weights_of_usd_follow_from_its_equation() -> None:
    method = small_method("usd")
    trainer = moved(small_trainer(method))
    now = method.at(1, {name: {"price": 0.1, "share": 1.0} for name in method.controllers})
    teaching = teaching_of(now)
    assert teaching is not None
    weighting: Any = teaching.term.weighting  # type: ignore[union-attr]
    look = looked_at(trainer, now, 1, groups_of(), teaching)[0]
    response = look.rollout.completion.token_ids
    assert isinstance(trainer.learner, HFLearner) and look.teacher_prompt is not None
    teacher = reference(small_model(), look.teacher_prompt, response)
    student = reference(trainer.learner.student, look.student_prompt, response)
    best = teacher.argmax(-1, keepdim=True)
    hard = (teacher.gather(1, best) - student.gather(1, best))[:, 0].clamp(min=0)
    gain = look.values["divergence"].double() - 0.1 * hard
    wanted = torch.sigmoid(gain / weighting.sharpness) if weighting.kind == "usd_soft" else (gain > 0).double()
    torch.testing.assert_close(look.values["weight"].double(), wanted, atol=2e-4, rtol=2e-4)


@pytest.mark.parametrize("key", ["grpo", "sft"])
def test_methods_without_a_teacher_show_the_student_alone(key: str) -> None:
    method = small_method(key)
    trainer = moved(small_trainer(method))
    for look in looks_of(method, trainer, groups_of()):
        assert look.reason == "the method has no teacher"
        assert look.sides.teacher is None and look.sides.forward_kl is None and not look.values
        assert isinstance(trainer.learner, HFLearner)
        response = look.rollout.completion.token_ids
        wanted = reference(trainer.learner.student, look.student_prompt, response)
        found = look.sides.student.logprob.double()
        torch.testing.assert_close(found, wanted.gather(1, torch.tensor(response)[:, None])[:, 0], atol=2e-5, rtol=2e-5)


def test_why_no_teacher_looked() -> None:
    method = small_method("opsd")
    trainer = small_trainer(method)
    first, second, third = groups_of()
    bare = first.problem.model_copy(update={"solution": None})
    strange = second.problem.model_copy(update={"solution": "7 × 8"})
    long = third.problem.model_copy(update={"solution": "9" * CONTEXT_LENGTH})
    groups = [Group(p, [rollout(p, "3", group=g)]) for g, p in enumerate((bare, strange, long, first.problem))]
    reasons = [look.reason for look in looks_of(method, trainer, groups)]
    assert reasons[0] == "the problem has no solution to show"
    assert reasons[1] is not None and "no token for" in reasons[1]
    assert reasons[2] is not None and "exceed the model's 128 positions" in reasons[2]
    assert reasons[3] is None


def test_a_peer_is_another_answer_of_the_same_problem() -> None:
    method = small_method(next(key for key in METHODS if key.startswith("sdpo")))
    trainer = small_trainer(method)
    problem, other = addition_problems(2)
    groups = [
        Group(problem, [rollout(problem, "1"), rollout(problem, "2+2=4", 1.0)]),
        Group(other, [rollout(other, "3", group=1)]),
    ]
    with_peer, alone = looks_of(method, trainer, groups)
    assert with_peer.context_text is not None and "2+2=4" in with_peer.context_text
    assert alone.teacher_prompt is None and alone.reason is not None and "needs peers" in alone.reason


@pytest.mark.parametrize("key", list(METHODS))
def test_looking_changes_nothing(key: str) -> None:
    method = small_method(key)
    trainer = moved(small_trainer(method))
    before = {f"{file}/{n}": t.clone() for file, named in trainer.learner.state().items() for n, t in named.items()}
    torch.manual_seed(5)
    first = looks_of(method, trainer, groups_of())
    drawn = torch.rand(1)
    torch.manual_seed(5)
    assert torch.equal(drawn, torch.rand(1)), "the global generator is not read"
    after = {f"{file}/{n}": t for file, named in trainer.learner.state().items() for n, t in named.items()}
    assert before.keys() == after.keys() and all(torch.equal(before[name], after[name]) for name in before)
    again = looks_of(method, trainer, groups_of())
    assert all(torch.equal(a.sides.student.logprob, b.sides.student.logprob) for a, b in zip(first, again, strict=True))


# --- of an evaluation -----------------------------------------------------------------------------------------------


def small(key: str, traced: int, changes: dict[str, Any] | None = None, samples: int = 1) -> RunSpec:
    spec = small_run(key, {**NO_CLIP, **(changes or {})} if key == "opsd" else changes)
    sampling = SamplingParams(max_new_tokens=12, temperature=1.0 if samples > 1 else 0)
    evaluation = spec.evaluation.model_copy(update={"trace_problems": traced, "samples": samples, "sampling": sampling})
    return spec.model_copy(update={"evaluation": evaluation})


def trained_and_evaluated(spec: RunSpec, run_dir: Path) -> None:
    for segment in (1, 2):
        with closing(open_session(spec, run_dir, attempt=segment)) as session:
            session.run_segment(segment)
        evaluate_segment(spec, run_dir.name, run_dir, segment, cache=cache(), benchmarks_root=None, attempt=segment)


def stored(run_dir: Path) -> list[tuple[dict[str, Any], TokenTrace]]:
    records = facts(run_dir, "trace")
    return [(record, read_trace(run_dir, record["sample_file"], record["sample_row"])) for record in records]


def test_a_run_with_traces_is_the_run_without(tmp_path: Path) -> None:
    for name, traced in (("with", 8), ("without", 0)):
        trained_and_evaluated(small("opsd", traced, EMA), tmp_path / name)
    for kind in ("step", "rollout", "answer", "grade", "evaluation"):
        assert facts(tmp_path / "with", kind) == facts(tmp_path / "without", kind)
    files = {name: {f.name: f for f in (tmp_path / name / "samples").iterdir()} for name in ("with", "without")}
    plain = [name for name in files["with"] if not name.startswith("traces-")]
    assert sorted(plain) == sorted(files["without"])
    assert all(files["with"][name].read_bytes() == files["without"][name].read_bytes() for name in plain)
    weights = [(tmp_path / name / "checkpoints/00002/student.safetensors").read_bytes() for name in files]
    assert weights[0] == weights[1]
    assert len(facts(tmp_path / "with", "trace")) == 12 and not facts(tmp_path / "without", "trace")


def test_stored_traces_fit_the_answers_and_the_checkpoint(tmp_path: Path) -> None:
    spec = small("opsd", 4, EMA)
    trained_and_evaluated(spec, tmp_path / "run")
    answers = {(a["update"], a["problem_id"]): a for a in facts(tmp_path / "run", "answer")}
    grades = {g["answer_key"]: g for g in facts(tmp_path / "run", "grade")}
    found = stored(tmp_path / "run")
    assert [(r["update"], r["teacher"], r["context"]) for r, _ in found] == [
        (update, "ema 0.3", "solution") for update in (2, 4) for _ in range(4)
    ]
    for record, trace in found:
        answer = answers[record["update"], record["problem_id"]]
        rows = read_samples(tmp_path / "run", answer["sample_file"]).to_pylist()
        text = rows[answer["sample_row"]]
        assert trace.token_ids == text["token_ids"] and "".join(trace.tokens).removesuffix(END) == text["completion"]
        # Greedy answers report their probabilities at temperature 1, which is the term's.
        assert trace.temperature == 1.0
        assert trace.student_logprob == pytest.approx(text["logprobs"], abs=2e-4)
        key = f"{record['update']}/addition/test/{record['problem_id']}/0"
        assert record["verdict"] == grades[key]["verdict"] and record["tokens"] == len(trace.token_ids)
        assert trace.forward_kl is not None and trace.divergence is not None
        assert record["mean_forward_kl"] == pytest.approx(sum(trace.forward_kl) / len(trace.tokens))
        assert trace.teacher_prompt is not None and trace.context_text is not None
        assert trace.context_text in trace.teacher_prompt and trace.context_text not in trace.student_prompt
        assert trace.student_top[0] and len(trace.student_top[0]) == TOP


def test_the_untrained_model_is_traced_without_a_teacher(tmp_path: Path) -> None:
    spec = small("opsd", 2).model_copy(update={"method": None, "data": None})
    evaluate_segment(spec, "base", tmp_path / "base", None, cache=cache(), benchmarks_root=None, attempt=1)
    found = stored(tmp_path / "base")
    assert [record["note"] for record, _ in found] == ["the method has no teacher"] * 2
    assert all(trace.teacher_logprob is None and trace.context_kind == "none" for _, trace in found)


# --- pieces ---------------------------------------------------------------------------------------------------------


class Bytes:
    """A byte-level tokenizer: id = byte."""

    def decode(self, ids: list[int], **how: Any) -> str:
        return bytes(ids).decode("utf-8", errors="replace")


@pytest.mark.parametrize("text", ["plain", "a½b€c😀d", " lead\n\ttail ", "😀"])
def test_pieces_join_to_the_text(text: str) -> None:
    tokenizer: Any = Bytes()
    pieces = token_pieces(tokenizer, list(text.encode()))
    assert "".join(pieces) == text and len(pieces) == len(text.encode())
    assert [piece for piece in pieces if piece] == list(text)


def test_bytes_that_are_no_text_are_shown_as_such() -> None:
    tokenizer: Any = Bytes()
    assert "".join(token_pieces(tokenizer, [0x61, 0xFF, 0x62, 0xE2])) == "a\ufffdb\ufffd"
