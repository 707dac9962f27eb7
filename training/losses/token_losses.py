"""All terms of one block of tokens: per-token losses, their gradient with respect to the logits, and metrics.

Terms are written as functions of the student's log-probabilities ls. With G = ∂ℓ/∂ls, the gradient with respect to
the logits z (ls = log softmax(z / T)) is (G − softmax(z / T) · Σ_v G_v) / T; it is formed here once for all terms
that share T, so the softmax is never differentiated by autograd.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from training.losses.divergences import token_divergence
from training.losses.log_probs import at_labels, entropy, impossible_labels, log_probs
from training.losses.policy_gradient import clipped_surrogate
from training.losses.supports import restrict
from training.method import JSD, CrossEntropy, Distill, Divergence, FullSupport, PolicyGradient, Support

Term = Distill | PolicyGradient | CrossEntropy


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
    """What divides the logits in ``term``; cross-entropy has no temperature."""
    return 1.0 if isinstance(term, CrossEntropy) else term.temperature


def estimator_name(divergence: Divergence, support: Support) -> str:
    """The divergence and how it is computed, e.g. ``forward_kl_exact`` or ``reverse_kl_topk20_student_tail``."""
    name = divergence.kind
    if isinstance(divergence, JSD):
        name += f"{divergence.beta:g}"
    elif divergence.kind == "renyi":
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
        self.value: Tensor = torch.zeros((), dtype=torch.float64, device=ids.device)
        self.value_dtype = torch.float32
        self.sums: dict[str, Tensor] = defaultdict(lambda: torch.zeros((), dtype=torch.float64, device=ids.device))
        self.counts: dict[str, float] = defaultdict(float)
        self.kept = {name: torch.full(ids.shape, torch.nan, device=ids.device) for name in keep}

    def __call__(self, start: int, logits: Mapping[str, Tensor], gradient_wanted: bool) -> Tensor | None:
        rows = slice(start, start + len(logits[self.learns]))
        by_temperature: dict[float, list[str]] = defaultdict(list)
        for name, block in self.terms.items():
            by_temperature[temperature_of(block.term)].append(name)
        total: Tensor | None = None
        for index, (temperature, names) in enumerate(by_temperature.items()):
            needed = {self.learns, *(t.against for n in names if isinstance(t := self.terms[n].term, Distill))}
            views = {view: log_probs(logits[view], temperature) for view in logits if index == 0 or view in needed}
            student_probs = views[self.learns].exp()
            if index == 0:
                self._read_views(views, rows)
            for name in names:
                part = self._term(name, views, student_probs, rows, gradient_wanted)
                if part is not None:
                    part = part / temperature if temperature != 1.0 else part
                    total = part if total is None else total.add_(part)
        return total

    def collect(self) -> tuple[Tensor, dict[str, tuple[float, float]], dict[str, Tensor]]:
        """The summed loss, the metrics as (numerator, denominator), and the kept per-token values."""
        metrics = {}
        if self.sums:
            numbers = torch.stack(list(self.sums.values())).tolist()
            metrics = {name: (number, self.counts[name]) for name, number in zip(self.sums, numbers, strict=True)}
        return self.value.to(self.value_dtype), metrics, self.kept

    def _read_views(self, views: Mapping[str, Tensor], rows: slice) -> None:
        tokens = torch.arange(rows.start, rows.stop, device=self.ids.device)
        for view, values in views.items():
            self.value_dtype = torch.promote_types(self.value_dtype, values.dtype)
            self._record(f"entropy/{view}", entropy(values), tokens)
            self._record(f"logprob/{view}", at_labels(values, self.ids[tokens]), tokens)

    def _term(
        self, name: str, views: Mapping[str, Tensor], student_probs: Tensor, rows: slice, gradient_wanted: bool
    ) -> Tensor | None:
        """Loss and metrics of one term on its own tokens of the block; its gradient with respect to scaled logits."""
        block = self.terms[name]
        kept = block.mask[rows].nonzero().squeeze(-1)
        whole = len(kept) == len(student_probs)
        tokens = kept + rows.start
        own = {view: values if whole else values[kept] for view, values in views.items()}
        student_probs = student_probs if whole else student_probs[kept]
        leaf = own[self.learns].detach()
        if gradient_wanted:
            leaf.requires_grad_()
        with torch.set_grad_enabled(gradient_wanted):
            loss = self._token_loss(name, block.term, leaf, own, tokens)
        self._add_loss(name, block, loss.detach(), tokens)
        if not gradient_wanted:
            return None
        (by_log_prob,) = torch.autograd.grad(loss.sum(), leaf)
        by_logit = by_log_prob - student_probs * by_log_prob.sum(-1, keepdim=True)
        self._record(f"logit_gradient/{name}", by_logit.norm(dim=-1) / temperature_of(block.term), tokens)
        by_logit *= (block.term.coefficient * block.factor[tokens]).to(loss.dtype)[:, None]
        return by_logit if whole else torch.zeros_like(views[self.learns]).index_copy_(0, kept, by_logit)

    def _add_loss(self, name: str, block: TermBlock, loss: Tensor, tokens: Tensor) -> None:
        reduced = (block.factor[tokens] * loss.double()).sum()
        self.value += block.term.coefficient * reduced
        global_count, own_count = block.reduced
        self._add(f"loss/{name}", reduced * global_count, 0.0)
        self.counts[f"loss/{name}"] = own_count
        self._keep(f"loss/{name}", loss, tokens)

    def _token_loss(
        self, name: str, term: Term, student: Tensor, views: Mapping[str, Tensor], tokens: Tensor
    ) -> Tensor:
        if isinstance(term, Distill):
            return self._distill(name, term, student, views[term.against], tokens)
        label = at_labels(student, self.ids[tokens])
        if bool(impossible_labels(label).any()):
            raise ValueError(f"term {name!r}: the student gives probability 0 to a response token")
        if isinstance(term, CrossEntropy):
            return -label
        assert self.advantage is not None
        old = None if self.old_logprobs is None else self.old_logprobs[tokens]
        surrogate = clipped_surrogate(label, old, self.advantage[tokens], term.clip_low, term.clip_high)
        self._record(f"clip_fraction/{name}", surrogate.clipped, tokens)
        self._record(f"ratio/{name}", surrogate.ratio, tokens)
        self._record(f"ratio_bounded/{name}", surrogate.bounded, tokens)
        return surrogate.loss

    def _distill(self, name: str, term: Distill, student: Tensor, target: Tensor, tokens: Tensor) -> Tensor:
        pair = restrict(term.support, target, student, where=f"term {name!r}")
        result = token_divergence(term.divergence, pair.target, pair.student, term.entry_clip)
        estimator = f"divergence/{name}/{estimator_name(term.divergence, term.support)}"
        self._record(estimator, result.unclipped, tokens)
        if isinstance(term.divergence, JSD):
            beta = term.divergence.beta
            self._record(f"{estimator}_normalised", result.unclipped / (beta * (1 - beta)), tokens)
        if result.clipped_entries is not None:
            self._record(f"clip_fraction/{name}", (result.clipped_entries > 0).to(student.dtype), tokens)
        self._keep(f"divergence/{name}", result.unclipped, tokens)
        return result.loss

    def _record(self, name: str, values: Tensor, tokens: Tensor) -> None:
        """A per-token metric: its sum and the number of tokens it is over."""
        self._add(name, values.detach().sum(dtype=torch.float64), float(len(tokens)))
        self._keep(name, values, tokens)

    def _add(self, name: str, numerator: Tensor, denominator: float) -> None:
        self.sums[name] = self.sums[name] + numerator
        self.counts[name] += denominator

    def _keep(self, name: str, values: Tensor, tokens: Tensor) -> None:
        if name in self.kept:
            self.kept[name][tokens] = values.detach().to(torch.float32)
