"""Every worked query of docs/results.md against numpy on the raw lines of the spools: no database in between."""

from __future__ import annotations

import itertools
import json
from collections import defaultdict
from math import comb
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from evaluation.results.query_process import answer
from tests.evaluation.results.factory import Study, write_tuned_study
from tests.evaluation.results.test_docs import PAGE, QUERIES

COSTS = ("rollout_tokens", "reference_tokens", "teacher_tokens", "auxiliary_tokens", "trained_tokens")


class Raw:
    """What the spools say, line by line. The study was written once: no fact is there twice."""

    def __init__(self, store: Path) -> None:
        self.store = store
        self.kinds: dict[str, list[dict[str, Any]]] = defaultdict(list)
        for file in sorted(store.glob("runs/*/spool/*.jsonl")):
            for text in file.read_text().splitlines():
                line = json.loads(text)
                where = {"run": line["run_id"], "role": line["role"], "pid": line["pid"], "written": line["at"]}
                self.kinds[line["kind"]].append({**line["data"], **where})
        verdicts = {(grade["run"], grade["answer_key"]): grade["verdict"] for grade in self.kinds["grade"]}
        self.passes: dict[tuple[str, int, str], dict[str, list[bool]]] = defaultdict(lambda: defaultdict(list))
        for a in self.kinds["answer"]:
            key = f"{a['update']}/{a['benchmark']}/{a['split']}/{a['problem_id']}/{a['sample_index']}"
            place = self.passes[a["run"], a["update"], a["split"]]
            place[a["problem_id"]].append(verdicts[a["run"], key] == "pass")
        self.seeds = {run["run"]: run["seed"] for run in self.kinds["run"]}

    def cells(self, plan: str = "demo") -> list[dict[str, Any]]:
        return [cell for cell in self.kinds["plan_cell"] if cell["plan"] == plan]

    def shares(self, run: str, update: int, split: str = "test") -> np.ndarray:
        """[problems] in the order of their names."""
        return np.array([np.mean(passes) for _, passes in sorted(self.passes[run, update, split].items())])

    def last(self, run: str, split: str = "test") -> int:
        return max(update for name, update, its_split in self.passes if (name, its_split) == (run, split))

    def cost(self, run: str, update: int) -> dict[str, float]:
        found = [e["cost"] for e in self.kinds["evaluation"] if (e["run"], e["update"]) == (run, update)]
        return found[0]

    def by_label(self) -> dict[str, list[dict[str, Any]]]:
        found: dict[str, list[dict[str, Any]]] = defaultdict(list)
        for cell in self.cells():
            found[cell["label"]].append(cell)
        return found


@pytest.fixture(scope="module")
def raw(tmp_path_factory: pytest.TempPathFactory) -> Raw:
    store = tmp_path_factory.mktemp("worked") / "store"
    write_tuned_study(store, Study(samples=4))
    return Raw(store)


def ask(raw: Raw, heading: str) -> list[dict[str, Any]]:
    """The rows of the query below the sentence that begins with ``heading``."""
    sql = PAGE.partition(f"\n{heading}")[2].partition("```sql\n")[2].partition("```")[0]
    assert sql in QUERIES
    reply = answer(raw.store, sql, 10_000)
    return [dict(zip(reply["columns"], row, strict=True)) for row in reply["rows"]]


def same(found: list[dict[str, Any]], expected: list[dict[str, Any]]) -> None:
    assert len(found) == len(expected)
    for row, wanted in zip(found, expected, strict=True):
        assert row == {
            name: pytest.approx(value, abs=1e-12) if isinstance(value, float) else value
            for name, value in wanted.items()
        }


def test_the_table_of_a_study(raw: Raw) -> None:
    expected = []
    for label, cells in raw.by_label().items():
        runs = [cell["run"] for cell in cells]
        means = np.array([raw.shares(run, raw.last(run)).mean() for run in runs])
        costs = [raw.cost(run, raw.last(run)) for run in runs]
        expected.append(
            {
                "label": label,
                "seeds": len(runs),
                "accuracy": float(means.mean()),
                "worst": float(means.min()),
                "best": float(means.max()),
                "rollout_tokens": round(np.mean([cost["rollout_tokens"] for cost in costs])),
                "wall_seconds": float(np.mean([cost["wall_seconds"] for cost in costs])),
            }
        )
    same(ask(raw, "The table of a study"), sorted(expected, key=lambda row: -row["accuracy"]))


def points(raw: Raw) -> list[tuple[str, int, int, float, float]]:
    """(label, seed, update, rollout tokens, accuracy) of every point of a curve; update 0 is the untrained model's."""
    found = []
    for cell in raw.cells():
        updates = sorted(update for run, update, split in raw.passes if (run, split) == (cell["run"], "test"))
        for update in sorted({0, *updates}):
            source = cell["run"] if update in updates else cell["base_run_id"]
            spent = raw.cost(source, update)["rollout_tokens"]
            found.append((cell["label"], raw.seeds[cell["run"]], update, spent, raw.shares(source, update).mean()))
    return found


def test_learning_curves(raw: Raw) -> None:
    groups: dict[tuple[str, int], list[tuple[float, float]]] = defaultdict(list)
    for label, _, update, spent, accuracy in points(raw):
        groups[label, update].append((spent, accuracy))
    expected = [
        {
            "label": label,
            "update": update,
            "rollout_tokens": round(np.mean([spent for spent, _ in seeds])),
            "accuracy": float(np.mean([accuracy for _, accuracy in seeds])),
            "seeds": len(seeds),
        }
        for (label, update), seeds in sorted(groups.items())
    ]
    same(ask(raw, "Learning curves"), expected)


def test_every_method_at_the_same_cost(raw: Raw) -> None:
    best: dict[tuple[str, int], tuple[int, float]] = {}
    for label, seed, update, spent, accuracy in points(raw):
        if spent <= 10_000:
            best[label, seed] = max(best.get((label, seed), (-1, 0.0)), (update, float(accuracy)))
    expected = [
        {"label": label, "seed": seed, "accuracy": accuracy, "update": update}
        for (label, seed), (update, accuracy) in sorted(best.items())
    ]
    same(ask(raw, "Every method at the same cost"), expected)


def test_what_one_change_does(raw: Raw) -> None:
    expected = []
    labels = raw.by_label()
    for baseline, cell in itertools.product(("Base", "GRPO"), labels["OPSD"]):
        seed = raw.seeds[cell["run"]]
        other = next(each["run"] for each in labels[baseline] if baseline == "Base" or raw.seeds[each["run"]] == seed)
        delta = raw.shares(cell["run"], 20) - raw.shares(other, raw.last(other))
        expected.append(
            {
                "label": "OPSD",
                "baseline_label": baseline,
                "seed": seed,
                "delta": float(delta.mean()),
                "standard_error": float(delta.std(ddof=1) / np.sqrt(len(delta))),
                "n_problems": len(delta),
            }
        )
    same(ask(raw, "What one change does"), expected)


def test_tuning_trials(raw: Raw) -> None:
    chosen = next(cell["tuning"]["chosen"] for cell in raw.cells() if cell["label"] == "OPSD")
    expected = [
        {
            "label": "OPSD",
            "axes": json.dumps(cell["axes"], separators=(",", ":")),
            "seed": raw.seeds[cell["run"]],
            "accuracy": float(raw.shares(cell["run"], 20, "validation").mean()),
            "is_chosen": cell["run"] in chosen,
        }
        for cell in sorted(raw.cells("demo:tuning"), key=lambda cell: (cell["position"], raw.seeds[cell["run"]]))
    ]
    same(ask(raw, "What was tried"), expected)


def test_the_full_cost_of_a_plan(raw: Raw) -> None:
    last: dict[str, dict[str, float]] = {}
    for step in sorted(raw.kinds["step"], key=lambda step: step["update"]):
        last[step["run"]] = step["cost"]
    groups: dict[tuple[int, bool, str], list[str]] = defaultdict(list)
    place: dict[tuple[str, bool], int] = {}
    for plan in ("demo", "demo:tuning"):
        for cell in raw.cells(plan):
            label = cell["tuning"].get("of", cell["label"])
            key = (label, plan != "demo")
            place[key] = min(cell["position"], place.get(key, 10**9))
            groups[(0, plan != "demo", label)].append(cell["run"])
    expected: list[dict[str, Any]] = []
    for (_, is_tuning, label), runs in groups.items():
        costs = [last.get(run, {}) for run in runs]
        flop = sum(cost["flop"] for cost in costs if cost) if any(costs) else None
        wall = sum(cost["wall_seconds"] for cost in costs if cost) if any(costs) else None
        sums = {key: round(sum(cost.get(key, 0) for cost in costs)) for key in COSTS}
        expected.append(
            {"label": label, "is_tuning": is_tuning, "runs": len(runs), **sums, "flop": flop, "wall_seconds": wall}
        )
    expected.sort(key=lambda row: (place[row["label"], row["is_tuning"]], row["is_tuning"]))
    found = ask(raw, "```sql\nSELECT label, axes, seed, accuracy, is_chosen FROM tuning_trials")
    order = [(row["label"], row["is_tuning"]) for row in found]
    same(found, sorted(expected, key=lambda row: order.index((row["label"], row["is_tuning"]))))
    assert [place[key] for key in order] == sorted(place[key] for key in order)


def test_pass_at_k(raw: Raw) -> None:
    expected = []
    for label, cells in sorted(raw.by_label().items()):
        for k in (1, 2, 4):
            at, hat = [], []
            for cell in cells:
                counts = [sum(passes) for passes in raw.passes[cell["run"], raw.last(cell["run"]), "test"].values()]
                at.append(np.mean([1 - comb(4 - c, k) / comb(4, k) for c in counts]))
                hat.append(np.mean([comb(c, k) / comb(4, k) for c in counts]))
            row = {"label": label, "k": k, "pass_at_k": float(np.mean(at)), "all_right": float(np.mean(hat))}
            expected.append({**row, "left_out": 0})
    same(ask(raw, "pass@k"), expected)


def test_problems_that_only_the_trained_model_solves(raw: Raw) -> None:
    solved: dict[str, int] = defaultdict(int)
    names = sorted(raw.passes["demo-base", 0, "test"])
    for cell in raw.by_label()["OPSD"]:
        gained = (raw.shares(cell["run"], 20) == 1) & (raw.shares(cell["base_run_id"], 0) == 0)
        for name in np.array(names)[gained]:
            solved[str(name)] += 1
    expected = [
        {"problem_id": name, "seeds": n} for name, n in sorted(solved.items(), key=lambda item: (-item[1], item[0]))
    ]
    assert expected
    same(ask(raw, "Problems that the untrained model"), expected)


def test_a_metric_beside_the_cost(raw: Raw) -> None:
    run = next(cell["run"] for cell in raw.by_label()["OPSD"] if raw.seeds[cell["run"]] == 0)
    expected = [
        {"update": s["update"], "loss": s["metrics"]["loss"], "rollout_tokens": round(s["cost"]["rollout_tokens"])}
        for s in sorted(raw.kinds["step"], key=lambda s: s["update"])
        if s["run"] == run
    ]
    same(ask(raw, "A training metric"), expected)


def test_anything_in_a_runs_settings(raw: Raw) -> None:
    expected = [
        {"run_id": run["run"], "method": run["spec"]["method"]["name"], "seed": run["spec"]["seed"]}
        for run in sorted(raw.kinds["run"], key=lambda run: run["run"])
    ]
    same(ask(raw, "Anything in a run's settings"), expected)


def test_which_process_drew_the_rollouts(raw: Raw) -> None:
    counts: dict[tuple[str, str, int], int] = defaultdict(int)
    for rollout in raw.kinds["rollout"]:
        counts[rollout["run"], rollout["role"], rollout["pid"]] += 1
    found = ask(raw, "Which process drew")
    assert [(row["run_id"], row["role"], row["pid"], row["rollouts"]) for row in found] == [
        (*key, n) for key, n in sorted(counts.items())
    ]
    assert len({row["host"] for row in found}) == 1


def test_the_health_of_everything(raw: Raw) -> None:
    found = ask(raw, "The health of everything")
    cells = [*raw.cells(), *raw.cells("demo:tuning")]
    updates: dict[str, int] = defaultdict(int)
    for step in raw.kinds["step"]:
        updates[step["run"]] = max(updates[step["run"]], step["update"])
    expected = sorted((cell["label"], raw.seeds[cell["run"]], updates[cell["run"]]) for cell in cells)
    assert [(row["label"], row["seed"], row["updates"]) for row in found] == expected
    for row in found:
        assert (row["status"], row["error"], row["bad_lines"], row["attempts"]) == ("done", None, 0, 1)
        assert (row["unscored_rate"], row["non_finite_metrics"]) == (0.0, 0) and row["last_activity"]


def test_every_query_of_the_page_is_checked_here() -> None:
    assert len(QUERIES) == 13  # twelve above, and the one that asks what columns mean
