"""What must agree before an objective is computed; every error names the term or the view."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import torch
from torch import Tensor, nn

from training.losses.names import parse_view_value, target_views, temperature_of
from training.method import AnyTerm, CrossEntropy, Distill, PolicyGradient, Preference, SampledKL, TowardStudent
from training.token_batch import PER_TERM, Denominators, TokenBatch


def check_terms(terms: Mapping[str, AnyTerm], batch: TokenBatch, learns: str, difficulty: Collection[str]) -> None:
    """The batch carries, for every term, what the term reads, in the right shape and finite where it is read."""
    if not terms:
        raise ValueError("objective needs at least one term")
    for name, term in terms.items():
        if term.of != learns:
            raise ValueError(f"term {name!r} teaches view {term.of!r}, but view {learns!r} is learning")
        mask = batch.term_mask(name)
        if mask.shape != batch.ids.shape or mask.dtype != torch.bool:
            raise ValueError(
                f"mask of term {name!r} must be bool {[*batch.ids.shape]}, got {mask.dtype} {[*mask.shape]}"
            )
        _check_term(name, term, batch, mask)
    for field in PER_TERM:
        unknown = [name for name in getattr(batch, field) if name not in terms]
        if unknown:
            what = "masks" if field == "mask" else f"{field} values"
            raise ValueError(f"{what} for terms that do not exist: {unknown}; terms: {[*terms]}")
    wrong = [name for name in difficulty if not isinstance(terms.get(name), Distill)]
    if wrong:
        raise ValueError(f"difficulty is asked for {sorted(wrong)}, which are no distill terms; terms: {[*terms]}")


def _check_term(name: str, term: AnyTerm, batch: TokenBatch, mask: Tensor) -> None:
    for field in ("weight", "final_weight"):
        given = getattr(batch, field).get(name)
        if given is not None:
            _check_numbers(f"{field} of term {name!r}", given, mask, nonnegative=True)
    if isinstance(term, PolicyGradient):
        if name not in batch.advantage:
            raise ValueError(f"term {name!r} is a policy gradient and the batch carries no advantage for it")
        _check_numbers(f"advantage of term {name!r}", batch.advantage[name], mask)
    if isinstance(term, Preference):
        if name not in batch.slope:
            raise ValueError(f"term {name!r} is a preference and the batch carries no slope for it")
        _check_numbers(f"slope of term {name!r}", batch.slope[name], mask)
    if isinstance(term, CrossEntropy) and term.labels == "references" and name not in batch.labels:
        raise ValueError(f"term {name!r} has labels 'references' and the batch carries no labels for it")
    picks = isinstance(term, Distill) and isinstance(term.mix, TowardStudent) and term.mix.positions != "all"
    if picks and name not in batch.toward_student:
        raise ValueError(f"term {name!r} mixes at picked positions and the batch carries no toward_student for it")
    _check_ratios(name, term, batch, mask)


def _check_ratios(name: str, term: AnyTerm, batch: TokenBatch, mask: Tensor) -> None:
    """Old and sampler log-probabilities, where the term weighs by their ratios."""
    reads_sampler = isinstance(term, Distill | PolicyGradient) and term.sampler_importance_clip is not None
    reads_old = isinstance(term, PolicyGradient) or reads_sampler
    reads_old = reads_old or (isinstance(term, Distill | SampledKL) and term.importance is not None)
    if reads_old and batch.old_logprobs is not None:
        temperature = temperature_of(term)
        if temperature not in batch.old_logprobs:
            raise ValueError(
                f"term {name!r} needs old_logprobs at temperature {temperature:g}; there are {[*batch.old_logprobs]}"
            )
        _check_numbers(f"old_logprobs for term {name!r}", batch.old_logprobs[temperature], mask)
    if reads_sampler:
        if batch.sampler_logprobs is None:
            raise ValueError(f"term {name!r} has a sampler_importance_clip and the batch carries no sampler_logprobs")
        _check_numbers(f"sampler_logprobs for term {name!r}", batch.sampler_logprobs, mask)


def _check_numbers(what: str, values: Tensor, mask: Tensor, *, nonnegative: bool = False) -> None:
    if values.shape != mask.shape:
        raise ValueError(f"{what} must be {[*mask.shape]}, got {[*values.shape]}")
    bad = mask & (~torch.isfinite(values) | (values < 0 if nonnegative else False))
    if bool(bad.any()):
        row = int(bad.nonzero()[0])
        raise ValueError(f"{what} is {float(values[row])} at token {row}, which takes part in the term")


def check_counts(terms: Mapping[str, AnyTerm], batch: TokenBatch, counts: Denominators, own: Denominators) -> None:
    """The global denominators hold every term, at least as much as this micro-batch, and what its reduction needs."""
    for name, term in terms.items():
        if name not in counts.tokens or name not in counts.sequences:
            raise ValueError(f"denominators lack term {name!r}; they name {[*counts.tokens]}")
        if counts.tokens[name] < own.tokens[name] or counts.sequences[name] < own.sequences[name]:
            raise ValueError(
                f"term {name!r} keeps {own.tokens[name]:g} tokens of {own.sequences[name]:g} sequences here, but its "
                f"global denominators are {counts.tokens[name]:g} and {counts.sequences[name]:g}: count over all "
                "micro-batches and ranks"
            )
        if isinstance(term, Preference):
            continue
        if term.reduction == "constant" and counts.max_new_tokens < 1:
            raise ValueError(f"term {name!r} has reduction 'constant', which needs denominators.max_new_tokens")
        if term.normalise == "weights":
            _check_weights(name, term, batch, counts, own)


def _check_weights(name: str, term: AnyTerm, batch: TokenBatch, counts: Denominators, own: Denominators) -> None:
    assert not isinstance(term, Preference)
    if batch.measures_weight(name, term):
        if term.reduction != "token_mean":
            raise ValueError(
                f"term {name!r} divides each sequence by weights that its own forward pass gives: measure them first "
                "(objective.weigh), or set reduction to token_mean or normalise to tokens"
            )
        return
    weighted = name in batch.weight or name in batch.final_weight
    if weighted and (name not in counts.weights or name not in counts.weighted_sequences):
        raise ValueError(f"term {name!r} has weights, and the denominators do not hold their sum over the global batch")
    # The sums run over the same numbers in another order, hence the margin.
    if counts.total(name, term) < own.total(name, term) * (1 - 1e-9) or (
        counts.counted_sequences(name, term) < own.counted_sequences(name, term)
    ):
        raise ValueError(
            f"term {name!r} has weights of {own.total(name, term):g} on {own.counted_sequences(name, term):g} "
            f"sequences here, but its global denominators are {counts.total(name, term):g} and "
            f"{counts.counted_sequences(name, term):g}: add up over all micro-batches and ranks"
        )


def check_views(
    terms: Mapping[str, AnyTerm],
    batch: TokenBatch,
    hidden: Mapping[str, Tensor],
    heads: Mapping[str, nn.Module],
    learns: str,
) -> None:
    """Hidden states and a head for every view that is read, one state a token."""
    for name, term in terms.items():
        if learns in target_views(term):
            raise ValueError(f"term {name!r} holds view {learns!r} against itself")
        for view in (term.of, *target_views(term)):
            if view not in hidden or view not in heads:
                raise ValueError(f"term {name!r} needs hidden states and a head of view {view!r}; got {[*hidden]}")
            if len(hidden[view]) != len(batch.ids):
                raise ValueError(
                    f"view {view!r} has {len(hidden[view])} hidden states for {len(batch.ids)} response tokens"
                )


def check_keep(terms: Mapping[str, AnyTerm], hidden: Mapping[str, Tensor], keep: frozenset[str]) -> None:
    """Every per-token value that is asked for exists."""
    known = {f"loss/{name}" for name in terms} | {f"weight/{name}" for name in terms}
    known |= {f"divergence/{name}" for name, term in terms.items() if isinstance(term, Distill | SampledKL)}
    distilled = [name for name, term in terms.items() if isinstance(term, Distill)]
    known |= {f"{what}/{name}" for what in ("difficulty", "forward_kl") for name in distilled}
    views = {f"{what}/{view}" for what in ("entropy", "logprob") for view in hidden}
    wrong = []
    for name in keep:
        value = parse_view_value(name)
        bad_temperature = value is not None and value.temperature is not None and value.temperature <= 0
        if bad_temperature or (name not in known if value is None else f"{value.what}/{value.view}" not in views):
            wrong.append(name)
    if wrong:
        raise ValueError(f"no per-token values {sorted(wrong)}; this objective has {sorted(known | views)}")
