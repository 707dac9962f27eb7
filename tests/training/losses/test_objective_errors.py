"""Inputs that contradict each other are errors that name the term or the view."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn

from tests.training.losses.ragged import Ragged, ragged
from training.method import (
    CrossEntropy,
    Distill,
    Importance,
    PolicyGradient,
    Preference,
    SampledKL,
    TowardStudent,
    UsdSoft,
)
from training.objective import Denominators, ObjectiveResult, Term, TokenBatch, objective
from training.schedules import Linear


def run(data: Ragged, terms: dict[str, Term], **changes: Any) -> ObjectiveResult:
    """The objective on the batch of ``terms`` with ``changes`` made to it."""
    batch = replace(data.for_terms(terms), **changes)
    return objective(terms, batch, data.hidden, data.heads, chunk_tokens=5)


def test_terms_and_views() -> None:
    data = ragged(seed=19)
    n = len(data.batch.ids)
    d: dict[str, Term] = {"masked": Distill()}
    with pytest.raises(ValueError, match="at least one term"):
        data.run({})
    with pytest.raises(ValueError, match="term 'masked' teaches view 'pupil'"):
        data.run({"masked": Distill(of="pupil")})
    with pytest.raises(ValueError, match="view 'coach'"):
        data.run({"masked": Distill(against="coach")})
    with pytest.raises(ValueError, match="view 'coach'"):
        data.run({"masked": SampledKL(against="coach", temperature=1.0)})
    with pytest.raises(ValueError, match="against itself"):
        data.run({"masked": Distill(against="student")})
    with pytest.raises(ValueError, match=rf"mask of term 'masked' must be bool \[{n}\]"):
        run(data, d, mask={"masked": torch.ones(n)})
    with pytest.raises(ValueError, match="masks for terms that do not exist"):
        run(data, {"typo": Distill()}, mask=data.batch.mask)
    with pytest.raises(ValueError, match="weight values for terms that do not exist"):
        run(data, d, weight={"typo": torch.ones(n)})
    with pytest.raises(ValueError, match=f"'teacher' has {n - 1} hidden states for {n}"):
        replace(data, teacher=data.teacher[1:]).run(d)
    with pytest.raises(ValueError, match=r"Method\.terms_of"):
        data.run({"masked": Distill(temperature="sampling")}, denominators=Denominators.of(d, data.batch, 9))


def test_a_schedule_is_not_a_number() -> None:
    data = ragged(seed=19)
    schedule = Linear(start=0.0, end=1.0, updates=3)
    for term in (
        Distill(coefficient=schedule),
        Distill(mix=TowardStudent(share=schedule)),
        Distill(weighting=UsdSoft(price=schedule)),
    ):
        with pytest.raises(ValueError, match=r"not a number: take terms from Method\.at"):
            data.run({"masked": term})


def test_counts() -> None:
    data = ragged(seed=19)
    d: dict[str, Term] = {"masked": Distill()}
    with pytest.raises(ValueError, match="denominators lack term 'masked'"):
        data.run(d, denominators=Denominators({}, {}, 9))
    with pytest.raises(ValueError, match="count over all micro-batches"):
        data.run(d, denominators=Denominators({"masked": 1.0}, {"masked": 4.0}, 9))
    with pytest.raises(ValueError, match="'constant', which needs"):
        data.run({"masked": Distill(reduction="constant")})
    with pytest.raises(ValueError, match="max_new_tokens differ"):
        _ = Denominators({}, {}, 9) + Denominators({}, {}, 8)


def test_counts_of_weights() -> None:
    data = ragged(seed=19, weighted=True)
    d: dict[str, Term] = {"masked": Distill()}
    true = data.counts(d)
    with pytest.raises(ValueError, match="do not hold their sum"):
        data.run(d, denominators=replace(true, weights={}))
    with pytest.raises(ValueError, match=r"weights of .* add up over all"):
        data.run(d, denominators=replace(true, weights={"masked": true.weights["masked"] / 2}))
    with pytest.raises(ValueError, match=r"weights of .* add up over all"):
        data.run(d, denominators=replace(true, weighted_sequences={"masked": 1.0}))
    usd: dict[str, Term] = {"masked": Distill(weighting=UsdSoft(), reduction="sequence_mean")}
    with pytest.raises(ValueError, match=r"measure them first \(objective\.weigh\)"):
        data.run(usd, denominators=data.counts(usd))
    # Counts of one side with weights and one without add up as if the plain side had weight 1.
    plain = Denominators({"masked": 5.0}, {"masked": 2.0}, 9)
    for total in (plain + true, true + plain):
        assert total.weights == {"masked": 5.0 + true.weights["masked"]}
        assert total.weighted_sequences == {"masked": 2.0 + true.weighted_sequences["masked"]}


def test_what_a_term_reads() -> None:
    data = ragged(seed=19)
    n = len(data.batch.ids)
    reward: dict[str, Term] = {"masked": PolicyGradient(temperature=1.0)}
    with pytest.raises(ValueError, match="'masked' is a policy gradient"):
        run(data, reward, advantage={})
    with pytest.raises(ValueError, match="advantage of term 'masked' is nan at token 0"):
        run(data, reward, advantage={"masked": torch.full((n,), torch.nan)})
    with pytest.raises(ValueError, match=rf"advantage of term 'masked' must be \[{n}\]"):
        run(data, reward, advantage={"masked": torch.zeros(n + 1)})
    with pytest.raises(ValueError, match="old_logprobs at temperature 1"):
        run(data, reward, old_logprobs={0.7: data.old_logprobs})
    with pytest.raises(ValueError, match="carries no sampler_logprobs"):
        run(data, {"masked": Distill(sampler_importance_clip=2.0)}, sampler_logprobs=None)
    with pytest.raises(ValueError, match="old_logprobs at temperature 1"):
        run(data, {"masked": Distill(importance=Importance())}, old_logprobs={})
    with pytest.raises(ValueError, match="carries no slope"):
        run(data, {"masked": Preference(of="student", against="teacher", temperature=1.0)}, slope={})
    with pytest.raises(ValueError, match="carries no labels"):
        run(data, {"masked": CrossEntropy(data="rollouts", labels="references")}, labels={})
    with pytest.raises(ValueError, match="carries no toward_student"):
        run(data, {"masked": Distill(mix=TowardStudent())}, toward_student={})
    with pytest.raises(ValueError, match=r"weight of term 'masked' is -1\.0 at token 0"):
        run(data, {"masked": Distill()}, weight={"masked": -torch.ones(n)})


def test_kept_values_that_do_not_exist() -> None:
    data = ragged(seed=19)
    d: dict[str, Term] = {"masked": Distill(), "x": CrossEntropy()}
    for name in ("divergence/typo", "divergence/x", "difficulty/x", "entropy/coach", "logprob/student@-1"):
        with pytest.raises(ValueError, match="no per-token values"):
            data.run(d, keep=frozenset({name}))
    with pytest.raises(ValueError, match=r"difficulty is asked for \['x'\]"):
        data.run(d, difficulty=frozenset({"x"}))


def test_an_id_the_student_cannot_produce_is_an_error() -> None:
    logits = torch.tensor([[0.0, -torch.inf]])
    zero = torch.zeros(1, dtype=torch.long)
    batch = TokenBatch(torch.tensor([1]), zero, zero, {})
    with pytest.raises(ValueError, match="probability 0 to a response token"):
        objective({"x": CrossEntropy()}, batch, {"student": logits}, {"student": nn.Identity()}, chunk_tokens=1)
