"""Names of estimators and per-token values, and the plain numbers and views of a term."""

from __future__ import annotations

from typing import NamedTuple

from training.method import (
    JSD,
    AnyTerm,
    CrossEntropy,
    Distill,
    Divergence,
    FullSupport,
    GeometricMix,
    Mix,
    Renyi,
    SampledKL,
    Support,
)
from training.schedules import Dynamic


def plain_number(value: Dynamic, what: str) -> float:
    """``value`` where it is a number; ValueError for a schedule or a controller's output."""
    if not isinstance(value, int | float):
        raise ValueError(f"{what} is {value!r}, not a number: take terms from Method.at")
    return float(value)


def temperature_of(term: AnyTerm) -> float:
    """What divides the logits in ``term``; cross-entropy has no temperature. ValueError for an unresolved name."""
    if isinstance(term, CrossEntropy):
        return 1.0
    if isinstance(term.temperature, str):
        raise ValueError(f"temperature {term.temperature!r} is a name, not a number: take terms from Method.terms_of")
    return term.temperature


def target_views(term: AnyTerm) -> tuple[str, ...]:
    """The views, beside the learning one, whose logits the loss of ``term`` reads at every token."""
    return term.targets() if isinstance(term, Distill | SampledKL) else ()


def estimator_name(term: Distill | SampledKL) -> str:
    """The divergence and how it is computed, so that different estimators never share a name.

    ``forward_kl_exact``; ``reverse_kl_topk20_student_tail``; ``renyi0.95_exact_geometric0.9`` where the target is
    mixed (``…_geometric0.9_mix_first`` where a restricted support comes after the mixture, ``…_toward_student0.1``
    and ``…_toward_student0.1_entropy_gap``); ``kl_k3`` for an estimate from the sampled token.
    """
    if isinstance(term, SampledKL):
        return f"kl_{term.estimator}"
    return f"{_divergence_name(term.divergence)}_{_support_name(term.support)}{_mix_name(term.mix, term.support)}"


def _divergence_name(divergence: Divergence) -> str:
    if isinstance(divergence, JSD):
        return f"jsd{divergence.beta:g}"
    if isinstance(divergence, Renyi):
        return f"renyi{divergence.order:g}" + ("" if divergence.direction == "target||student" else "_swapped")
    return divergence.kind


def _support_name(support: Support) -> str:
    return "exact" if isinstance(support, FullSupport) else f"topk{support.k}_{support.of}_{support.rest}"


def _mix_name(mix: Mix | None, support: Support) -> str:
    if mix is None:
        return ""
    if isinstance(mix, GeometricMix):
        late = mix.order == "mix_first" and not isinstance(support, FullSupport)
        return f"_geometric{plain_number(mix.share, 'mix.share'):g}" + ("_mix_first" if late else "")
    picked = "" if mix.positions == "all" else f"_{mix.positions}"
    return f"_toward_student{plain_number(mix.share, 'mix.share'):g}{picked}"


def view_value(what: str, view: str, temperature: float | None = None) -> str:
    """The name of a per-token value of a view, e.g. ``logprob/student`` or ``logprob/student@0.7``."""
    return f"{what}/{view}" + ("" if temperature is None else f"@{temperature!r}")


class ViewValue(NamedTuple):
    """What ``view_value`` put into a name."""

    what: str
    view: str
    temperature: float | None


def parse_view_value(name: str) -> ViewValue | None:
    """The parts of a per-token value of a view; None for a name of another kind. ValueError for a bad temperature."""
    what, _, rest = name.partition("/")
    if what not in ("entropy", "logprob"):
        return None
    view, at, number = rest.partition("@")
    return ViewValue(what, view, float(number) if at else None)
