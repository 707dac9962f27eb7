"""The objective of one micro-batch: terms, hidden states and heads in; one differentiable scalar and metrics out.

    L = Σ_k coefficient_k Σ_t factor_kt · w_kt · ℓ_kt,

ℓ_kt is the loss of term k at response token t, w_kt its weight, and factor_kt comes from the term's reduction over the
*global* batch, so the losses and gradients of micro-batches and ranks add up to those of the whole batch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from training.losses.chunked import attach, run_head
from training.losses.names import parse_view_value, target_views
from training.losses.reductions import token_factors
from training.losses.token_losses import TermBlock, TokenLosses
from training.method import AnyTerm, Preference
from training.objective_checks import check_counts, check_keep, check_terms, check_views
from training.token_batch import Denominators, TokenBatch

Term = AnyTerm

__all__ = ["Denominators", "ObjectiveResult", "Term", "TokenBatch", "objective", "weigh"]


@dataclass
class ObjectiveResult:
    loss: Tensor
    """Scalar; ``backward()`` reaches the learning view's hidden states and its head's parameters, nothing else."""
    metrics: dict[str, tuple[float, float]]
    """Name -> (numerator, denominator); add both over micro-batches, then divide."""
    token_values: dict[str, Tensor]
    """Name -> [N] fp32 or wider, what ``keep`` asked for; NaN at tokens that no term uses."""


def objective(
    terms: Mapping[str, Term],
    batch: TokenBatch,
    hidden: Mapping[str, Tensor],
    heads: Mapping[str, nn.Module],
    learns: str = "student",
    denominators: Denominators | None = None,
    *,
    chunk_tokens: int,
    keep: frozenset[str] = frozenset(),
    difficulty: frozenset[str] = frozenset(),
) -> ObjectiveResult:
    """Loss, gradient and metrics of ``terms`` on one micro-batch; terms are those of ``Method.at``.

    ``hidden[view]`` [N, D_view] are the final hidden states at the positions that predict ``batch.ids``;
    ``heads[view]`` maps them to logits. Views of different vocabulary width are cut to the narrowest. At most
    ``chunk_tokens`` rows of logits a view exist at a time; the result does not depend on it beyond rounding.
    ``denominators`` None means that this micro-batch is the whole batch (then no term may reduce by "constant");
    weights that come from the forward pass are then measured by a pass of their own.

    Means over the tokens that take part in a term: ``divergence/<term>/<estimator>`` (nats, before clips, weights and
    importance ratios; ``losses.names.estimator_name``; for a JSD also ``…_normalised``, divided by β(1−β)),
    ``logit_gradient/<term>`` (norm of ∂(w·ℓ)_t/∂logits), ``weight/<term>`` (where there are weights), ``load/<term>``
    (w·d; for USD's weights and the terms named in ``difficulty``), ``clip_fraction/<term>`` (tokens with a clipped
    entry, or with the PPO clip active), ``token_clip_fraction/<term>``, ``dual_clip_fraction/<term>``,
    ``ratio/<term>`` (π/π_old of a policy gradient), ``importance/<term>`` (π/π_old of an importance weight, before
    its clip), ``sampler_ratio/<term>`` (π_old/π_sampler before its clip), ``importance_clip_fraction/<term>``,
    ``sampler_clip_fraction/<term>``; ``ratio_bounded/<term>``, ``importance_bounded/<term>`` and
    ``sampler_bounded/<term>`` (tokens whose exponent was bounded). ``loss/<term>`` is the reduced loss before the
    coefficient; a preference has none. Over the tokens that any term uses, at the first term's temperature:
    ``entropy/<view>``, ``logprob/<view>``.

    ``keep`` asks for per-token values: ``loss/<term>`` (before weight and reduction), ``divergence/<term>``,
    ``weight/<term>`` (USD's included), ``difficulty/<term>`` (USD's d), ``forward_kl/<term>`` (KL(target‖student) on
    the term's support), and ``entropy/<view>`` and ``logprob/<view>`` of any view in ``hidden``, at the first term's
    temperature or, as ``logprob/<view>@<temperature>``, at another.

    Raises ValueError for inputs that contradict each other, naming the term or the view.
    """
    check_terms(terms, batch, learns, difficulty)
    check_views(terms, batch, hidden, heads, learns)
    check_keep(terms, hidden, keep)
    if denominators is None:
        batch = weigh(terms, batch, hidden, heads, learns, chunk_tokens=chunk_tokens)
    own = Denominators.of(terms, batch, denominators.max_new_tokens if denominators else 0)
    counts = denominators or own
    check_counts(terms, batch, counts, own)
    used = torch.stack([batch.term_mask(name) for name in terms]).any(dim=0)
    rows = used.nonzero().squeeze(-1)
    packed = _packed(terms, hidden, learns, keep, rows)
    losses = TokenLosses(
        {name: _block(name, term, batch, rows, counts, own) for name, term in terms.items()},
        learns,
        batch.take(rows),
        keep,
        difficulty,
    )
    gradients = run_head(packed, heads, learns, losses, chunk_tokens)
    value, metrics, token_values = losses.collect()
    return ObjectiveResult(
        loss=attach(value, gradients, packed[learns]),
        metrics=metrics,
        token_values={
            name: values.new_full(used.shape, torch.nan).index_copy(0, rows, values)
            for name, values in token_values.items()
        },
    )


def weigh(
    terms: Mapping[str, Term],
    batch: TokenBatch,
    hidden: Mapping[str, Tensor],
    heads: Mapping[str, nn.Module],
    learns: str = "student",
    *,
    chunk_tokens: int,
) -> TokenBatch:
    """``batch`` with the ``final_weight`` of every term whose weight comes from the forward pass (USD).

    One pass without gradient; ``Denominators.of`` the result then has the true sums. A batch with no such term comes
    back as it is.
    """
    measured = {
        name: term.model_copy(update={"reduction": "token_mean"})
        for name, term in terms.items()
        if batch.measures_weight(name, term)
    }
    if not measured:
        return batch
    part = batch.only(measured)
    with torch.no_grad():
        values = objective(
            measured,
            part,
            hidden,
            heads,
            learns,
            Denominators.of(measured, part, 0),
            chunk_tokens=chunk_tokens,
            keep=frozenset(f"weight/{name}" for name in measured),
        ).token_values
    final = {name: values[f"weight/{name}"].nan_to_num(nan=0.0) for name in measured}
    return replace(batch, final_weight={**batch.final_weight, **final})


def _packed(
    terms: Mapping[str, Term], hidden: Mapping[str, Tensor], learns: str, keep: frozenset[str], rows: Tensor
) -> dict[str, Tensor]:
    """The rows in use of every view that a term or a kept value looks at."""
    kept = sorted(value.view for name in keep if (value := parse_view_value(name)))
    views = dict.fromkeys([learns, *(view for term in terms.values() for view in target_views(term)), *kept])
    every = len(rows) == len(hidden[learns])
    return {view: hidden[view] if every else hidden[view].index_select(0, rows) for view in views}


def _block(
    name: str, term: Term, batch: TokenBatch, rows: Tensor, counts: Denominators, own: Denominators
) -> TermBlock:
    mask, weight = batch.term_mask(name), batch.term_weight(name)
    if isinstance(term, Preference):
        factor = weight
    else:
        factor = token_factors(
            term.reduction,
            weight,
            weight if term.normalise == "weights" else mask.to(weight.dtype),
            batch.sequence,
            counts.total(name, term),
            counts.counted_sequences(name, term),
            counts.max_new_tokens,
        )
    return TermBlock(
        term,
        mask[rows],
        weight[rows],
        factor[rows],
        weighted=name in batch.weight or name in batch.final_weight,
        measures=batch.measures_weight(name, term),
        denominators=(counts.denominator(name, term), own.denominator(name, term)),
    )
