"""A comparison as a LaTeX table for a paper: methods by benchmarks, with booktabs."""

from __future__ import annotations

import re

from evaluation.results.comparison import Comparison, Row
from evaluation.results.tables import SIGNIFICANT, benchmark_text, footnotes, labels, metric_text, title

_SPECIAL = {
    "\\": r"\textbackslash{}",
    "{": r"\{",
    "}": r"\}",
    "&": r"\&",
    "%": r"\%",
    "$": r"\$",
    "#": r"\#",
    "_": r"\_",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": "$<$",
    ">": "$>$",
    "|": "$|$",
    "–": "--",
    "…": r"\ldots{}",
    "≤": r"$\le$",
    "≥": r"$\ge$",
    "×": r"$\times$",
    "·": r"$\cdot$",
    "√": r"$\surd$",
    "−": "$-$",
    "Δ": r"$\Delta$",
    "α": r"$\alpha$",
    "β": r"$\beta$",
    "γ": r"$\gamma$",
    "δ": r"$\delta$",
    "ε": r"$\varepsilon$",
    "η": r"$\eta$",
    "λ": r"$\lambda$",
    "μ": r"$\mu$",
    "π": r"$\pi$",
    "ρ": r"$\rho$",
    "σ": r"$\sigma$",
    "τ": r"$\tau$",
    "φ": r"$\varphi$",
}
_ESCAPED = re.compile("|".join(map(re.escape, _SPECIAL)))


def escape(text: str) -> str:
    """``text`` as LaTeX prints it; letters beyond those above are left to the document's encoding."""
    return _ESCAPED.sub(lambda found: _SPECIAL[found[0]], text)


def to_latex(comparison: Comparison, *, bold_best: bool = False) -> str:
    """A ``table`` environment with one row a method and, for each benchmark, its score and difference.

    Needs ``booktabs`` alone. Notes stand below the rules, one paragraph each. ``bold_best`` sets the highest mean of
    each benchmark in bold, whatever its interval; controls are left out of that.
    """
    benchmarks = list(dict.fromkeys(benchmark_text(row) for row in comparison.rows))
    name = labels(comparison)
    cells = {(name(row), benchmark_text(row)): row for row in comparison.rows}
    has_delta = comparison.baseline is not None
    per_benchmark = 2 if has_delta else 1
    lines = [
        r"% needs \usepackage{booktabs}",
        r"\begin{table}",
        r"\centering",
        rf"\caption{{{escape(title(comparison))}}}",
        rf"\begin{{tabular}}{{l{'r' * per_benchmark * len(benchmarks)}}}",
        r"\toprule",
        *_heads(comparison, benchmarks, per_benchmark),
        r"\midrule",
    ]
    best = _best(comparison) if bold_best else {}
    for method in dict.fromkeys(label for label, _ in cells):
        # After the line before, a leading bracket or star would be read as an argument of its end.
        parts = [("{}" if method.startswith(("[", "*")) else "") + escape(method)]
        for benchmark in benchmarks:
            row = cells.get((method, benchmark))
            is_best = row is not None and row.mean == best.get(benchmark) and not row.is_control
            parts.append("--" if row is None else _score(row, is_best))
            if has_delta:
                parts.append("--" if row is None else _delta(row))
        lines.append(" & ".join(parts) + r" \\")
    lines += [r"\bottomrule", r"\end{tabular}"]
    if comparison.rows or comparison.excluded:
        lines += [r"\par\medskip", r"\begin{minipage}{\linewidth}\footnotesize"]
        lines += [rf"{escape(note)}\par" for note in footnotes(comparison)]
        lines.append(r"\end{minipage}")
    return "\n".join([*lines, r"\end{table}", ""])


def _heads(comparison: Comparison, benchmarks: list[str], width: int) -> list[str]:
    score = rf"{escape(metric_text(comparison))} \%"
    delta = [rf"$\Delta$ {escape(comparison.baseline)}"] if comparison.baseline is not None else []
    names = " & ".join([r"\multicolumn{%d}{c}{%s}" % (width, escape(name)) for name in benchmarks])  # noqa: UP031
    rules = " ".join(
        rf"\cmidrule(lr){{{2 + width * place}-{1 + width * (place + 1)}}}" for place in range(len(benchmarks))
    )
    head = [rf" & {names} \\", rules] if benchmarks else []
    return [*head, " & ".join(["method", *[score, *delta] * len(benchmarks)]) + r" \\"]


def _best(comparison: Comparison) -> dict[str, float]:
    best: dict[str, float] = {}
    for row in comparison.rows:
        if not row.is_control:
            best[benchmark_text(row)] = max(row.mean, best.get(benchmark_text(row), row.mean))
    return best


def _score(row: Row, is_best: bool) -> str:
    mean = f"{100 * row.mean:.1f}"
    text = rf"\textbf{{{mean}}}" if is_best else mean
    if row.interval:
        return rf"{text} {{\scriptsize [{100 * row.interval.low:.1f}, {100 * row.interval.high:.1f}]}}"
    return rf"{text} {{\scriptsize ($n={row.n_seeds}$)}}"


def _delta(row: Row) -> str:
    if row.delta is None:
        return "--"
    star = r"$^{*}$" if row.p_holm is not None and row.p_holm < SIGNIFICANT else ""
    text = f"${100 * row.delta:+.1f}${star}"
    if row.delta_interval is None:
        return text
    low, high = row.delta_interval.low, row.delta_interval.high
    return rf"{text} {{\scriptsize [{100 * low:+.1f}, {100 * high:+.1f}]}}"
