"""All terms of one block of tokens: per-token losses, their gradient with respect to the logits, and metrics."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from training.losses.distributions import Distribution, softmax
from training.losses.names import parse_view_value, plain_number, target_views, temperature_of, view_value
from training.losses.records import Records
from training.losses.term_losses import TermTokens, term_loss
from training.method import AnyTerm, Preference
from training.token_batch import TokenBatch


@dataclass(frozen=True)
class TermBlock:
    """One term and what it does to each of n tokens."""

    term: AnyTerm
    mask: Tensor
    """[n] bool."""
    weight: Tensor
    """[n] fp64: the weight known before the forward pass, 0 where masked."""
    factor: Tensor
    """[n] fp64: that weight over the reduction's denominator."""
    weighted: bool
    """Whether the batch gave weights."""
    measures: bool
    """Whether the forward pass gives a further factor of the weight (USD)."""
    denominators: tuple[float, float]
    """(global, own) denominator of the reduction, for the metric ``loss/<term>``."""


class TokenLosses:
    """Callable on blocks of logits (see ``chunked.BlockLoss``); sums losses and metrics over the blocks."""

    def __init__(
        self,
        terms: Mapping[str, TermBlock],
        learns: str,
        batch: TokenBatch,
        keep: frozenset[str],
        difficulty: frozenset[str],
    ) -> None:
        self.terms = terms
        self.learns = learns
        self.batch = batch
        self.difficulty = difficulty
        self.records = Records(keep, len(batch.ids), batch.ids.device)
        self.value = torch.zeros((), dtype=torch.float64, device=batch.ids.device)
        self.value_dtype = torch.float32
        self.coefficients = {
            name: plain_number(block.term.coefficient, f"coefficient of term {name!r}") for name, block in terms.items()
        }
        self.by_temperature: dict[float, list[str]] = defaultdict(list)
        for name, block in terms.items():
            self.by_temperature[temperature_of(block.term)].append(name)
            if not isinstance(block.term, Preference):
                own = 0.0 if self._adds_weights(block) else block.denominators[1]
                self.records.add(f"loss/{name}", torch.zeros_like(self.value), own)
        self.kept_views = self._kept_views(keep)

    def _kept_views(self, keep: frozenset[str]) -> dict[float, list[str]]:
        """Temperature -> the views with a kept value at it; opens temperatures that no term has."""
        first = next(iter(self.by_temperature))
        found: dict[float, list[str]] = defaultdict(list)
        for name in sorted(keep):
            value = parse_view_value(name)
            if value is not None:
                temperature = first if value.temperature is None else value.temperature
                found[temperature].append(value.view)
                self.by_temperature.setdefault(temperature, [])
        return found

    def __call__(self, start: int, logits: Mapping[str, Tensor], gradient_wanted: bool) -> Tensor | None:
        tokens = torch.arange(start, start + len(logits[self.learns]), device=self.batch.ids.device)
        total: Tensor | None = None
        for index, (temperature, names) in enumerate(self.by_temperature.items()):
            needed = {view for name in names for view in target_views(self.terms[name].term)}
            needed |= {self.learns, *self.kept_views.get(temperature, [])}
            views = {
                view: softmax(values, temperature) for view, values in logits.items() if index == 0 or view in needed
            }
            self._read_views(views, tokens, temperature, first=index == 0)
            for name in names:
                part = self._term(name, views, tokens, gradient_wanted)
                if part is not None:
                    total = part if total is None else total.add_(part)
        return total

    def collect(self) -> tuple[Tensor, dict[str, tuple[float, float]], dict[str, Tensor]]:
        """The summed loss, the metrics as (numerator, denominator), and the kept per-token values."""
        return self.value.to(self.value_dtype), self.records.metrics(), self.records.token_values()

    def _read_views(
        self, views: Mapping[str, Distribution], tokens: Tensor, temperature: float, *, first: bool
    ) -> None:
        """Entropy and log-probability of each view: metrics at the first temperature, kept values at any."""
        for view, distribution in views.items():
            self.value_dtype = torch.promote_types(self.value_dtype, distribution.probs.dtype)
            for what in ("entropy", "logprob"):
                plain, exact = view_value(what, view), view_value(what, view, temperature)
                if not (first or self.records.wants(exact)):
                    continue
                entropy = what == "entropy"
                values = distribution.entropy() if entropy else distribution.at(self.batch.ids[tokens])
                self.records.keep_values(exact, values, tokens)
                if first:
                    self.records.mean(plain, values, tokens)
                    self.records.keep_values(plain, values, tokens)

    def _term(
        self, name: str, views: Mapping[str, Distribution], tokens: Tensor, gradient_wanted: bool
    ) -> Tensor | None:
        """Loss and metrics of one term on its own tokens of the block; its gradient with respect to the logits."""
        block = self.terms[name]
        kept = block.mask[tokens].nonzero().squeeze(-1)
        whole = len(kept) == len(tokens)
        own = views if whole else {view: distribution.rows(kept) for view, distribution in views.items()}
        tokens = tokens[kept]
        result = term_loss(
            TermTokens(
                name, own[self.learns], own, self.batch, tokens, self.records, block.measures, name in self.difficulty
            ),
            block.term,
        )
        weight, factor = block.weight[tokens], block.factor[tokens]
        if result.weight is not None:
            weight, factor = weight * result.weight, factor * result.weight
        self._add_weights(name, block, weight, result.difficulty, tokens)
        loss = result.loss if result.scale is None else result.loss * result.scale
        self._add_loss(name, block, loss, factor, weight, tokens)
        if not gradient_wanted:
            return None
        gradient, temperature = result.gradient(), temperature_of(block.term)
        scale = torch.ones_like(weight) if result.scale is None else result.scale.to(weight.dtype)
        norm = gradient.norm(dim=-1) * (weight * scale / temperature).to(gradient.dtype)
        self.records.mean(f"logit_gradient/{name}", norm, tokens)
        gradient *= (self.coefficients[name] / temperature * factor * scale).to(gradient.dtype)[:, None]
        return gradient if whole else torch.zeros_like(views[self.learns].probs).index_copy_(0, kept, gradient)

    def _adds_weights(self, block: TermBlock) -> bool:
        """Whether the own denominator is Σw, known only as the blocks come."""
        term = block.term
        return not isinstance(term, Preference) and (
            block.measures and term.reduction == "token_mean" and term.normalise == "weights"
        )

    def _add_weights(
        self, name: str, block: TermBlock, weight: Tensor, difficulty: Tensor | None, tokens: Tensor
    ) -> None:
        self.records.keep_values(f"weight/{name}", weight, tokens)
        if block.weighted or block.measures:
            self.records.mean(f"weight/{name}", weight, tokens)
        if difficulty is not None:
            self.records.keep_values(f"difficulty/{name}", difficulty, tokens)
            if block.measures or name in self.difficulty:
                self.records.mean(f"load/{name}", weight * difficulty, tokens)

    def _add_loss(
        self, name: str, block: TermBlock, loss: Tensor, factor: Tensor, weight: Tensor, tokens: Tensor
    ) -> None:
        reduced = (factor * loss.double()).sum()
        self.value += self.coefficients[name] * reduced
        self.records.keep_values(f"loss/{name}", loss, tokens)
        if not isinstance(block.term, Preference):
            own = float(weight.sum()) if self._adds_weights(block) else 0.0
            self.records.add(f"loss/{name}", reduced * block.denominators[0], own)
