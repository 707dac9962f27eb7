"""The objective of one micro-batch: terms, hidden states and heads in; one differentiable scalar and metrics out.

    L = Σ_k coefficient_k Σ_t factor_kt · ℓ_kt,

ℓ_kt is the loss of term k at response token t and factor_kt comes from the term's reduction over the *global* batch,
so the losses and gradients of micro-batches and ranks add up to those of the whole batch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from training.losses.chunked import attach, run_head
from training.losses.reductions import token_factors
from training.losses.token_losses import TermBlock, TokenLosses
from training.method import CrossEntropy, Distill, PolicyGradient

Term = Distill | PolicyGradient | CrossEntropy


@dataclass(frozen=True)
class TokenBatch:
    """The packed response tokens of one micro-batch, N of them."""

    ids: Tensor
    """[N] int64: the response token at each position, the label of that hidden state."""
    sequence: Tensor
    """[N] int64: 0-based index of the token's sequence in this micro-batch. A sequence is never split."""
    position: Tensor
    """[N] int64: 0-based position within its response."""
    mask: dict[str, Tensor]
    """Term name -> [N] bool, the tokens that take part; a term that is not named takes all."""
    advantage: Tensor | None = None
    """[N] float32, for policy-gradient terms."""
    old_logprobs: Tensor | None = None
    """[N] float32 at the sampling temperature; None means strictly on-policy."""

    def term_mask(self, name: str) -> Tensor:
        given = self.mask.get(name)
        return torch.ones_like(self.ids, dtype=torch.bool) if given is None else given


@dataclass(frozen=True)
class Denominators:
    """Counts over the global batch (all micro-batches, all ranks), known before any forward."""

    tokens: dict[str, float]
    """Per term: kept tokens."""
    sequences: dict[str, float]
    """Per term: sequences with at least one kept token."""
    max_new_tokens: int

    @classmethod
    def of(cls, terms: Mapping[str, Term], batch: TokenBatch, max_new_tokens: int) -> Denominators:
        """The counts of one micro-batch; add those of all micro-batches with ``+``."""
        masks = {name: batch.term_mask(name) for name in terms}
        return cls(
            tokens={name: float(mask.sum()) for name, mask in masks.items()},
            sequences={name: float(batch.sequence[mask].unique().numel()) for name, mask in masks.items()},
            max_new_tokens=max_new_tokens,
        )

    def __add__(self, other: Denominators) -> Denominators:
        if self.max_new_tokens != other.max_new_tokens:
            raise ValueError(f"max_new_tokens differ: {self.max_new_tokens} and {other.max_new_tokens}")
        return Denominators(
            {name: self.tokens.get(name, 0) + other.tokens.get(name, 0) for name in {**self.tokens, **other.tokens}},
            {
                name: self.sequences.get(name, 0) + other.sequences.get(name, 0)
                for name in {**self.sequences, **other.sequences}
            },
            self.max_new_tokens,
        )


@dataclass
class ObjectiveResult:
    loss: Tensor
    """Scalar; ``backward()`` reaches the learning view's hidden states and its head's parameters, nothing else."""
    metrics: dict[str, tuple[float, float]]
    """Name -> (numerator, denominator); add both over micro-batches, then divide."""
    token_values: dict[str, Tensor]
    """Name -> [N] fp32, what ``keep`` asked for; NaN at tokens that no term uses."""


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
) -> ObjectiveResult:
    """Loss, gradient and metrics of ``terms`` on one micro-batch.

    ``hidden[view]`` [N, D_view] are the final hidden states at the positions that predict ``batch.ids``;
    ``heads[view]`` maps them to logits. Views of different vocabulary width are cut to the narrowest. At most
    ``chunk_tokens`` rows of logits a view exist at a time; the result does not depend on it beyond rounding.
    ``denominators`` None means that this micro-batch is the whole batch (then no term may use "constant").

    Metrics: ``loss/<term>`` (reduced, before the coefficient), ``divergence/<term>/<estimator>`` (unclipped),
    ``logit_gradient/<term>`` (mean norm of ∂ℓ_t/∂logits), ``clip_fraction/<term>``, ``ratio/<term>``,
    ``ratio_bounded/<term>``, ``entropy/<view>``, ``logprob/<view>`` (the last two at the first term's temperature,
    over tokens that any term uses). ``keep``: ``loss/<term>``, ``divergence/<term>``, ``entropy/<view>``,
    ``logprob/<view>``.

    Raises ValueError for inputs that contradict each other, naming the term or view.
    """
    own = Denominators.of(terms, batch, denominators.max_new_tokens if denominators else 0)
    counts = denominators or own
    _check(terms, batch, hidden, heads, learns, counts)
    views = {learns: None, **{term.against: None for term in terms.values() if isinstance(term, Distill)}}
    factors = {name: _factors(name, term, batch, counts) for name, term in terms.items()}
    used = torch.stack([batch.term_mask(name) for name in terms]).any(dim=0)
    rows = used.nonzero().squeeze(-1)
    packed = {view: hidden[view] if bool(used.all()) else hidden[view].index_select(0, rows) for view in views}
    blocks = {
        name: TermBlock(
            term=term,
            mask=batch.term_mask(name)[rows],
            factor=factors[name][rows],
            reduced=(_denominator(name, term, counts), _denominator(name, term, own)),
        )
        for name, term in terms.items()
    }
    losses = TokenLosses(
        blocks,
        learns,
        ids=batch.ids[rows],
        advantage=None if batch.advantage is None else batch.advantage[rows],
        old_logprobs=None if batch.old_logprobs is None else batch.old_logprobs[rows],
        keep=keep,
    )
    gradients = run_head(packed, heads, learns, losses, chunk_tokens)
    value, metrics, token_values = losses.collect()
    return ObjectiveResult(
        loss=attach(value, gradients, packed[learns], heads[learns]),
        metrics=metrics,
        token_values={
            name: torch.full(used.shape, torch.nan, device=used.device).index_copy_(0, rows, values.float())
            for name, values in token_values.items()
        },
    )


def _factors(name: str, term: Term, batch: TokenBatch, counts: Denominators) -> Tensor:
    return token_factors(
        term.reduction,
        batch.term_mask(name),
        batch.sequence,
        counts.tokens[name],
        counts.sequences[name],
        counts.max_new_tokens,
    )


def _denominator(name: str, term: Term, counts: Denominators) -> float:
    if term.reduction == "token_mean":
        return counts.tokens[name]
    return counts.sequences[name] * (counts.max_new_tokens if term.reduction == "constant" else 1)


def _check(
    terms: Mapping[str, Term],
    batch: TokenBatch,
    hidden: Mapping[str, Tensor],
    heads: Mapping[str, nn.Module],
    learns: str,
    counts: Denominators,
) -> None:
    if not terms:
        raise ValueError("objective needs at least one term")
    total = len(batch.ids)
    for name, term in terms.items():
        if term.of != learns:
            raise ValueError(f"term {name!r} teaches view {term.of!r}, but view {learns!r} is learning")
        for view in [term.of, *([term.against] if isinstance(term, Distill) else [])]:
            if view not in hidden or view not in heads:
                raise ValueError(f"term {name!r} needs hidden states and a head of view {view!r}; got {[*hidden]}")
            if len(hidden[view]) != total:
                raise ValueError(f"view {view!r} has {len(hidden[view])} hidden states for {total} response tokens")
        if isinstance(term, Distill) and term.against == learns:
            raise ValueError(f"term {name!r} distils view {learns!r} against itself")
        if isinstance(term, PolicyGradient) and batch.advantage is None:
            raise ValueError(f"term {name!r} is a policy gradient and the batch carries no advantage")
        mask = batch.term_mask(name)
        if mask.shape != batch.ids.shape or mask.dtype != torch.bool:
            raise ValueError(f"mask of term {name!r} must be bool [{total}], got {mask.dtype} {tuple(mask.shape)}")
        if name not in counts.tokens or name not in counts.sequences:
            raise ValueError(f"denominators lack term {name!r}; they name {[*counts.tokens]}")
        if counts.tokens[name] < float(mask.sum()):
            raise ValueError(
                f"term {name!r} keeps {int(mask.sum())} tokens here but its global denominator is "
                f"{counts.tokens[name]:g}: count over all micro-batches and ranks"
            )
        if term.reduction == "constant" and counts.max_new_tokens < 1:
            raise ValueError(f"term {name!r} has reduction 'constant', which needs max_new_tokens")
