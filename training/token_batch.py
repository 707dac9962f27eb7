"""The response tokens of one micro-batch, and the counts of the global batch that its losses are divided by."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from training.method import AnyTerm, Distill, Preference

PER_TERM = ("mask", "weight", "final_weight", "labels", "advantage", "slope", "toward_student")
"""Fields of TokenBatch that go by term name."""


@dataclass(frozen=True)
class TokenBatch:
    """The packed response tokens of one micro-batch, N of them. Tokens a term masks are never read for it.

    Every per-term dictionary goes by term name. All values are constants of the loss: none gets a gradient. Floats are
    float32 or float64.
    """

    ids: Tensor
    """[N] int64: the response token at each position, the label of that hidden state."""
    sequence: Tensor
    """[N] int64: 0-based index of the token's sequence in this micro-batch. A sequence is never split."""
    position: Tensor
    """[N] int64: 0-based position within its response."""
    mask: dict[str, Tensor]
    """[N] bool, the tokens that take part; a term that is not named takes all."""
    weight: dict[str, Tensor] = field(default_factory=dict)
    """[N] float ≥ 0: the product of everything known before the forward pass (gates, positions, selections)."""
    final_weight: dict[str, Tensor] = field(default_factory=dict)
    """[N] float ≥ 0: the whole weight, measured by a pass before (see ``objective.weigh``). Stands for ``weight``
    and for the term's own USD weighting."""
    labels: dict[str, Tensor] = field(default_factory=dict)
    """[N] int64: what a cross-entropy term asks for instead of ``ids``."""
    advantage: dict[str, Tensor] = field(default_factory=dict)
    """[N] float, for every policy-gradient term, modulation included."""
    slope: dict[str, Tensor] = field(default_factory=dict)
    """[N] float, for every preference term: ∂L/∂log q(y_t)."""
    toward_student: dict[str, Tensor] = field(default_factory=dict)
    """[N] bool: the positions whose target moves toward the student; for mixes that pick positions."""
    old_logprobs: Mapping[float, Tensor] | None = None
    """Temperature -> [N] float: log π_old of ``ids`` in the learning view. None means strictly on-policy: the
    importance ratio is exactly 1."""
    sampler_logprobs: Tensor | None = None
    """[N] float, what the sampler reported, at the temperature of the terms that read it."""

    def term_mask(self, name: str) -> Tensor:
        """[N] bool."""
        given = self.mask.get(name)
        return torch.ones_like(self.ids, dtype=torch.bool) if given is None else given

    def term_weight(self, name: str) -> Tensor:
        """[N] fp64: the weight known so far, 1 where none is given, 0 where masked."""
        mask = self.term_mask(name)
        given = self.final_weight.get(name, self.weight.get(name))
        kept = mask.to(torch.float64)
        return kept if given is None else torch.where(mask, given.to(torch.float64), 0.0)

    def take(self, rows: Tensor) -> TokenBatch:
        """The tokens at index ``rows``; sequence numbers stay as they are."""

        def taken(values: Mapping[str, Tensor]) -> dict[str, Tensor]:
            return {name: value[rows] for name, value in values.items()}

        return TokenBatch(
            self.ids[rows],
            self.sequence[rows],
            self.position[rows],
            **{name: taken(getattr(self, name)) for name in PER_TERM},
            old_logprobs=None if self.old_logprobs is None else {t: v[rows] for t, v in self.old_logprobs.items()},
            sampler_logprobs=None if self.sampler_logprobs is None else self.sampler_logprobs[rows],
        )

    def only(self, names: Collection[str]) -> TokenBatch:
        """The same tokens with what belongs to the terms ``names``."""
        return replace(self, **{f: {n: v for n, v in getattr(self, f).items() if n in names} for f in PER_TERM})

    def measures_weight(self, name: str, term: AnyTerm) -> bool:
        """Whether part of the term's weight comes from its own forward pass and is not known yet."""
        usd = isinstance(term, Distill) and term.weighting.kind in ("usd_soft", "usd_hard")
        return usd and name not in self.final_weight


@dataclass(frozen=True)
class Denominators:
    """Sums over the global batch (all micro-batches, all ranks), known before any forward."""

    tokens: dict[str, float]
    """Per term: tokens that take part."""
    sequences: dict[str, float]
    """Per term: sequences with at least one such token."""
    max_new_tokens: int
    weights: dict[str, float] = field(default_factory=dict)
    """Per term: Σ of the tokens' weights. A term that is not named has weight 1 on all its tokens.

    For a term with USD's weights the sum is unknown before the forward pass: either it is measured first
    (``objective.weigh``), or 1 stands here and the caller divides the gradient by Σw of the metric ``weight/<term>``.
    """
    weighted_sequences: dict[str, float] = field(default_factory=dict)
    """Per term: sequences with a token of weight above 0."""

    @classmethod
    def of(cls, terms: Mapping[str, AnyTerm], batch: TokenBatch, max_new_tokens: int) -> Denominators:
        """The sums of one micro-batch; add those of all micro-batches with ``+``.

        A weight that the term's own forward pass measures counts as far as it is known: as ``weight`` alone.
        """
        masks = {name: batch.term_mask(name) for name in terms}
        weights = {name: batch.term_weight(name) for name in terms}
        return cls(
            tokens={name: float(mask.sum()) for name, mask in masks.items()},
            sequences={name: _sequences(batch, mask) for name, mask in masks.items()},
            max_new_tokens=max_new_tokens,
            weights={name: float(weight.sum()) for name, weight in weights.items()},
            weighted_sequences={name: _sequences(batch, weight > 0) for name, weight in weights.items()},
        )

    def __add__(self, other: Denominators) -> Denominators:
        if self.max_new_tokens != other.max_new_tokens:
            raise ValueError(f"max_new_tokens differ: {self.max_new_tokens} and {other.max_new_tokens}")
        return Denominators(
            _added(self.tokens, other.tokens),
            _added(self.sequences, other.sequences),
            self.max_new_tokens,
            _added(_filled(self.weights, self.tokens, other), _filled(other.weights, other.tokens, self)),
            _added(
                _filled(self.weighted_sequences, self.sequences, other),
                _filled(other.weighted_sequences, other.sequences, self),
            ),
        )

    def total(self, name: str, term: AnyTerm) -> float:
        """What term ``name`` counts: Σ of weights or tokens, as its ``normalise`` says; 1 for a preference."""
        if isinstance(term, Preference):
            return 1.0
        return self.weights.get(name, self.tokens[name]) if term.normalise == "weights" else self.tokens[name]

    def counted_sequences(self, name: str, term: AnyTerm) -> float:
        """The sequences that term ``name`` counts, as its ``normalise`` says."""
        if isinstance(term, Preference) or term.normalise == "tokens":
            return self.sequences[name]
        return self.weighted_sequences.get(name, self.sequences[name])

    def denominator(self, name: str, term: AnyTerm) -> float:
        """What the reduction of term ``name`` divides its sum by."""
        if isinstance(term, Preference) or term.reduction == "token_mean":
            return self.total(name, term)
        return self.counted_sequences(name, term) * (self.max_new_tokens if term.reduction == "constant" else 1)


def _sequences(batch: TokenBatch, used: Tensor) -> float:
    return float(batch.sequence[used].unique().numel())


def _added(first: Mapping[str, float], second: Mapping[str, float]) -> dict[str, float]:
    return {name: first.get(name, 0.0) + second.get(name, 0.0) for name in dict.fromkeys([*first, *second])}


def _filled(weighted: Mapping[str, float], counted: Mapping[str, float], other: Denominators) -> dict[str, float]:
    """``weighted`` with the plain counts of terms that have weights on the other side alone."""
    return {**{name: counted[name] for name in other.weights if name in counted}, **weighted}
