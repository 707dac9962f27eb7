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

    def denominator(self, name: str, term: Term) -> float:
        """What the reduction of term ``name`` divides its sum by."""
        if term.reduction == "token_mean":
            return self.tokens[name]
        return self.sequences[name] * (self.max_new_tokens if term.reduction == "constant" else 1)


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
    ``denominators`` None means that this micro-batch is the whole batch (then no term may reduce by "constant").

    Metrics, over the tokens a term keeps: ``loss/<term>`` (reduced, before the coefficient),
    ``divergence/<term>/<estimator>`` (nats a token, before the entry clip; for a JSD also ``…_normalised``, divided by
    β(1−β)), ``logit_gradient/<term>`` (mean norm of ∂ℓ_t/∂logits), ``clip_fraction/<term>`` (tokens with a clipped
    entry, or with the PPO clip active), ``ratio/<term>``, ``ratio_bounded/<term>``. Over the tokens that any term
    keeps, at the first term's temperature: ``entropy/<view>``, ``logprob/<view>``.

    ``keep`` asks for per-token values: ``loss/<term>``, ``divergence/<term>``, ``entropy/<view>``,
    ``logprob/<view>``. Raises ValueError for inputs that contradict each other, naming the term or the view.
    """
    own = _check_and_count(terms, batch, learns, denominators)
    _check_views(terms, batch, hidden, heads, learns)
    _check_keep(terms, learns, keep)
    counts = denominators or own
    used = torch.stack([batch.term_mask(name) for name in terms]).any(dim=0)
    rows = used.nonzero().squeeze(-1)
    every = len(rows) == len(used)
    views = dict.fromkeys([learns, *(term.against for term in terms.values() if isinstance(term, Distill))])
    packed = {view: hidden[view] if every else hidden[view].index_select(0, rows) for view in views}
    losses = TokenLosses(
        {name: _block(name, term, batch, rows, counts, own) for name, term in terms.items()},
        learns,
        ids=batch.ids[rows],
        advantage=None if batch.advantage is None else batch.advantage[rows],
        old_logprobs=None if batch.old_logprobs is None else batch.old_logprobs[rows],
        keep=keep,
    )
    gradients = run_head(packed, heads, learns, losses, chunk_tokens)
    value, metrics, token_values = losses.collect()
    blank = torch.full(used.shape, torch.nan, device=used.device)
    return ObjectiveResult(
        loss=attach(value, gradients, packed[learns]),
        metrics=metrics,
        token_values={name: blank.index_copy(0, rows, values) for name, values in token_values.items()},
    )


def _block(
    name: str, term: Term, batch: TokenBatch, rows: Tensor, counts: Denominators, own: Denominators
) -> TermBlock:
    mask = batch.term_mask(name)
    tokens, sequences = float(counts.tokens[name]), float(counts.sequences[name])
    factor = token_factors(term.reduction, mask, batch.sequence, tokens, sequences, counts.max_new_tokens)
    return TermBlock(term, mask[rows], factor[rows], (counts.denominator(name, term), own.denominator(name, term)))


def _check_and_count(
    terms: Mapping[str, Term], batch: TokenBatch, learns: str, denominators: Denominators | None
) -> Denominators:
    """This micro-batch's own counts, once the terms agree with the batch and with the global counts."""
    if not terms:
        raise ValueError("objective needs at least one term")
    for name, term in terms.items():
        mask = batch.term_mask(name)
        if mask.shape != batch.ids.shape or mask.dtype != torch.bool:
            raise ValueError(
                f"mask of term {name!r} must be bool {[*batch.ids.shape]}, got {mask.dtype} {[*mask.shape]}"
            )
        if term.of != learns:
            raise ValueError(f"term {name!r} teaches view {term.of!r}, but view {learns!r} is learning")
        if isinstance(term, PolicyGradient) and batch.advantage is None:
            raise ValueError(f"term {name!r} is a policy gradient and the batch carries no advantage")
    unknown = [name for name in batch.mask if name not in terms]
    if unknown:
        raise ValueError(f"masks for terms that do not exist: {unknown}; terms: {[*terms]}")
    own = Denominators.of(terms, batch, denominators.max_new_tokens if denominators else 0)
    counts = denominators or own
    for name, term in terms.items():
        if name not in counts.tokens or name not in counts.sequences:
            raise ValueError(f"denominators lack term {name!r}; they name {[*counts.tokens]}")
        if counts.tokens[name] < own.tokens[name] or counts.sequences[name] < own.sequences[name]:
            raise ValueError(
                f"term {name!r} keeps {own.tokens[name]:g} tokens of {own.sequences[name]:g} sequences here, but its "
                f"global denominators are {counts.tokens[name]:g} and {counts.sequences[name]:g}: count over all "
                "micro-batches and ranks"
            )
        if term.reduction == "constant" and counts.max_new_tokens < 1:
            raise ValueError(f"term {name!r} has reduction 'constant', which needs denominators.max_new_tokens")
    return own


def _check_views(
    terms: Mapping[str, Term],
    batch: TokenBatch,
    hidden: Mapping[str, Tensor],
    heads: Mapping[str, nn.Module],
    learns: str,
) -> None:
    for name, term in terms.items():
        if isinstance(term, Distill) and term.against == learns:
            raise ValueError(f"term {name!r} distils view {learns!r} against itself")
        for view in [term.of, *([term.against] if isinstance(term, Distill) else [])]:
            if view not in hidden or view not in heads:
                raise ValueError(f"term {name!r} needs hidden states and a head of view {view!r}; got {[*hidden]}")
            if len(hidden[view]) != len(batch.ids):
                raise ValueError(
                    f"view {view!r} has {len(hidden[view])} hidden states for {len(batch.ids)} response tokens"
                )


def _check_keep(terms: Mapping[str, Term], learns: str, keep: frozenset[str]) -> None:
    targets = {name: term.against for name, term in terms.items() if isinstance(term, Distill)}
    views = {learns, *targets.values()}
    known = {f"loss/{name}" for name in terms} | {f"divergence/{name}" for name in targets}
    known |= {f"{what}/{view}" for what in ("entropy", "logprob") for view in views}
    if keep - known:
        raise ValueError(f"no per-token values {sorted(keep - known)}; this objective has {sorted(known)}")
