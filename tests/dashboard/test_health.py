"""What needs a look: every reason by hand, and from a store in which it is the case."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from dashboard import health
from evaluation.results.ingest import ingest
from tests.dashboard.conftest import Open
from tests.dashboard.seen import table, texts
from tests.evaluation.results.factory import Cell, Study, run_id, write_base, write_run

NOW = datetime(2026, 1, 1, 12)

RUN = {
    "run_id": "r",
    "label": "A",
    "seed": 0,
    "status": "done",
    "error": None,
    "last_activity": NOW,
    "answers": 100,
    "unscored_rate": 0.0,
    "non_finite_metrics": 0,
    "bad_lines": 0,
}
SIGNS = {
    "run_id": "r",
    "rollouts": 1000,
    "unscored_rollouts": 0,
    "first_entropy": float("nan"),
    "last_entropy": float("nan"),
    "non_finite_divergences": 0,
}


@pytest.mark.parametrize(
    ("changed", "what"),
    [
        ({}, []),
        ({"status": "failed", "error": "out of memory"}, ["failed"]),
        ({"status": "stopped"}, ["stopped"]),
        ({"status": "running", "last_activity": NOW - timedelta(seconds=601)}, ["quiet"]),
        ({"status": "running", "last_activity": NOW - timedelta(seconds=599)}, []),
        ({"status": "done", "last_activity": NOW - timedelta(days=9)}, []),
        ({"unscored_rate": 0.021}, ["unscored answers"]),
        ({"unscored_rate": 0.02}, []),
        ({"unscored_rate": float("nan"), "answers": 0}, []),
        ({"non_finite_metrics": 1, "bad_lines": 2}, ["unreadable records", "not finite"]),
        ({"unscored_rollouts": 21}, ["unscored rollouts"]),
        ({"unscored_rollouts": 20}, []),
        ({"rollouts": 0}, []),
        ({"first_entropy": 1.0, "last_entropy": 0.049}, ["entropy collapsed"]),
        ({"first_entropy": 1.0, "last_entropy": 0.05}, []),
        ({"first_entropy": 0.0, "last_entropy": 0.0}, []),
        ({"non_finite_metrics": 2, "non_finite_divergences": 2}, ["divergence not finite"]),
        ({"non_finite_metrics": 3, "non_finite_divergences": 2}, ["divergence not finite", "not finite"]),
    ],
)
def test_reasons(changed: dict[str, Any], what: list[str]) -> None:
    runs = pd.DataFrame([{name: changed.get(name, value) for name, value in RUN.items()}])
    signs = pd.DataFrame([{name: changed.get(name, value) for name, value in SIGNS.items()}])
    assert list(health.health(runs, signs, NOW)["what"]) == what


TROUBLES: dict[str, tuple[dict[str, Any], str]] = {
    "unscored rollouts": ({"rollouts": 4, "unscored_rollouts": 1}, "25.0% of 40 training rollouts"),
    "entropy collapsed": ({"entropies": (2.0, 0.09)}, "from 2 to 0.09"),
    "divergence not finite": ({"infinite_divergences": 3}, "3 values"),
}


@pytest.mark.parametrize("what", TROUBLES)
def test_the_overview_points_out_trouble_in_training(open_page: Open, tmp_path: Path, what: str) -> None:
    changes, says = TROUBLES[what]
    cell = Cell("OPSD", "opsd", 0.8)
    study = Study(seeds=(0,), updates=10, every=10, problems=3, cells=(cell,), **changes)
    write_base(tmp_path, study)
    write_run(tmp_path, study, cell, 0)
    ingest(tmp_path)
    app = open_page(tmp_path)
    flags = table(app, "what", "detail")
    assert list(zip(flags["run_id"], flags["what"], strict=True)) == [(run_id(study, cell, 0), what)]
    assert says in flags["detail"].iloc[0]


def test_a_run_that_was_stopped_and_one_without_trouble(open_page: Open, tmp_path: Path) -> None:
    stopped = Cell("stopped", "opsd", 0.5, statuses=("queued", "running", "stopped"))
    calm = Cell("calm", "opsd", 0.5)
    study = Study(seeds=(0,), updates=10, every=10, problems=3, cells=(stopped, calm), entropies=(2.0, 1.9))
    for cell in study.cells:
        write_run(tmp_path, study, cell, 0)
    ingest(tmp_path)
    app = open_page(tmp_path)
    flags = table(app, "what", "detail")
    assert list(zip(flags["label"], flags["what"], strict=True)) == [("stopped", "stopped")]
    assert "no message recorded" in flags["detail"].iloc[0]
    assert "below 5% of that over its first 20%" in texts(app)
