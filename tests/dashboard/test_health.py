"""What needs a look: every reason by hand, and from a store in which it is the case."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from dashboard import health
from dashboard.reading import query_text
from evaluation.results.ingest import ingest
from evaluation.results.records import StepRecord
from evaluation.results.snapshot import open_snapshot
from evaluation.results.spool import Spool
from tests.dashboard.conftest import Open
from tests.dashboard.seen import table
from tests.evaluation.results.factory import Cell, Study, cost_at, run_id, write_base, write_run

NOW = datetime(2026, 1, 1, 12)

RUN = {
    "run_id": "r",
    "label": "A",
    "seed": 0,
    "is_control": False,
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
    "first_length": float("nan"),
    "last_length": float("nan"),
    "last_truncated": float("nan"),
    "non_finite_divergences": 0,
    "spikes": 0,
    "largest_spike": float("nan"),
    "spike_name": None,
    "spike_update": float("nan"),
    "context_in_prompt": float("nan"),
    "context_copied": float("nan"),
    "answers_in_prompts": 0,
    "answer_shown_in": None,
}
SCORES = {
    "run_id": "r",
    "benchmark": "addition",
    "split": "test",
    "update": 400,
    "accuracy": 0.5,
    "standard_error": 0.03,
    "base_accuracy": 0.3,
    "base_standard_error": 0.04,
    "best_accuracy": 0.5,
    "best_standard_error": 0.03,
    "best_update": 400,
}
SPIKE = {"spikes": 2, "largest_spike": 11.0, "spike_name": "divergence/distill/jsd", "spike_update": 7.0}


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
        ({"first_length": 100.0, "last_length": 201.0}, ["length drift"]),
        ({"first_length": 100.0, "last_length": 49.0}, ["length drift"]),
        ({"first_length": 100.0, "last_length": 200.0}, []),
        ({"last_truncated": 0.51}, ["truncated"]),
        ({"last_truncated": 0.5}, []),
        (SPIKE, ["divergence spike"]),
        ({"context_in_prompt": 0.001, "context_copied": 0.021}, ["context leak", "context leak"]),
        ({"context_in_prompt": 0.0, "context_copied": 0.02}, []),
        ({"answers_in_prompts": 1, "answer_shown_in": "p7"}, ["answer in the prompt"]),
        ({"non_finite_metrics": 2, "non_finite_divergences": 2}, ["divergence not finite"]),
        ({"non_finite_metrics": 3, "non_finite_divergences": 2}, ["divergence not finite", "not finite"]),
    ],
)
def test_reasons(changed: dict[str, Any], what: list[str]) -> None:
    runs = pd.DataFrame([{name: changed.get(name, value) for name, value in RUN.items()}])
    signs = pd.DataFrame([{name: changed.get(name, value) for name, value in SIGNS.items()}])
    assert list(health.health(runs, signs, pd.DataFrame([SCORES]), NOW)["what"]) == what


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({}, None),
        # 2 · √(0.03² + 0.04²) = 0.1: a tenth below the untrained model is on the edge.
        ({"accuracy": 0.199}, "19.9% on addition (test) at update 400: the untrained model has 30.0%"),
        ({"accuracy": 0.201, "best_accuracy": 0.3}, None),
        ({"accuracy": 0.45, "best_accuracy": 0.91, "best_update": 40}, "it had 91.0% at update 40"),
        ({"accuracy": 0.46, "best_accuracy": 0.91}, None),
        ({"accuracy": 0.02, "base_accuracy": float("nan"), "best_accuracy": 0.04}, None),
        ({"accuracy": 0.0, "standard_error": float("nan")}, None),
    ],
)
def test_accuracy_that_collapsed(changed: dict[str, Any], says: str | None) -> None:
    scores, runs = pd.DataFrame([SCORES | changed]), pd.DataFrame([RUN])
    found = health.health(runs, pd.DataFrame([SIGNS]), scores, NOW)
    assert list(found["what"]) == ([] if says is None else ["accuracy collapsed"])
    assert says is None or says in found["detail"].iloc[0]
    control = health.health(runs.assign(is_control=True), pd.DataFrame([SIGNS]), scores, NOW)
    assert control.empty, "a control is expected not to learn"


def test_every_reason_has_a_rule_that_people_can_read() -> None:
    named = {name for names in health.RULES for name in names.split(", ")}
    troubled = {"status": "failed", "error": None, "unscored_rate": 1.0, "bad_lines": 1, "non_finite_metrics": 9}
    signs = SIGNS | SPIKE | {"rollouts": 9, "unscored_rollouts": 9, "first_entropy": 1.0, "last_entropy": 0.0}
    signs |= {"first_length": 1.0, "last_length": 9.0, "last_truncated": 1.0, "non_finite_divergences": 1}
    signs |= {"context_in_prompt": 1.0, "answers_in_prompts": 1, "answer_shown_in": "p"}
    runs = pd.DataFrame([RUN | troubled])
    found = health.health(runs, pd.DataFrame([signs]), pd.DataFrame([SCORES | {"accuracy": 0.0}]), NOW)
    assert set(found["what"]) == named - {"stopped", "quiet"}


def _series(store: Path, name: str, values: Sequence[float | None], **more: Any) -> None:
    """One run that recorded these values of one metric."""
    study = Study(seeds=(0,), updates=0, cells=(Cell("OPSD", "opsd", 0.8),))
    run = write_run(store, study, study.cells[0], 0)
    with Spool(store / "runs" / run, role="trainer", attempt=1) as spool:
        for update, value in enumerate(values, start=1):
            spool.append(StepRecord(run, update, 0, {name: value, **more}, cost_at(study, update), 1.0))
    ingest(store)


def test_signs_of_a_series(tmp_path: Path) -> None:
    """Flat at 0.1 nats, one spike to 12 times that at update 14, one value that is not finite."""
    values: list[float | None] = [0.1] * 20
    values[13], values[16] = 1.2, None
    _series(tmp_path, "divergence/distill/forward_kl_exact", values, **{"completion_tokens_mean": 7.0})
    with open_snapshot(tmp_path) as con:
        (signs,) = con.execute(query_text("training_signs"), health.PARAMETERS).df().to_dict("records")
    assert (signs["spikes"], signs["spike_update"], signs["non_finite_divergences"]) == (1, 14, 1)
    assert signs["largest_spike"] == pytest.approx(12)
    assert (signs["first_length"], signs["last_length"]) == (7, 7) and pd.isna(signs["first_entropy"])


def test_a_divergence_that_falls_or_is_tiny_has_no_spike(tmp_path: Path) -> None:
    """From 5 nats down by a fifth an update: the first is 100 times the last, and none is above those before it."""
    _series(tmp_path, "divergence/distill/forward_kl_exact", [5 * 0.8**i for i in range(20)] + [1e-5] * 12 + [9e-3])
    with open_snapshot(tmp_path) as con:
        (signs,) = con.execute(query_text("training_signs"), health.PARAMETERS).df().to_dict("records")
    assert signs["spikes"] == 0


def test_a_simulated_collapse_is_pointed_out(open_page: Open, tmp_path: Path) -> None:
    """The known fault: accuracy falls after 400 updates; the overview says so, with the run's seed."""
    good, bad = Cell("good", "opsd", 0.9), Cell("collapsed", "sdpo", 0.02)
    study = Study(seeds=(3,), updates=4, every=4, problems=60, cells=(good, bad))
    write_base(tmp_path, study)
    for cell in study.cells:
        write_run(tmp_path, study, cell, 3)
    ingest(tmp_path)
    flags = table(open_page(tmp_path), "what", "detail")
    assert list(zip(flags["label"], flags["seed"], flags["what"], strict=True)) == [
        ("collapsed", 3, "accuracy collapsed")
    ]


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
    rules = next(element.value for element in app.table)
    assert "below 5% of that over the first 20%" in str(rules.loc["entropy collapsed", "rule"])
