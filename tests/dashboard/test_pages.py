"""Every page on a synthetic store: what it shows is what the store holds."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from dashboard import reading
from dashboard.escaping import plain
from dashboard.navigation import PAGES
from evaluation.results.compare import compare
from evaluation.results.ingest import ingest
from evaluation.results.query import run_query
from evaluation.results.records import RunRecord, StepRecord
from evaluation.results.snapshot import open_snapshot
from evaluation.results.spool import Spool
from evaluation.statistics import EXACT_BELOW_UNITS
from tests.dashboard.conftest import FEW_SEEDS, STUDY, Open
from tests.dashboard.seen import link_labels, table, texts, value
from tests.evaluation.results.factory import (
    CELLS,
    Cell,
    Study,
    base_run_id,
    correct,
    run_id,
    write_base,
    write_evaluation,
    write_run,
)

DONE = [cell for cell in STUDY.cells if cell.statuses[-1] == "done"]


def accuracy(study: Study, cell: Cell, seed: int) -> float:
    """What the factory wrote: the share of right answers after the last update."""
    return float(correct(study, run_id(study, cell, seed), cell.final_accuracy, study.updates, seed).mean())


@pytest.mark.parametrize("address", PAGES)
def test_every_page_opens_without_exception(open_page: Open, store: Path, address: str) -> None:
    app = open_page(store, address)
    assert not app.exception
    assert not app.error
    assert [title.value for title in app.title] == [PAGES[address].title]


# --- overview -------------------------------------------------------------------------------------------------------


def test_overview_counts_runs_by_state(open_page: Open, store: Path) -> None:
    app = open_page(store)
    figures = {metric.label: metric.value for metric in app.metric}
    runs = 2 + 3 * len(STUDY.cells) + 2 * len(FEW_SEEDS.cells)
    done = runs - 6
    assert figures["Plans"] == "2"
    assert figures["Runs done"] == f"{done} of {runs}"
    assert (figures["Running"], figures["Failed"], figures["Queued"]) == ("3", "3", "0")


def test_overview_lists_what_is_running_and_what_needs_a_look(open_page: Open, store: Path) -> None:
    app = open_page(store)
    running = table(app, "label", "progress")
    assert set(running["label"]) == {"unfinished"}
    flags = table(app, "what", "detail")
    failed = flags[flags["what"] == "failed"]
    assert set(failed["label"]) == {"broken"} and set(failed["detail"]) == {"the trainer ran out of memory"}
    assert "unscored answers" in set(flags["what"])


def test_overview_unscored_rate_counts_answers(open_page: Open, store: Path) -> None:
    app = open_page(store)
    answers = unscored = 0
    for study in (STUDY, FEW_SEEDS):
        runs = [(0, 0)] + [(seed, u) for _ in study.cells for seed in study.seeds for u in (10, 20)]
        for seed, update in runs:
            draws = np.random.default_rng([7, seed, update]).random((study.problems, study.samples))
            answers += draws.size * len(study.splits)
            unscored += int((draws < study.unscored_rate).sum()) * len(study.splits)
    assert {m.label: m.value for m in app.metric}["Unscored answers"] == f"{unscored / answers:.1%}"


def test_overview_filters_runs_by_plan_and_status(open_page: Open, store: Path) -> None:
    app = open_page(store, of="demo", status="failed")
    runs = [e.value for e in app.dataframe if {"run_id", "created_at"} <= set(e.value.columns)][-1]
    assert set(runs["label"]) == {"broken"} and len(runs) == 3


# --- leaderboard ----------------------------------------------------------------------------------------------------


def test_leaderboard_shows_the_means_of_what_was_answered(open_page: Open, store: Path) -> None:
    app = open_page(store, "leaderboard", plan="demo", split="test")
    rows = table(app, "score", "p_holm").set_index("method")
    assert list(rows.index) == ["Base", *[cell.label for cell in DONE]]
    for cell in DONE:
        expected = 100 * np.mean([accuracy(STUDY, cell, seed) for seed in STUDY.seeds])
        assert value(rows, cell.label, "score") == pytest.approx(expected)
        assert value(rows, cell.label, "seeds") == "3 of 3"
        assert value(rows, cell.label, "problems") == STUDY.problems
        assert value(rows, cell.label, "rollout_tokens") == 20_000
        assert value(rows, cell.label, "wall_seconds") == 10.0
    base = 100 * correct(STUDY, base_run_id(STUDY), STUDY.base_accuracy, 0, 0).mean()
    assert value(rows, "Base", "score") == pytest.approx(base)
    assert value(rows, "Base", "role") == "baseline" and np.isnan(value(rows, "Base", "delta"))
    assert value(rows, "OPSD", "delta") == pytest.approx(value(rows, "OPSD", "score") - base)
    assert value(rows, "OPSD, another problem's hint", "role") == "control"
    with open_snapshot(store) as con:
        compared = {row.label: row for row in compare(con, plan="demo").rows}
    assert value(rows, "GRPO", "p_holm") == pytest.approx(compared["GRPO"].p_holm, abs=5e-5)
    interval = compared["OPSD"].interval
    assert interval is not None
    assert value(rows, "OPSD", "interval") == f"[{100 * interval.low:.1f}, {100 * interval.high:.1f}]"


def test_leaderboard_gives_no_interval_below_three_seeds(open_page: Open, store: Path) -> None:
    rows = table(open_page(store, "leaderboard", plan="two-seeds"), "score", "interval")
    assert set(rows["interval"]) == {"–"} and set(rows["delta_interval"]) == {"–"}
    assert set(rows["seeds"]) == {"1 of 1", "2 of 2"}


def test_leaderboard_lists_what_is_not_in_it(open_page: Open, store: Path) -> None:
    app = open_page(store, "leaderboard", plan="demo")
    missing = table(app, "label", "reason")
    assert set(zip(missing["label"], missing["status"], strict=True)) == {
        ("unfinished", "running"),
        ("broken", "failed"),
    }
    assert len(missing) == 6


def test_leaderboard_against_another_baseline(open_page: Open, store: Path) -> None:
    app = open_page(store, "leaderboard", plan="demo", baseline="SFT")
    rows = table(app, "score", "delta").set_index("method")
    assert value(rows, "SFT", "role") == "baseline"
    assert value(rows, "OPSD", "delta") == pytest.approx(value(rows, "OPSD", "score") - value(rows, "SFT", "score"))


def test_leaderboard_of_a_plan_without_the_untrained_model(open_page: Open, tmp_path: Path) -> None:
    study = Study(updates=2, every=2, problems=6, cells=CELLS[:2])
    for cell in study.cells:
        for seed in study.seeds:
            write_run(tmp_path, study, cell, seed)
    ingest(tmp_path)
    app = open_page(tmp_path, "leaderboard")
    assert not app.exception and not app.warning and app.query_params["baseline"] == ""
    rows = table(app, "score", "delta")
    assert set(rows["role"]) == {""} and rows["delta"].isna().all() and rows["p_holm"].isna().all()
    assert "No baseline" in texts(app)
    app.selectbox(key="choice baseline").select("GRPO").run()
    assert list(table(app, "score", "delta")["role"]) == ["", "baseline"] and app.query_params["baseline"] == "GRPO"


def test_leaderboard_at_equal_cost_takes_the_last_evaluation_within_it(open_page: Open, store: Path) -> None:
    """After 10 of 20 updates a run has drawn 10,000 tokens; the filter leaves out seed 2."""
    chosen = {"by": "rollout_tokens", "budget": "10,999", "where": "seed<2"}
    rows = table(open_page(store, "leaderboard", plan="demo", split="test", **chosen), "score").set_index("method")
    cell = next(cell for cell in STUDY.cells if cell.label == "SFT")
    halfway = (STUDY.base_accuracy + cell.final_accuracy) / 2
    expected = [correct(STUDY, run_id(STUDY, cell, seed), halfway, 10, seed).mean() for seed in (0, 1)]
    assert value(rows, "SFT", "score") == pytest.approx(100 * np.mean(expected))
    assert value(rows, "SFT", "rollout_tokens") == 10_000 and value(rows, "SFT", "seeds") == "2 of 2"


@pytest.mark.parametrize(
    ("chosen", "says"),
    [
        ({"by": "flop", "budget": "many"}, "'many' is not a number"),
        ({"where": "sede<2"}, "no run has 'sede'"),
        ({"by": "updates", "budget": "-3"}, "must be above 0"),
    ],
)
def test_leaderboard_says_what_is_wrong_with_a_choice(
    open_page: Open, store: Path, chosen: dict[str, str], says: str
) -> None:
    app = open_page(store, "leaderboard", plan="demo", **chosen)
    assert not app.exception and any(says in info.value.replace("\\", "") for info in app.info)


def test_leaderboard_leads_from_a_number_to_its_runs(open_page: Open, store: Path) -> None:
    app = open_page(store, "leaderboard", plan="demo", row="OPSD")
    labels = link_labels(app)
    opsd = next(cell for cell in STUDY.cells if cell.label == "OPSD")
    expected = [f"seed {seed}: {accuracy(STUDY, opsd, seed):.1%} at update 20" for seed in STUDY.seeds]
    assert len(labels) == 3
    assert all(label.startswith(start) for label, start in zip(labels, expected, strict=True))


def test_leaderboard_says_its_rules(open_page: Open, store: Path) -> None:
    said = texts(open_page(store, "leaderboard", plan="demo", row="OPSD"))
    assert STUDY.problems >= EXACT_BELOW_UNITS
    assert "Paired bootstrap over seeds and problems" in said
    assert "Holm" in said and "24 paired problems" in said


# --- curves ---------------------------------------------------------------------------------------------------------


def test_curves_start_at_the_untrained_model_and_keep_every_point(open_page: Open, store: Path) -> None:
    app = open_page(store, "curves", plan="demo", split="test")
    points = table(app, "mean", "update", "n_seeds")
    opsd = points[points["name"] == "OPSD"].set_index("update")
    assert list(opsd.index) == [0, 10, 20]
    assert value(opsd, 0, "mean") == pytest.approx(correct(STUDY, base_run_id(STUDY), STUDY.base_accuracy, 0, 0).mean())
    cell = next(cell for cell in STUDY.cells if cell.label == "OPSD")
    expected = np.mean([accuracy(STUDY, cell, seed) for seed in STUDY.seeds])
    assert value(opsd, 20, "mean") == pytest.approx(expected)
    assert (opsd["n_seeds"] == 3).all() and value(opsd, 20, "low") < expected < value(opsd, 20, "high")
    assert "OPSD n = 3" in texts(app)


def test_curves_have_no_band_below_three_seeds(open_page: Open, store: Path) -> None:
    points = table(open_page(store, "curves", plan="two-seeds"), "mean", "low")
    assert points["low"].isna().all() and points["high"].isna().all() and points["mean"].notna().all()


def test_curves_of_a_training_metric(open_page: Open, store: Path) -> None:
    app = open_page(store, "curves", plan="demo", y="step:reward", x="trained_tokens", methods="OPSD")
    points = table(app, "mean", "trained_tokens")
    assert set(points["name"]) == {"OPSD"} and len(points) == STUDY.updates
    last = points.iloc[-1]
    assert (last["update"], last["trained_tokens"], last["n_seeds"]) == (20, 18_000, 3)
    assert last["mean"] == pytest.approx(0.8)
    assert "All 20 means and 60 runs' points are drawn" in texts(app)


def test_curves_several_at_once_and_none(open_page: Open, store: Path) -> None:
    app = open_page(store, "curves", plan="demo", y=["accuracy", "step:loss"])
    assert [s.value for s in app.subheader] == [plain("accuracy on addition, test"), plain("training: loss")]
    app.multiselect(key="choice methods").set_value([]).run()
    assert "Pick something to show" in texts(app) and app.query_params["methods"] == ""


# --- run ------------------------------------------------------------------------------------------------------------

OPSD_0 = run_id(STUDY, CELLS[2], 0)


def test_run_page_shows_its_scores(open_page: Open, store: Path) -> None:
    app = open_page(store, "run", run=OPSD_0)
    scores = table(app, "benchmark", "accuracy", "answers")
    test = scores[scores["split"] == "test"].set_index("update")
    assert list(test.index) == [0, 10, 20]
    assert value(test, 20, "accuracy") == pytest.approx(100 * accuracy(STUDY, CELLS[2], 0))
    assert (
        value(test, 0, "answers")
        == f"run?run={base_run_id(STUDY)}&show=answers&benchmark=addition&split=test&update=0#48"
    )
    figures = {metric.label: metric.value for metric in app.metric}
    assert (figures["Method"], figures["Seed"], figures["Rollout tokens"]) == ("OPSD", "0", "20,000")


def test_answers_are_the_rows_behind_the_score(open_page: Open, store: Path) -> None:
    app = open_page(store, "run", run=OPSD_0, show="answers", split="test", update="20")
    answers = table(app, "verdict", "completion")
    right = correct(STUDY, OPSD_0, CELLS[2].final_accuracy, 20, 0)
    assert len(answers) == right.size
    assert (answers["verdict"] == "pass").mean() == pytest.approx(right.mean())
    expected = [f"#{p + 1 if right[p, s] else 0}" for p in range(24) for s in range(2)]
    assert list(answers["completion"]) == expected
    assert list(answers["expected"]) == [str(p + 1) for p in range(24) for _ in range(2)]
    assert f"Accuracy {right.mean():.1%}" in texts(app)


def test_answers_of_which_none_was_scored(open_page: Open, tmp_path: Path) -> None:
    study = Study(seeds=(0,), problems=3, unscored_rate=1.0)
    write_base(tmp_path, study)
    ingest(tmp_path)
    said = texts(open_page(tmp_path, "run", run=base_run_id(study), show="answers"))
    assert "Accuracy –: the mean" in said and "6 not scored" in said and "nan" not in said


def test_answers_by_verdict_and_one_read_whole(open_page: Open, store: Path) -> None:
    app = open_page(store, "run", run=OPSD_0, show="answers", split="test", update="20", verdict="fail")
    answers = table(app, "verdict", "completion")
    assert set(answers["verdict"]) == {"fail"}
    wanted = answers.iloc[-1]
    app.selectbox(key="choice answer").select(f"{wanted['problem_id']} #{wanted['sample_index']}").run()
    shown = [code.value for code in app.code]
    assert [wanted["prompt"], wanted["expected"], "#0"] == shown[:3]


def test_answers_whose_texts_are_gone(open_page: Open, tmp_path: Path) -> None:
    study = Study(seeds=(0,), updates=2, every=2, problems=3)
    write_base(tmp_path, study)
    name = write_run(tmp_path, study, CELLS[0], 0)
    ingest(tmp_path)
    for file in (tmp_path / "runs" / name / "samples").iterdir():
        file.unlink()
    app = open_page(tmp_path, "run", run=name, show="answers", update="2")
    assert not app.exception
    assert "not in the store any more" in texts(app)
    assert len(table(app, "verdict", "completion")) == 6


def test_controllers_and_cost_of_a_run(open_page: Open, tmp_path: Path) -> None:
    """USD's price moves and its floor does not; total tokens are the four kinds that are generated or read."""
    with Spool(tmp_path / "runs" / "usd", role="driver", attempt=1) as spool:
        spec = {"method": {"name": "usd", "controllers": {"usd": {"kind": "usd", "capacity": 0.3}}}}
        spool.append(RunRecord("usd", "usd", "m", 0, spec, {}, 1.0))
        for update in (1, 2):
            metrics: dict[str, float | None] = {"controller/usd/price": 0.1 * update, "kept/distill": 1.0, "loss": 1.0}
            cost = {"rollout_tokens": 10.0 * update, "teacher_tokens": 7.0 * update, "trained_tokens": 5.0 * update}
            spool.append(StepRecord("usd", update, 0, metrics, cost, 1.0))
    ingest(tmp_path)
    app = open_page(tmp_path, "run", run="usd", show="controllers")
    assert not app.exception and '"capacity": 0.3' in app.json[0].value.replace('":0', '": 0')
    said = texts(app)
    assert "controller/usd/price" in said.replace("\\", "") and "loss" not in said
    assert "The same at every update: kept/distill 1" in said.replace("\\", "")
    app = open_page(tmp_path, "run", run="usd", show="provenance")
    cost = table(app, "cost", "so far").set_index("cost")["so far"]
    assert cost["total tokens (rollout, reference, teacher, auxiliary)"] == 34 and cost["trained tokens"] == 10


def test_specifications_of_two_runs_side_by_side(open_page: Open, store: Path) -> None:
    app = open_page(store, "run", run=OPSD_0, show="spec", other=run_id(STUDY, CELLS[1], 2))
    differing = table(app, "path", "this", "other").set_index("path")
    assert dict(differing["this"]) == {"method.name": '"opsd"', "seed": "0"}
    assert dict(differing["other"]) == {"method.name": '"grpo"', "seed": "2"}
    assert app.query_params["curve"] == "score:addition, test" and "Every point of both runs" in texts(app)


def test_metrics_and_provenance_of_a_run(open_page: Open, store: Path) -> None:
    app = open_page(store, "run", run=OPSD_0, show="metrics")
    assert not app.exception and app.multiselect(key="choice metrics").value == ["loss", "reward"]
    app = open_page(store, "run", run=run_id(STUDY, STUDY.cells[-1], 0), show="provenance")
    assert [e.value for e in app.error] == ["the trainer ran out of memory"]
    assert list(table(app, "status", "happened_at")["status"]) == ["queued", "running", "failed"]
    assert set(table(app, "role", "pid")["role"]) == {"driver", "trainer", "evaluator"}


# --- SQL ------------------------------------------------------------------------------------------------------------


def test_sql_runs_a_query_and_puts_it_into_the_address(open_page: Open, store: Path) -> None:
    app = open_page(store, "sql")
    query = "SELECT label, count(*) AS runs FROM final_scores WHERE plan = 'demo' GROUP BY ALL ORDER BY label"
    app.text_area(key="query text").input(query)
    app.button[0].click().run()
    result = table(app, "label", "runs")
    assert dict(zip(result["label"], result["runs"], strict=True))["OPSD"] == 6  # three seeds, two splits
    assert app.query_params["q"] == query
    again = open_page(store, "sql", q=query)
    assert table(again, "label", "runs").equals(result)


def test_sql_keeps_an_edit_that_was_not_run(open_page: Open, store: Path) -> None:
    app = open_page(store, "sql", q="SELECT 1 AS one")
    app.text_area(key="query text").input("SELECT 2 AS two").run()
    assert app.text_area(key="query text").value == "SELECT 2 AS two"
    assert list(table(app, "one")["one"]) == [1]


def test_every_example_query_works(open_page: Open, store: Path) -> None:
    app = open_page(store, "sql")
    for title in app.selectbox(key="example").options:
        app.selectbox(key="example").select(title).run()
        app.button[0].click().run()
        assert not app.error and not app.exception, title
        assert [e for e in app.dataframe if "columns" not in e.value.columns], title


@pytest.mark.parametrize(
    ("query", "says"),
    [
        ("DELETE FROM answers", "only SELECT"),
        ("SELECT 1; SELECT 2", "one SELECT statement"),
        ("SELECT * FROM nowhere", "nowhere"),
        ("COPY (SELECT 1) TO 'out.csv'", "only SELECT"),
        ("ATTACH 'other.duckdb'", "only SELECT"),
        ("INSTALL httpfs", "only SELECT"),
        ("SET threads = 8", "only SELECT"),
        ("CREATE SECRET (TYPE s3)", "only SELECT"),
        ("SELECT * FROM read_csv('problems.csv')", "disabled"),
        ("SELECT", "rror"),
    ],
)
def test_sql_refuses_with_a_reason(open_page: Open, store: Path, query: str, says: str) -> None:
    app = open_page(store, "sql", q=query)
    assert not app.exception
    (error,) = [element.value for element in app.error]
    assert says in error and "Traceback" not in error and not app.dataframe[0].value.empty


def test_sql_stops_a_runaway_join(open_page: Open, store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "run_query", partial(run_query, timeout_seconds=1.0))
    app = open_page(store, "sql", q="SELECT count(*) FROM range(1000000) a, range(1000000) b, range(1000000) c")
    (error,) = [element.value for element in app.error]
    assert "1 s" in error and not app.exception


def test_all_benchmarks_at_once(open_page: Open, tmp_path: Path) -> None:
    study = Study(seeds=(0, 1, 2), updates=2, every=2, problems=6, cells=CELLS[:2])
    other = replace(study, benchmark="gsm8k", problems=5)
    write_base(tmp_path, study)
    runs = [(base_run_id(study), study.base_accuracy, 0, 0)]
    for cell in study.cells:
        for seed in study.seeds:
            runs.append((write_run(tmp_path, study, cell, seed), cell.final_accuracy, study.updates, seed))
    for name, expected, update, seed in runs:
        with Spool(tmp_path / "runs" / name, role="evaluator", attempt=1) as spool:
            write_evaluation(tmp_path, spool, other, name, update=update, accuracy=expected, seed=seed)
    ingest(tmp_path)
    app = open_page(tmp_path, "leaderboard", benchmark="all benchmarks", row="SFT, gsm8k")
    assert not app.exception and not app.warning
    rows = table(app, "score", "p_holm").set_index(["benchmark", "method"])
    assert list(rows["problems"]) == [6] * 3 + [5] * 3
    gsm8k = [correct(other, run_id(study, CELLS[0], seed), 0.9, 2, seed).mean() for seed in study.seeds]
    assert value(rows, ("gsm8k", "SFT"), "score") == pytest.approx(100 * np.mean(gsm8k))
    assert len(app.get("vega_lite_chart")) == 2
    assert len(link_labels(app)) == 3


def test_labels_with_markdown_are_shown_as_they_are(open_page: Open, tmp_path: Path) -> None:
    label = "$a_1$ *b* :red[c] `d` [e](f)"
    cell = Cell(label, "opsd", 0.5, statuses=("running", "failed"))
    study = Study(seeds=(0,), updates=2, every=2, problems=4, cells=(cell, CELLS[0]))
    write_base(tmp_path, study)
    name = write_run(tmp_path, study, cell, 0)
    write_run(tmp_path, study, CELLS[0], 0)
    ingest(tmp_path)
    app = open_page(tmp_path, "run", run=name)
    assert {m.label: m.value for m in app.metric}["Method"] == plain(label)
    captions = [c.value for c in open_page(tmp_path, "curves").caption]
    assert any(plain(label) in caption for caption in captions)
    assert not any(label in caption for caption in captions)
