"""The ablation matrix: every place of it against the raw answers, and the page around it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from dashboard import matrix
from dashboard.charts import PALETTE
from dashboard.frames import records
from dashboard.matrix import BENCHMARK, CELL, METHOD, Factor, Grid, factors, is_dense, stem
from dashboard.matrix_chart import ABOVE, BELOW, STRENGTH, matrix_chart
from dashboard.reading import query_text
from dashboard.views.ablations import INKS
from evaluation.results.compare import compare
from evaluation.results.snapshot import open_snapshot
from evaluation.statistics import holm, paired_test
from tests.dashboard.conftest import Open
from tests.dashboard.grid import ACCURACY, ORDERS, PLAN, SHARES, STUDY, label, write_grid
from tests.dashboard.seen import link_labels, table, texts
from tests.evaluation.results.factory import base_run_id, correct

SHARE, ORDER = "distill.mix.share", "distill.order"


@pytest.fixture(scope="module")
def grid_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    store = tmp_path_factory.mktemp("grid") / "store"
    write_grid(store)
    return store


def read(store: Path, *, baseline: str | None = None, axes: str | None = None) -> tuple[Any, pd.DataFrame]:
    with open_snapshot(store) as con:
        cells = con.execute(query_text("plan_cells"), {"plan": PLAN}).df()
        return compare(con, plan=PLAN, benchmark="addition", baseline=baseline, baseline_axes=axes), cells


def scores(share: float, order: int) -> np.ndarray:
    """[seeds, problems] from what the factory answered."""
    position = 1 + list(ACCURACY).index((share, order))
    name = f"part-{position}-{label(share, order)}".lower()
    runs = ["".join(c if c.isalnum() else "-" for c in f"{name}-{seed}") for seed in STUDY.seeds]
    accuracy = ACCURACY[share, order]
    return np.array(
        [correct(STUDY, run, accuracy, STUDY.updates, s).mean(axis=1) for run, s in zip(runs, STUDY.seeds, strict=True)]
    )


def by_place(places: pd.DataFrame) -> dict[tuple[str, str], dict[str, Any]]:
    return {(place["row"], place["column"]): place for place in records(places)}


def two_axes(cells: pd.DataFrame) -> Grid:
    known = {factor.name: factor for factor in factors(cells)}
    return Grid(known[SHARE], known[ORDER], {BENCHMARK: "addition"})


def test_what_the_cells_differ_in(grid_store: Path) -> None:
    _, cells = read(grid_store)
    known = {factor.name: factor for factor in factors(cells)}
    assert list(known) == [SHARE, ORDER, CELL]
    assert known[SHARE].values == ("0.5", "0.9")
    assert known[ORDER].values == ("1", "2", "10")  # by size, not by text
    assert known[CELL].values == ("Base", *(label(*at) for at in ACCURACY))
    assert is_dense(cells, known[SHARE], known[ORDER])


def test_labels_that_several_cells_share_are_a_factor_of_their_own() -> None:
    cells = [("A, beta=1", '{"m.beta":1}'), ("A, beta=2", '{"m.beta":2}'), ("B, beta=1", '{"m.beta":1}')]
    assert [stem(cell) for cell in cells] == ["A", "A", "B"]
    frame = pd.DataFrame(cells, columns=["label", "axes"]).assign(method="x")
    assert [(f.name, f.values) for f in factors(frame)][:2] == [("m.beta", ("1", "2")), (METHOD, ("A", "B"))]
    sparse = pd.DataFrame([(f"c{i}", f'{{"a":{i},"b":{9 - i}}}') for i in range(9)], columns=["label", "axes"])
    a, b = factors(sparse.assign(method="x"))[:2]
    assert not is_dense(sparse, a, b), "nine draws of a random search are no 9 x 9 matrix"


def test_differences_are_those_of_the_raw_answers(grid_store: Path) -> None:
    """Every difference, interval and adjusted p against ``paired_test`` on arrays made from the answers."""
    comparison, cells = read(grid_store)
    places = by_place(matrix.matrix(comparison, cells, two_axes(cells)))
    base = correct(STUDY, base_run_id(STUDY), STUDY.base_accuracy, 0, 0).mean(axis=1)
    tests = {}
    for share, order in ACCURACY:
        if (share, order) != (0.9, 10):
            # Problems in the order of their names: the resampling draws by place.
            names = sorted(range(STUDY.problems), key=lambda p: f"p{p}")
            difference = (scores(share, order) - base)[:, names]
            tests[str(share), str(order)] = paired_test(difference, [f"p:p{p}" for p in names])
    adjusted = dict(zip(tests, holm([test.p_value for test in tests.values()]), strict=True))
    for at, test in tests.items():
        place = places[at]
        assert place["kind"] == "delta" and place["n_seeds"] == 3 and place["n_paired_problems"] == 24
        assert place["delta"] == pytest.approx(100 * test.difference, abs=1e-9)
        assert test.interval is not None
        assert (place["low"], place["high"]) == pytest.approx((100 * test.interval.low, 100 * test.interval.high))
        assert place["p_holm"] == pytest.approx(adjusted[at])
        assert place["text"].endswith("*") == ((adjusted[at] or 0.0) < 0.05)
    assert any(place["significant"] for place in places.values())


def test_missing_cells_are_there_and_say_why(grid_store: Path) -> None:
    comparison, cells = read(grid_store)
    places = by_place(matrix.matrix(comparison, cells, two_axes(cells)))
    assert len(places) == len(SHARES) * len(ORDERS)
    failed, absent = places["0.9", "10"], places["0.5", "10"]
    assert (failed["kind"], failed["text"], failed["note"]) == ("missing", "failed", "3 × failed")
    assert len(failed["run_ids"]) == 3
    assert (absent["kind"], absent["text"], absent["name"]) == ("missing", "·", "")
    assert "no such cell" in absent["note"]


def test_a_cell_on_the_axes_as_the_baseline(grid_store: Path) -> None:
    _, cells = read(grid_store)
    axes = cells.loc[cells["label"] == label(0.5, 2), "axes"].iloc[0]
    comparison, _ = read(grid_store, baseline=label(0.5, 2), axes=axes)
    places = by_place(matrix.matrix(comparison, cells, two_axes(cells)))
    assert places["0.5", "2"]["kind"] == "baseline"
    expected = 100 * (scores(0.9, 2) - scores(0.5, 2)).mean()
    assert places["0.9", "2"]["delta"] == pytest.approx(expected)


def test_two_cells_at_one_place_are_refused(grid_store: Path) -> None:
    comparison, cells = read(grid_store)
    known = {factor.name: factor for factor in factors(cells)}
    grid = Grid(known[SHARE], Factor(BENCHMARK, BENCHMARK, ("addition",)), {})
    with pytest.raises(ValueError, match="share a place"):
        matrix.matrix(comparison, cells, grid)


# --- the chart ------------------------------------------------------------------------------------------------------


def _luminance(colour: tuple[float, ...]) -> float:
    linear = [c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in (v / 255 for v in colour)]
    return float(np.dot(linear, (0.2126, 0.7152, 0.0722)))


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("rgb", [ABOVE, BELOW])
def test_text_on_the_strongest_colour_can_be_read(theme: str, rgb: str) -> None:
    """Contrast of at least 4.5 (WCAG AA) on the page's background."""
    page = {"light": (255, 255, 255), "dark": (14, 17, 23)}[theme]
    colour = [float(part) for part in rgb.split(",")]
    mixed = tuple(STRENGTH * c + (1 - STRENGTH) * p for c, p in zip(colour, page, strict=True))
    ink = tuple(int(INKS[theme][i : i + 2], 16) for i in (1, 3, 5))
    light, dark = sorted((_luminance(mixed), _luminance(ink)), reverse=True)
    assert (light + 0.05) / (dark + 0.05) >= 4.5


def test_the_colours_are_of_the_palette_and_centred_at_no_difference(grid_store: Path) -> None:
    comparison, cells = read(grid_store)
    places = matrix.matrix(comparison, cells, two_axes(cells))
    spec = matrix_chart(places, row_title="share", column_title="order", ink="#000").to_dict()
    scale = spec["layer"][0]["encoding"]["color"]["scale"]
    largest = places["delta"].abs().max()
    assert scale["domain"] == pytest.approx([-largest, 0, largest])
    for rgb, colour in ((BELOW, PALETTE[1]), (ABOVE, PALETTE[0])):
        assert tuple(int(part) for part in rgb.split(",")) == tuple(int(colour[i : i + 2], 16) for i in (1, 3, 5))
    drawn = spec["datasets"][spec["layer"][-1]["data"]["name"]]
    assert {"failed", "·"} <= {row["text"] for row in drawn} and len(drawn) == len(places)


# --- the page -------------------------------------------------------------------------------------------------------


def test_the_page_opens_at_the_two_axes(open_page: Open, grid_store: Path) -> None:
    app = open_page(grid_store, "ablations", plan=PLAN)
    assert not app.exception and not app.error and not app.warning
    assert app.query_params["rows"] == SHARE and app.query_params["columns"] == ORDER
    numbers = table(app, "row", "column", "delta")
    assert len(numbers) == 5  # one place is no cell of the plan
    said = texts(app)
    assert "3 × failed" in said and "no cell of the plan: 1" in said
    assert [name.split(":")[0] for name in link_labels(app)] == ["seed 0", "seed 1", "seed 2"]


def test_a_link_reproduces_the_view(open_page: Open, grid_store: Path) -> None:
    asked = {"plan": PLAN, "rows": CELL, "columns": BENCHMARK, "baseline": label(0.5, 2), "metric": "format_rate"}
    app = open_page(grid_store, "ablations", **asked, place=f"{label(0.9, 2)} × chain")
    assert not app.warning and {key: app.query_params[key] for key in asked} == asked
    numbers = table(app, "row", "column", "kind")
    assert set(numbers["column"]) == {"addition", "chain"} and len(numbers) == 2 * 6
    assert set(numbers.loc[numbers["kind"] == "baseline", "row"]) == {label(0.5, 2)}
    assert "on chain" in texts(app)


def test_axis_against_benchmark_at_one_value_of_the_other(open_page: Open, grid_store: Path) -> None:
    app = open_page(grid_store, "ablations", plan=PLAN, rows=ORDER, columns=BENCHMARK, **{f"at {SHARE}": "0.9"})
    numbers = table(app, "row", "column", "delta")
    assert set(numbers["row"]) == {"1", "2", "10"} and set(numbers["column"]) == {"addition", "chain"}
    assert "share \\= 0\\.9" in texts(app)


def test_a_plan_of_labelled_cells(open_page: Open, store: Path) -> None:
    app = open_page(store, "ablations", plan="demo")
    assert not app.exception and app.query_params["rows"] == CELL
    numbers = by_place(table(app, "row", "column", "delta"))
    assert numbers["Base", "addition"]["kind"] == "baseline"
    assert numbers["broken", "addition"]["note"] == "3 × failed"
    assert numbers["unfinished", "addition"]["note"] == "3 × not finished (running)"
