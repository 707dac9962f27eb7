"""The table of methods: one row a method, short cells, made from the specs (no torch)."""

from __future__ import annotations

from collections.abc import Iterator

from training.contexts.specs import (
    Context,
    DemonstrationContext,
    OverlapMaskedContext,
    PartialSolutionContext,
    PeerSuccessContext,
)
from training.method import (
    JSD,
    AnyTerm,
    CrossEntropy,
    Distill,
    GeometricMix,
    Method,
    PolicyGradient,
    Preference,
    Renyi,
    SampledKL,
    TopKSupport,
    TopTokens,
    TowardStudent,
    UsdHard,
    UsdSoft,
    View,
)
from training.methods import METHODS
from training.schedules import Controlled, Dynamic

COLUMNS = {
    "method": "method",
    "teacher": "teacher weights",
    "context": "privileged context",
    "loss": "divergence or loss",
    "weighting": "token weighting",
    "paper": "paper",
    "status": "status",
}
"""Key of a row's cell -> its heading."""


def method_rows() -> list[dict[str, str]]:
    """One row a method: what the table of the README shows."""
    return [method_row(method) for method in METHODS.values()]


def methods_markdown() -> str:
    """The methods as the Markdown table of the README."""
    lines = ["| " + " | ".join(COLUMNS.values()) + " |", "|" + " --- |" * len(COLUMNS)]
    for row in method_rows():
        cells = [f"`{row[column]}`" if column == "method" else row[column] for column in COLUMNS]
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(lines)


def method_row(method: Method) -> dict[str, str]:
    """One method in words."""
    return {
        "method": method.key,
        "teacher": _distinct(_teachers(method)),
        "context": _distinct(_context(view.context) for view in _privileged(method)),
        "loss": " + ".join(_loss(term) for term in method.terms()),
        "weighting": _distinct(_weighting(method)) if any(_weighting(method)) else "uniform",
        "paper": (method.paper or "–").removeprefix("arXiv:"),
        "status": method.status,
    }


def _distinct(words: Iterator[str]) -> str:
    return ", ".join(dict.fromkeys(words)) or "–"


def _privileged(method: Method) -> Iterator[View]:
    """The views in use that see more than the problem."""
    return (view for name, view in method.views.items() if name in method.views_used() and view.context.kind != "none")


def _teachers(method: Method) -> Iterator[str]:
    mixed = [term for term in method.terms() if isinstance(term, Distill) and isinstance(term.mix, GeometricMix)]
    for term in mixed:
        mix = term.mix
        assert isinstance(mix, GeometricMix)
        share = mix.share if isinstance(mix.share, float) else 1.0
        target, anchor = (_weight_words(method.views[name]).split()[0] for name in (term.against, mix.reference))
        yield f"{target}^{share:g} · {anchor}^{1 - share:g}"
    if not mixed:
        yield from (_weight_words(view) for view in _privileged(method))


def _weight_words(view: View) -> str:
    weights = view.weights
    match weights.kind:
        case "ema":
            return f"average {weights.teacher_update_rate:g}"
        case "student":
            return "live"
        case "phase_start":
            return "before the update"
        case "synced":
            return f"copy every {weights.every}"
        case _:
            return weights.kind


def _context(context: Context) -> str:
    match context:
        case PartialSolutionContext():
            return f"{_number(context.share, 'β')} of the solution"
        case OverlapMaskedContext():
            return "solution less overlap"
        case PeerSuccessContext():
            return "peer success" if context.feedback == "never" else "peer success or feedback"
        case DemonstrationContext():
            return "demonstration"
        case _:
            return context.kind.replace("_", " ")


def _number(value: Dynamic, symbol: str) -> str:
    return f"{value:g}" if isinstance(value, int | float) else symbol


def _loss(term: AnyTerm) -> str:
    factor = "" if term.coefficient == 1 else f"{_number(term.coefficient, 'β(k)')} · "
    return factor + _loss_words(term)


def _loss_words(term: AnyTerm) -> str:
    match term:
        case Distill():
            return _divergence(term) + _support(term) + (" on solutions" if term.data == "references" else "")
        case PolicyGradient():
            return "policy gradient"
        case SampledKL():
            return f"{term.estimator.upper() if len(term.estimator) > 2 else term.estimator} to the start"
        case CrossEntropy():
            return "cross entropy"
        case Preference():
            return "unpaired preference"
        case _:
            return term.kind


def _divergence(term: Distill) -> str:
    match term.divergence:
        case JSD():
            return f"JSD {term.divergence.beta:g}"
        case Renyi():
            return f"Rényi {term.divergence.order:g}"
        case _:
            return term.divergence.kind.removesuffix("_kl") + " KL"


def _support(term: Distill) -> str:
    if not isinstance(term.support, TopKSupport):
        return ""
    return f" (top {term.support.k}{' + tail' if term.support.rest == 'tail' else ''})"


def _weighting(method: Method) -> Iterator[str]:
    for term in method.terms():
        match term:
            case Distill():
                yield from _distill_weighting(term)
            case PolicyGradient():
                yield from _reward_weighting(term)
            case CrossEntropy() if term.alignment is not None:
                yield "1 − " + term.alignment.similarity.replace("token_f1", "F1").replace("_", " ")
    if method.batch.groups == "mixed_rewards":
        yield "mixed groups only"


def _distill_weighting(term: Distill) -> Iterator[str]:
    match term.weighting:
        case UsdSoft() | UsdHard():
            price = "λ" if isinstance(term.weighting.price, Controlled) else _number(term.weighting.price, "λ")
            yield f"σ((g − {price}·d)/τ)" if isinstance(term.weighting, UsdSoft) else f"1[g > {price}·d]"
        case TopTokens():
            yield f"top {100 * term.weighting.keep:g} % by {term.weighting.score.replace('_', '-')}"
    if isinstance(term.mix, TowardStudent):
        yield f"{_number(term.mix.share, 'γ')} toward the student at entropy gaps"
    if term.gate != "all":
        yield "A > 0" if term.gate == "positive_advantage" else term.gate
    if term.entry_clip is not None:
        yield f"entry clip {term.entry_clip:g}"
    if term.token_clip is not None:
        yield f"token clip {term.token_clip:g}"
    if term.importance is not None:
        yield "ρ" if term.importance.clip is None else f"ρ ≤ {term.importance.clip:g}"


def _reward_weighting(term: PolicyGradient) -> Iterator[str]:
    yield f"clip {term.clip_low:g}/{term.clip_high:g}"
    if term.advantage.kind == "group" and not term.advantage.divide_by_std:
        yield "no std"
    if term.modulation is not None:
        yield f"A × teacher ratio, 1 ± {term.modulation.bound:g}"
    if term.dual_clip is not None:
        yield f"dual clip {term.dual_clip:g}"
