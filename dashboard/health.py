"""Which runs need a look, and why. Pure: no page, no store."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from math import hypot
from typing import Any

import pandas as pd

from dashboard.frames import duration, records
from evaluation.results.tables import UNSCORED_FLAG

QUIET_SECONDS = 600.0
"""A running run that has recorded nothing for so long is pointed out."""
ENDS_SHARE = 0.2
"""The first and the last updates that are compared are this share of all updates with a value."""
COLLAPSED = 0.05
"""A run whose last entropy is below this share of its first is pointed out."""
DRIFT = 2.0
"""So are answers that became longer or shorter by this factor."""
SPIKE = 10.0
"""A divergence above this multiple of the median of the updates before it is a spike."""
SPIKE_WINDOW = 10
"""Updates before a value that its size is judged by."""
SPIKE_FLOOR = 0.01
"""In nats: smaller divergences are no spikes, whatever came before."""
TRUNCATED = 0.5
"""Share of rollouts cut off at the token limit over the last updates."""
ERRORS = 2.0
"""An accuracy is below another when it is so by more standard errors of their difference, taken as independent."""
FALLEN = 0.5
"""Share of a run's best accuracy below which its last has collapsed."""
COPIED = 0.02
"""Share of an update's failed rollouts that hold a whole privileged context that they were not shown."""
LEAK_CHARACTERS = 12
"""Shorter answers stand in prompts by chance and are not looked for."""

PARAMETERS = {
    "share": ENDS_SHARE,
    "window": SPIKE_WINDOW,
    "spike": SPIKE,
    "floor": SPIKE_FLOOR,
    "characters": LEAK_CHARACTERS,
}
"""What ``queries/training_signs.sql`` is asked with."""

RULES = {
    "failed, stopped": "The run's last event says so; the detail is its message.",
    "quiet": f"A running run has recorded nothing for {QUIET_SECONDS / 60:.0f} minutes. From its processes' records.",
    "unscored answers, unscored rollouts": (
        f"More than {UNSCORED_FLAG:.0%} of the run's answers, or of its training rollouts, could not be scored."
    ),
    "unreadable records": "Lines of its spools are in quarantine.",
    "accuracy collapsed": (
        f"The last whole evaluation is below the untrained model's, or below {FALLEN:.0%} of the run's best, by more "
        f"than {ERRORS:g} standard errors of the difference (counted as independent). Controls are left out."
    ),
    "entropy collapsed": (
        f"The student's mean entropy over the last {ENDS_SHARE:.0%} of updates is below {COLLAPSED:.0%} of that over "
        f"the first {ENDS_SHARE:.0%}. Metric entropy/student."
    ),
    "length drift": (
        f"Rollouts of the last {ENDS_SHARE:.0%} of updates are {DRIFT:g} times as long as those of the first "
        f"{ENDS_SHARE:.0%}, or as short. Metric completion_tokens_mean."
    ),
    "truncated": (
        f"More than {TRUNCATED:.0%} of the rollouts of the last {ENDS_SHARE:.0%} of updates were cut off. Metric "
        "truncated_fraction."
    ),
    "divergence spike": (
        f"A divergence is more than {SPIKE:g} times the median of the {SPIKE_WINDOW} updates before it and above "
        f"{SPIKE_FLOOR:g} nats. Metrics divergence/…"
    ),
    "divergence not finite, not finite": "Metrics were NaN or infinite (stored as empty and counted).",
    "context leak": (
        "A student's prompt held the privileged context of another view, or more than "
        f"{COPIED:.0%} of an update's failed rollouts repeated one whole. Metrics context_in_prompt/…, context_copied/…"
    ),
    "answer in the prompt": (
        f"A problem's prompt holds its expected answer ({LEAK_CHARACTERS} characters or more). From the problems."
    ),
}
"""What is pointed out -> its rule and the rows it is read from."""

SIGNS = (
    "rollouts",
    "unscored_rollouts",
    "first_entropy",
    "last_entropy",
    "first_length",
    "last_length",
    "last_truncated",
    "non_finite_divergences",
    "spikes",
    "largest_spike",
    "spike_name",
    "spike_update",
    "context_in_prompt",
    "context_copied",
    "answers_in_prompts",
    "answer_shown_in",
)
"""Columns of ``queries/training_signs.sql`` beside the run."""
COLUMNS = ("run_id", "label", "seed", "what", "detail")

Reason = dict[str, str]


def table(rules: Mapping[str, str] = RULES) -> pd.DataFrame:
    """The rules, for people."""
    return pd.DataFrame(list(rules.items()), columns=["pointed out", "rule"])


def health(runs: pd.DataFrame, signs: pd.DataFrame, scores: pd.DataFrame, now: datetime) -> pd.DataFrame:
    """One row a run and reason; ``now`` in UTC without a zone, as the store keeps times.

    ``runs`` are the rows of ``queries/runs.sql`` and ``signs`` those of ``queries/training_signs.sql``: both have
    every run once. ``scores`` are the rows of ``queries/score_signs.sql``.
    """
    evaluated = {str(run): records(rows) for run, rows in scores.groupby("run_id")}
    found: list[dict[str, Any]] = []
    for run in records(runs.merge(signs[["run_id", *SIGNS]], on="run_id")):
        reasons = [*_run_reasons(run, now), *_score_reasons(run, evaluated.get(run["run_id"], []))]
        reasons += [*_training_reasons(run), *_leak_reasons(run)]
        found += [{"run_id": run["run_id"], "label": run["label"], "seed": run["seed"], **r} for r in reasons]
    return pd.DataFrame(found, columns=list(COLUMNS))


def _reason(what: str, detail: str) -> Reason:
    return {"what": what, "detail": detail}


def _run_reasons(run: Mapping[str, Any], now: datetime) -> Iterable[Reason]:
    if run["status"] in ("failed", "stopped"):
        message = run["error"]
        yield _reason(run["status"], message if isinstance(message, str) else "no message recorded")
    if run["status"] == "running" and not pd.isna(run["last_activity"]):
        quiet = (now - run["last_activity"]).total_seconds()
        if quiet > QUIET_SECONDS:
            yield _reason("quiet", f"running, but nothing recorded for {duration(quiet)}: is it alive?")
    if run["unscored_rate"] > UNSCORED_FLAG:
        yield _reason("unscored answers", f"{run['unscored_rate']:.1%} of {run['answers']} answers")
    if run["bad_lines"] > 0:
        yield _reason("unreadable records", f"{run['bad_lines']} spool lines are in quarantine")


def _score_reasons(run: Mapping[str, Any], scores: Iterable[Mapping[str, Any]]) -> Iterable[Reason]:
    """At most one reason a benchmark and split."""
    if run["is_control"]:
        return
    for score in scores:
        on = f"on {score['benchmark']} ({score['split']}) at update {score['update']}"
        last, error = score["accuracy"], score["standard_error"]
        if _below(last, error, score["base_accuracy"], score["base_standard_error"]):
            base = score["base_accuracy"]
            yield _reason("accuracy collapsed", f"{last:.1%} {on}: the untrained model has {base:.1%}")
        elif last < FALLEN * score["best_accuracy"] and _below(
            last, error, score["best_accuracy"], score["best_standard_error"]
        ):
            best = f"it had {score['best_accuracy']:.1%} at update {score['best_update']}"
            yield _reason("accuracy collapsed", f"{last:.1%} {on}: {best}")


def _below(value: float, error: float, other: float, other_error: float) -> bool:
    """False where anything is unknown (NaN)."""
    return other - value > ERRORS * hypot(error, other_error)


def _training_reasons(run: Mapping[str, Any]) -> Iterable[Reason]:
    """A run that did not record a metric has NaN there, and comparisons with NaN are false."""
    rate = run["unscored_rollouts"] / run["rollouts"] if run["rollouts"] else 0.0
    if rate > UNSCORED_FLAG:
        yield _reason("unscored rollouts", f"{rate:.1%} of {run['rollouts']} training rollouts")
    if run["last_entropy"] < COLLAPSED * run["first_entropy"]:
        ends = f"from {run['first_entropy']:.3g} to {run['last_entropy']:.2g}"
        yield _reason("entropy collapsed", f"the student's mean entropy went {ends}")
    first, last = run["first_length"], run["last_length"]
    if last > DRIFT * first or DRIFT * last < first:
        yield _reason("length drift", f"rollouts went from {first:.3g} to {last:.3g} tokens")
    if run["last_truncated"] > TRUNCATED:
        yield _reason("truncated", f"{run['last_truncated']:.0%} of the last rollouts were cut off")
    if run["spikes"] > 0:
        largest = f"{run['largest_spike']:.3g}× in {run['spike_name']} at update {run['spike_update']:.0f}"
        yield _reason("divergence spike", f"{largest} is the largest of {run['spikes']}")
    divergences = run["non_finite_divergences"]
    if divergences > 0:
        yield _reason("divergence not finite", f"{divergences} values were NaN or infinite")
    others = run["non_finite_metrics"] - divergences
    if others > 0:
        yield _reason("not finite", f"{others} metric values were NaN or infinite")


def _leak_reasons(run: Mapping[str, Any]) -> Iterable[Reason]:
    if run["context_in_prompt"] > 0:
        yield _reason("context leak", f"up to {run['context_in_prompt']:.1%} of an update's prompts hold a context")
    if run["context_copied"] > COPIED:
        copied = f"up to {run['context_copied']:.1%} of an update's failed rollouts"
        yield _reason("context leak", f"{copied} repeat a context they were not shown")
    if run["answers_in_prompts"] > 0:
        detail = f"{run['answers_in_prompts']} problems, e.g. {run['answer_shown_in']}"
        yield _reason("answer in the prompt", detail)
