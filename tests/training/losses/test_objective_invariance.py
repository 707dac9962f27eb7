"""What must not change a loss, a gradient or a metric: chunks, micro-batches, padding, unused tokens, other terms."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.training.losses.every_part import MIXED
from tests.training.losses.ragged import Ragged, gradient_of, ragged
from tests.training.losses.reference import ReferenceTerm
from training.method import CrossEntropy, Distill, PolicyGradient, Reduction, ReverseKL
from training.objective import Denominators, ObjectiveResult, Term, weigh

REDUCTIONS: list[Reduction] = ["token_mean", "sequence_mean", "constant"]
WEIGHTED = pytest.mark.parametrize("weighted", [False, True], ids=["plain", "weighted"])


def gradients(data: Ragged, result: ObjectiveResult) -> tuple[Tensor, Tensor]:
    result.loss.backward()
    return gradient_of(data.student), gradient_of(data.head.weight)


def everything(data: Ragged, terms: Mapping[str, Term] = MIXED, **options: Any) -> tuple[float, Tensor, Tensor]:
    options.setdefault("denominators", data.counts(terms))
    result = data.run(terms, **options)
    return (float(result.loss.detach()), *gradients(data, result))


@WEIGHTED
def test_terms_add_up(weighted: bool) -> None:
    data = ragged(seed=6, weighted=weighted)
    whole = everything(data)
    counts = data.counts(MIXED)
    parts = [everything(data, {name: term}, denominators=counts) for name, term in MIXED.items()]
    assert whole[0] == pytest.approx(sum(part[0] for part in parts), rel=1e-12)
    for index in (1, 2):
        torch.testing.assert_close(whole[index], sum(part[index] for part in parts), rtol=1e-10, atol=1e-14)


@WEIGHTED
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_chunk_size_does_not_matter(dtype: torch.dtype, weighted: bool) -> None:
    data = ragged(seed=7, dtype=dtype, lengths=(4, 1, 7, 3, 20), weighted=weighted, spread=0.7)
    tolerance = 1e-12 if dtype == torch.float64 else 3e-6
    counts = data.counts(MIXED)
    whole = everything(data, chunk_tokens=1000, denominators=counts)
    for chunk_tokens in (1, 2, 7, 34):
        parts = everything(data, chunk_tokens=chunk_tokens, denominators=counts)
        assert parts[0] == pytest.approx(whole[0], rel=tolerance)
        for index in (1, 2):
            torch.testing.assert_close(parts[index], whole[index], rtol=tolerance, atol=tolerance)


@WEIGHTED
@pytest.mark.parametrize(
    "groups", [[[s] for s in range(8)], [[0, 1, 2, 3, 4, 5, 6, 7]], [[5], [0, 7, 2], [1, 3], [4, 6]]], ids=str
)
def test_micro_batches_add_up_to_the_batch(groups: list[list[int]], weighted: bool) -> None:
    """Eight ragged sequences in one go, one by one, and in uneven parts: same loss, gradients and metrics."""
    data = ragged(seed=8, lengths=(4, 1, 7, 3, 12, 2, 2, 9), weighted=weighted)
    data.batch.mask["masked"][data.batch.sequence == 6] = False  # a sequence with nothing kept for this term
    counts = data.counts(MIXED)
    whole = data.run(MIXED, denominators=counts)
    by_hidden, by_weight = gradients(data, whole)
    parts = [
        (rows, data.rows(rows))
        for group in groups
        for rows in [torch.cat([(data.batch.sequence == s).nonzero().squeeze(-1) for s in sorted(group)])]
    ]
    own = [part.counts(MIXED) for _, part in parts]
    assert_same_counts(sum(own[1:], own[0]), counts)
    loss, sums = 0.0, dict.fromkeys(whole.metrics, (0.0, 0.0))
    for rows, part in parts:
        result = part.run(MIXED, denominators=counts)
        result.loss.backward()
        loss += result.loss.item()
        torch.testing.assert_close(gradient_of(part.student), by_hidden[rows], rtol=1e-10, atol=1e-15)
        for name, (numerator, denominator) in result.metrics.items():
            sums[name] = (sums[name][0] + numerator, sums[name][1] + denominator)
    assert loss == pytest.approx(whole.loss.item(), rel=1e-12)
    torch.testing.assert_close(gradient_of(data.head.weight), by_weight, rtol=1e-10, atol=1e-14)
    for name, pair in whole.metrics.items():
        assert sums[name] == pytest.approx(pair, rel=1e-9, abs=1e-12), name


def assert_same_counts(first: Denominators, second: Denominators) -> None:
    assert first.max_new_tokens == second.max_new_tokens
    for field in ("tokens", "sequences", "weights", "weighted_sequences"):
        assert getattr(first, field) == pytest.approx(getattr(second, field), rel=1e-12), field


@WEIGHTED
def test_measured_weights_equal_those_found_in_the_same_pass(weighted: bool) -> None:
    """USD's weights from a pass before, or found in the chunk: same loss, gradient, and loss metric."""
    terms = {name: MIXED[name] for name in ("soft", "hard")}
    data = ragged(seed=9, weighted=weighted)
    counts = data.counts(terms)
    assert counts.weights["soft"] < counts.tokens["soft"]
    at_once, before = (data.run(terms, weighed=weighed, denominators=counts) for weighed in (False, True))
    assert at_once.loss.item() == pytest.approx(before.loss.item(), rel=1e-12)
    torch.testing.assert_close(gradients(data, at_once), gradients(data, before), rtol=1e-10, atol=1e-14)
    for name in ("loss/soft", "loss/hard", "weight/soft"):
        assert at_once.metrics[name] == pytest.approx(before.metrics[name], rel=1e-12)
    # None means that the micro-batch is the whole batch: the weights are then measured inside.
    alone = {"soft": terms["soft"]}
    assert data.run(alone).loss.item() == pytest.approx(data.run(alone, denominators=counts).loss.item(), rel=1e-12)


@pytest.mark.parametrize("groups", [[[0, 1, 2, 3]], [[0], [1, 3], [2]]], ids=str)
def test_one_division_at_the_step_equals_measured_weights(groups: list[list[int]]) -> None:
    """Denominator 1 and a gradient divided by Σw of the metric: what a caller does that wants one pass alone."""
    data = ragged(seed=9, weighted=True)
    terms = {"soft": MIXED["soft"]}
    true = data.run(terms, denominators=data.counts(terms))
    expected, _ = gradients(data, true)
    whole = data.counts(terms)
    ones = replace(whole, weights={"soft": 1.0})
    gradient, total = torch.zeros_like(expected), 0.0
    loss = [0.0, 0.0]
    for group in groups:
        rows = torch.cat([(data.batch.sequence == s).nonzero().squeeze(-1) for s in group])
        part = data.rows(rows)
        result = part.run(terms, denominators=ones)
        result.loss.backward()
        gradient[rows] = gradient_of(part.student)
        total += result.metrics["weight/soft"][0]
        loss = [a + b for a, b in zip(loss, result.metrics["loss/soft"], strict=True)]
    assert loss[0] / loss[1] == pytest.approx(true.loss.item(), rel=1e-12)
    torch.testing.assert_close(gradient / total, expected, rtol=1e-10, atol=1e-14)


@pytest.mark.parametrize("garbage", [1e4, float("nan"), float("inf")])
def test_tokens_no_term_uses_are_never_looked_at(garbage: float) -> None:
    data = ragged(seed=10, weighted=True)
    used = data.batch.mask["masked"]
    assert not used.all()
    for name in MIXED:
        data.batch.mask[name] = used
    counts = data.counts(MIXED)
    clean = data.run(MIXED, denominators=counts)
    by_hidden, by_weight = gradients(data, clean)
    assert data.old_logprobs is not None and data.weight is not None
    with torch.no_grad():
        for values in (data.student, data.teacher, data.reference):
            values[~used] = garbage
    for values in (data.advantage, data.old_logprobs, data.sampler_logprobs, data.slope, data.weight):
        values[~used] = garbage
    data.batch.ids[~used] = 10**9
    data.labels[~used] = -100
    dirty = data.run(MIXED, denominators=counts)
    assert torch.equal(dirty.loss, clean.loss) and dirty.metrics == clean.metrics
    dirty_hidden, dirty_weight = gradients(data, dirty)
    assert torch.equal(dirty_hidden, by_hidden) and torch.equal(dirty_weight, by_weight)
    assert (dirty_hidden[~used] == 0).all()


def test_tokens_one_term_masks_do_not_reach_it_through_another() -> None:
    """A token only the imitation term uses carries no advantage and an id the teacher cannot produce."""
    data = ragged(seed=10)
    used = data.batch.mask["masked"]
    data.batch.mask["reward"] = used
    terms: dict[str, Term] = {
        "masked": Distill(),
        "reward": PolicyGradient(temperature=1.0),
        "imitation": CrossEntropy(),
    }
    _, by_hidden, _ = data.expected("imitation", ReferenceTerm("cross_entropy"))
    data.advantage[~used] = torch.nan
    with torch.no_grad():
        data.teacher[~used] *= 1e3
    result = data.run(terms)
    mixed, _ = gradients(data, result)
    assert torch.isfinite(result.loss) and torch.isfinite(mixed).all()
    torch.testing.assert_close(mixed[~used], by_hidden[~used])


@WEIGHTED
@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_padding_threefold_keeps_the_ranking_of_two_methods(reduction: Reduction, weighted: bool) -> None:
    data = ragged(seed=11, weighted=weighted)
    n = len(data.batch.ids)
    methods: list[Term] = [Distill(reduction=reduction), Distill(divergence=ReverseKL(), reduction=reduction)]

    def losses(of: Ragged) -> list[float]:
        return [of.run({"masked": t}, denominators=of.counts({"masked": t})).loss.item() for t in methods]

    before = losses(data)
    padding = torch.arange(3 * n) >= n
    padded = data.rows(torch.arange(n).repeat(3))
    padded.batch.mask["masked"] &= ~padding
    padded.teacher = padded.teacher * (1 + padding[:, None])
    assert losses(padded) == pytest.approx(before, rel=1e-12)


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_nothing_kept_is_loss_zero_with_a_valid_backward(reduction: Reduction) -> None:
    data = ragged(seed=12)
    data.batch.mask["masked"][:] = False
    terms: dict[str, Term] = {"masked": Distill(reduction=reduction)}
    elsewhere = Denominators({"masked": 40.0}, {"masked": 3.0}, 9)
    for counts in (data.counts(terms), elsewhere):
        result = data.run(terms, denominators=counts, keep=frozenset({"divergence/masked"}))
        assert result.loss.item() == 0.0
        by_hidden, by_weight = gradients(data, result)
        assert (by_hidden == 0).all() and (by_weight == 0).all()
        assert result.metrics["loss/masked"] == (0.0, 0.0)
        assert result.token_values["divergence/masked"].isnan().all()


@pytest.mark.parametrize("name", list(MIXED))
@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_all_weights_zero_is_loss_zero_with_gradient_zero(name: str, reduction: Reduction) -> None:
    """As when no rollout passes a gate: exactly zero for either way of counting, and no division by zero."""
    data = ragged(seed=13)
    data.weight = torch.zeros(len(data.batch.ids))
    term = MIXED[name]
    changes = [{"reduction": reduction, "normalise": normalise} for normalise in ("weights", "tokens")]
    for change in changes if hasattr(term, "reduction") else [{}]:
        terms = {name: term.model_copy(update=change)}
        result = data.run(terms, weighed=True, denominators=data.counts(terms))
        assert result.loss.item() == 0.0
        by_hidden, by_weight = gradients(data, result)
        assert (by_hidden == 0).all() and (by_weight == 0).all()
        assert result.metrics[f"weight/{name}"][0] == 0 and result.metrics[f"weight/{name}"][1] > 0


@pytest.mark.parametrize("name", list(MIXED))
def test_tokens_of_weight_zero_have_gradient_exactly_zero(name: str) -> None:
    data = ragged(seed=14, weighted=True)
    assert data.weight is not None
    terms = {name: MIXED[name]}
    batch = weigh(terms, data.for_terms(terms), data.hidden, data.heads, chunk_tokens=9)
    off = batch.term_weight(name) == 0
    assert off.any() and not off.all()
    by_hidden, _ = gradients(data, data.run(terms, weighed=True, denominators=data.counts(terms)))
    assert (by_hidden[off] == 0).all() and (by_hidden[~off] != 0).any()
