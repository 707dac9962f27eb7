"""Which runs need a look, and why. Pure: no page, no store."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
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
RULES = (
    f"Listed are runs that failed or were stopped; running ones that recorded nothing for {QUIET_SECONDS / 60:.0f} "
    f"minutes; more than {UNSCORED_FLAG:.0%} of the answers or of the training rollouts not scored; a mean entropy of "
    f"the student over its last {ENDS_SHARE:.0%} of updates below {COLLAPSED:.0%} of that over its first "
    f"{ENDS_SHARE:.0%}; divergences and other metrics that were NaN or infinite; unreadable records."
)

SIGNS = ("rollouts", "unscored_rollouts", "first_entropy", "last_entropy", "non_finite_divergences")
"""Columns of ``queries/training_signs.sql`` beside the run."""


def health(runs: pd.DataFrame, signs: pd.DataFrame, now: datetime) -> pd.DataFrame:
    """One row a run and reason; ``now`` in UTC without a zone, as the store keeps times.

    ``runs`` are the rows of ``queries/runs.sql``, ``signs`` those of ``queries/training_signs.sql``: both have
    every run once.
    """
    found: list[dict[str, Any]] = []
    for run in records(runs.merge(signs[["run_id", *SIGNS]], on="run_id")):
        reasons = [*_run_reasons(run, now), *_training_reasons(run)]
        found += [{"run_id": run["run_id"], "label": run["label"], "seed": run["seed"], **r} for r in reasons]
    return pd.DataFrame(found, columns=["run_id", "label", "seed", "what", "detail"])


def _run_reasons(run: Mapping[str, Any], now: datetime) -> Iterable[dict[str, str]]:
    if run["status"] in ("failed", "stopped"):
        message = run["error"]
        yield {"what": run["status"], "detail": message if isinstance(message, str) else "no message recorded"}
    if run["status"] == "running" and not pd.isna(run["last_activity"]):
        quiet = (now - run["last_activity"]).total_seconds()
        if quiet > QUIET_SECONDS:
            yield {"what": "quiet", "detail": f"running, but nothing recorded for {duration(quiet)}: is it alive?"}
    if run["unscored_rate"] > UNSCORED_FLAG:
        yield {"what": "unscored answers", "detail": f"{run['unscored_rate']:.1%} of {run['answers']} answers"}
    if run["bad_lines"] > 0:
        yield {"what": "unreadable records", "detail": f"{run['bad_lines']} spool lines are in quarantine"}


def _training_reasons(run: Mapping[str, Any]) -> Iterable[dict[str, str]]:
    """A run that recorded no entropy has NaN there, and comparisons with NaN are false."""
    rate = run["unscored_rollouts"] / run["rollouts"] if run["rollouts"] else 0.0
    if rate > UNSCORED_FLAG:
        yield {"what": "unscored rollouts", "detail": f"{rate:.1%} of {run['rollouts']} training rollouts"}
    if run["last_entropy"] < COLLAPSED * run["first_entropy"]:
        yield {
            "what": "entropy collapsed",
            "detail": f"the student's mean entropy went from {run['first_entropy']:.3g} to {run['last_entropy']:.2g}",
        }
    divergences = run["non_finite_divergences"]
    if divergences > 0:
        yield {"what": "divergence not finite", "detail": f"{divergences} values were NaN or infinite"}
    others = run["non_finite_metrics"] - divergences
    if others > 0:
        yield {"what": "not finite", "detail": f"{others} metric values were NaN or infinite"}
