"""All terms of one block of tokens: per-token losses, their gradient with respect to the logits, and metrics."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from training.losses.cross_entropy import cross_entropy
from training.losses.distributions import IMPOSSIBLE, Distribution, softmax
from training.losses.divergences import divergence
from training.losses.policy_gradient import clipped_surrogate
from training.losses.supports import label_by_logits, restrict
from training.method import JSD, CrossEntropy, Distill, Divergence, FullSupport, PolicyGradient, Renyi, Support

Term = Distill | PolicyGradient | CrossEntropy


class TermLoss(NamedTuple):
    """Per-token losses [n], and a function that gives their gradient with respect to the scaled logits [n, V]."""

    loss: Tensor
    gradient: Callable[[], Tensor]


@dataclass(frozen=True)
class TermBlock:
    """One term and what it does to each of n tokens."""

    term: Term
    mask: Tensor
    """[n] bool."""
    factor: Tensor
    """[n] fp64: the reduction's factor, 0 where masked."""
    reduced: tuple[float, float]
    """(global, own) denominator of the reduction, for the metric ``loss/<term>``."""


def temperature_of(term: Term) -> float:
    """What divides the logits in ``term``; cross-entropy has no temperature. ValueError for an unresolved name."""
    if isinstance(term, CrossEntropy):
        return 1.0
    if isinstance(term.temperature, str):
        raise ValueError(f"temperature {term.temperature!r} is a name, not a number: take terms from Method.terms_of")
    return term.temperature


def estimator_name(divergence: Divergence, support: Support) -> str:
    """The divergence and how it is computed, e.g. ``forward_kl_exact`` or ``reverse_kl_topk20_student_tail``."""
    name = divergence.kind
    if isinstance(divergence, JSD):
        name += f"{divergence.beta:g}"
    elif isinstance(divergence, Renyi):
        name += f"{divergence.order:g}" + ("" if divergence.direction == "target||student" else "_swapped")
    if isinstance(support, FullSupport):
        return f"{name}_exact"
    return f"{name}_topk{support.k}_{support.of}_{support.rest}"


class TokenLosses:
    """Callable on blocks of logits (see ``chunked.BlockLoss``); sums losses and metrics over the blocks."""

    def __init__(
        self,
        terms: Mapping[str, TermBlock],
        learns: str,
        *,
        ids: Tensor,
        advantage: Tensor | None,
        old_logprobs: Tensor | None,
        keep: frozenset[str],
    ) -> None:
        self.terms = terms
        self.learns = learns
        self.ids = ids
        self.advantage = advantage
        self.old_logprobs = old_logprobs
        self.value = torch.zeros((), dtype=torch.float64, device=ids.device)
        self.value_dtype = torch.float32
        self.sums: dict[str, Tensor] = {}
        self.counts: dict[str, float] = defaultdict(float)
        self.kept = {name: torch.full(ids.shape, torch.nan, device=ids.device) for name in keep}
        self.by_temperature: dict[float, list[str]] = defaultdict(list)
        for name, block in terms.items():
            self.by_temperature[temperature_of(block.term)].append(name)
            self._add(f"loss/{name}", torch.zeros_like(self.value), block.reduced[1])

    def __call__(self, start: int, logits: Mapping[str, Tensor], gradient_wanted: bool) -> Tensor | None:
        tokens = torch.arange(start, start + len(logits[self.learns]), device=self.ids.device)
        total: Tensor | None = None
        for index, (temperature, names) in enumerate(self.by_temperature.items()):
            needed = {self.learns, *(t.against for n in names if isinstance(t := self.terms[n].term, Distill))}
            views = {
                view: softmax(values, temperature) for view, values in logits.items() if index == 0 or view in needed
            }
            if index == 0:
                self._read_views(views, tokens)
            for name in names:
                part = self._term(name, views, tokens, gradient_wanted)
                if part is not None:
                    total = part if total is None else total.add_(part)
        return total

    def collect(self) -> tuple[Tensor, dict[str, tuple[float, float]], dict[str, Tensor]]:
        """The summed loss, the metrics as (numerator, denominator), and the kept per-token values."""
        numbers = torch.stack(list(self.sums.values())).tolist() if self.sums else []
        metrics = {name: (number, self.counts[name]) for name, number in zip(self.sums, numbers, strict=True)}
        return self.value.to(self.value_dtype), metrics, self.kept

    def _read_views(self, views: Mapping[str, Distribution], tokens: Tensor) -> None:
        for view, distribution in views.items():
            self.value_dtype = torch.promote_types(self.value_dtype, distribution.probs.dtype)
            self._record(f"entropy/{view}", distribution.entropy(), tokens)
            self._record(f"logprob/{view}", distribution.at(self.ids[tokens]), tokens)

    def _term(
        self, name: str, views: Mapping[str, Distribution], tokens: Tensor, gradient_wanted: bool
    ) -> Tensor | None:
        """Loss and metrics of one term on its own tokens of the block; its gradient with respect to the logits."""
        block, student = self.terms[name], views[self.learns]
        kept = block.mask[tokens].nonzero().squeeze(-1)
        whole = len(kept) == len(tokens)
        own = views if whole else {view: distribution.rows(kept) for view, distribution in views.items()}
        tokens = tokens[kept]
        result = self._loss(name, block.term, own, tokens)
        self._add_loss(name, block, result.loss, tokens)
        if not gradient_wanted:
            return None
        gradient = result.gradient()
        temperature = temperature_of(block.term)
        self._record(f"logit_gradient/{name}", gradient.norm(dim=-1) / temperature, tokens)
        gradient *= (block.term.coefficient / temperature * block.factor[tokens]).to(gradient.dtype)[:, None]
        return gradient if whole else torch.zeros_like(student.probs).index_copy_(0, kept, gradient)

    def _add_loss(self, name: str, block: TermBlock, loss: Tensor, tokens: Tensor) -> None:
        reduced = (block.factor[tokens] * loss.double()).sum()
        self.value += block.term.coefficient * reduced
        self._add(f"loss/{name}", reduced * block.reduced[0], 0.0)
        self._keep(f"loss/{name}", loss, tokens)

    def _loss(self, name: str, term: Term, views: Mapping[str, Distribution], tokens: Tensor) -> TermLoss:
        student = views[self.learns]
        if isinstance(term, Distill):
            return self._distill(name, term, student, views[term.against], tokens)
        labels = self.ids[tokens]
        label = student.at(labels)
        if student.has_impossible and bool((label <= IMPOSSIBLE).any()):
            raise ValueError(f"term {name!r}: the student gives probability 0 to a response token")
        if isinstance(term, CrossEntropy):
            imitation = cross_entropy(label)
            return TermLoss(imitation.loss, lambda: label_by_logits(imitation.slope, labels, student))
        assert self.advantage is not None
        old = None if self.old_logprobs is None else self.old_logprobs[tokens]
        surrogate = clipped_surrogate(label, old, self.advantage[tokens], term.clip_low, term.clip_high)
        self._record(f"clip_fraction/{name}", surrogate.clipped, tokens)
        self._record(f"ratio/{name}", surrogate.ratio, tokens)
        self._record(f"ratio_bounded/{name}", surrogate.bounded, tokens)
        return TermLoss(surrogate.loss, lambda: label_by_logits(surrogate.slope, labels, student))

    def _distill(
        self, name: str, term: Distill, student: Distribution, target: Distribution, tokens: Tensor
    ) -> TermLoss:
        pair = restrict(term.support, target, student, where=f"term {name!r}")
        result = divergence(term.divergence, pair.target, pair.student, term.entry_clip)
        estimator = f"divergence/{name}/{estimator_name(term.divergence, term.support)}"
        self._record(estimator, result.unclipped, tokens)
        self._keep(f"divergence/{name}", result.unclipped, tokens)
        if isinstance(term.divergence, JSD):
            beta = term.divergence.beta
            self._record(f"{estimator}_normalised", result.unclipped / (beta * (1 - beta)), tokens)
        if result.clipped_entries is not None:
            self._record(f"clip_fraction/{name}", (result.clipped_entries > 0).to(torch.float32), tokens)
        return TermLoss(result.loss, lambda: pair.by_logits(result.slope))

    def _record(self, name: str, values: Tensor, tokens: Tensor) -> None:
        """A per-token metric: its sum and the number of tokens it is over."""
        self._add(name, values.sum(dtype=torch.float64), float(len(tokens)))
        self._keep(name, values, tokens)

    def _add(self, name: str, numerator: Tensor, denominator: float) -> None:
        self.sums[name] = self.sums[name] + numerator if name in self.sums else numerator
        self.counts[name] += denominator

    def _keep(self, name: str, values: Tensor, tokens: Tensor) -> None:
        if name in self.kept:
            self.kept[name][tokens] = values.to(torch.float32)
