"""Chart specifications, and that colours are stable and seen apart."""

from __future__ import annotations

import itertools
from typing import Any

import altair as alt
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from streamlit.testing.v1 import AppTest

from dashboard.charts import AXIS_TITLES, GREY, PALETTE, PREFERRED, curve_chart, looks, score_chart, trace_chart

PAGES = {"light": "#FFFFFF", "dark": "#171614"}
"""Backgrounds of the two themes."""

# Simulation of full dichromacy on linear RGB: Machado, Oliveira and Fernandes 2009, severity 1.
DEFICIENCIES = {
    "none": np.eye(3),
    "protan": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "deutan": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]],
    "tritan": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]],
}
TO_XYZ = np.array(
    [[0.4124564, 0.3575761, 0.1804375], [0.2126729, 0.7151522, 0.0721750], [0.0193339, 0.1191920, 0.9503041]]
)
WHITE = np.array([0.95047, 1.0, 1.08883])


def linear(colour: str) -> np.ndarray:
    srgb = np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)]) / 255
    return np.where(srgb <= 0.04045, srgb / 12.92, ((srgb + 0.055) / 1.055) ** 2.4)


def contrast(first: str, second: str) -> float:
    """WCAG 2 contrast ratio."""
    light, dark = sorted((TO_XYZ[1] @ linear(c) for c in (first, second)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def lab(rgb: np.ndarray) -> np.ndarray:
    """CIE L*a*b* of linear RGB."""
    xyz = TO_XYZ @ np.clip(rgb, 0, 1) / WHITE
    f = np.where(xyz > 0.008856, np.cbrt(xyz), 7.787 * xyz + 16 / 116)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


@pytest.mark.parametrize("kind", DEFICIENCIES)
def test_colours_are_seen_apart(kind: str) -> None:
    seen = [lab(np.array(DEFICIENCIES[kind]) @ linear(colour)) for colour in (*PALETTE, GREY)]
    nearest = min(np.linalg.norm(a - b) for a, b in itertools.combinations(seen, 2))
    assert nearest > 10  # 2.3 is just noticeable


@pytest.mark.parametrize("theme", PAGES)
def test_colours_are_readable_on_both_pages(theme: str) -> None:
    assert min(contrast(colour, PAGES[theme]) for colour in (*PALETTE, GREY)) > 2.4


def test_a_label_keeps_its_colour_in_any_plan() -> None:
    alone = looks(["OPSD"])["OPSD"]
    assert looks(["SFT", "GRPO", "OPSD", "my own"])["OPSD"] == alone
    assert looks(["my own", "OPSD"])["my own"] == looks(["my own"])["my own"]
    assert [looks([label])[label].colour for label in PREFERRED] == list(PALETTE)


def test_no_two_labels_of_a_plan_look_alike() -> None:
    given = looks([f"cell {i}" for i in range(20)], controls={"cell 3", "cell 4"}, bases={"cell 0"})
    assert len(set(given.values())) == 20
    first = [look.colour for label, look in given.items() if look.colour != GREY][: len(PALETTE)]
    assert sorted(first) == sorted(PALETTE)  # no colour repeats before all are used


def test_controls_are_grey_and_dashed() -> None:
    given = looks(["Base", "OPSD", "wrong hint", "no hint"], controls={"wrong hint", "no hint"}, bases={"Base"})
    controls = [given["wrong hint"], given["no hint"]]
    assert {look.colour for look in controls} == {GREY} and controls[0] != controls[1]
    assert all(look.dash != (1, 0) for look in controls)
    assert given["Base"].colour == GREY and given["Base"].dash == (1, 0)
    assert given["OPSD"].colour != GREY


def scores() -> tuple[pd.DataFrame, pd.DataFrame]:
    rows = pd.DataFrame(
        {
            "name": ["Base", "OPSD"],
            "mean": [0.3, 0.8],
            "low": [np.nan, 0.7],
            "high": [np.nan, 0.9],
            "n_seeds": [1, 3],
            "n_planned": [1, 3],
            "n_problems": [50, 50],
            "is_baseline": [True, False],
        }
    )
    seeds = pd.DataFrame(
        {
            "name": ["Base", *["OPSD"] * 3],
            "seed": [0, 0, 1, 2],
            "value": [0.3, 0.7, 0.8, 0.9],
            "run_id": list("abcd"),
            "update": 40,
        }
    )
    return rows, seeds


def spec_of(chart: alt.LayerChart | alt.FacetChart) -> dict[str, Any]:
    """The specification as the page sends it: without Altair's limit of 5,000 rows."""
    with alt.data_transformers.enable("default", max_rows=None):  # pyrefly: ignore
        return chart.to_dict()


def layers(spec: dict[str, Any]) -> list[tuple[str, list[dict]]]:
    """(mark, rows) of each layer, in the order they are drawn."""
    # Data that all layers share stands at the top.
    return [
        (each["mark"]["type"], spec["datasets"][each.get("data", spec.get("data"))["name"]]) for each in spec["layer"]
    ]


def test_score_chart_draws_means_intervals_and_every_seed() -> None:
    rows, seeds = scores()
    spec = spec_of(score_chart(rows, seeds, looks(["Base", "OPSD"], bases={"Base"}), title="accuracy"))
    drawn = layers(spec)
    assert [(mark, len(data)) for mark, data in drawn] == [("rule", 1), ("rule", 1), ("tick", 2), ("point", 4)]
    assert drawn[1][1][0]["name"] == "OPSD"  # the one seed of the base has no interval
    colours = spec["layer"][2]["encoding"]["color"]["scale"]
    assert dict(zip(colours["domain"], colours["range"], strict=True)) == {"Base": GREY, "OPSD": PALETTE[0]}
    assert spec["layer"][2]["encoding"]["y"]["sort"] == ["Base", "OPSD"]


def curve() -> tuple[pd.DataFrame, pd.DataFrame]:
    updates = list(range(0, 9001))
    trained = pd.DataFrame(
        {
            "name": "OPSD",
            "is_base": False,
            "update": updates,
            "mean": 0.5,
            "low": 0.4,
            "high": 0.6,
            "n_seeds": 3,
            "is_partial": False,
            "n_planned": 3,
        }
    )
    base = trained.head(1).assign(name="Base", is_base=True, low=np.nan, high=np.nan, n_seeds=1)
    seeds = pd.DataFrame({"name": "OPSD", "seed": 0, "run_id": "a", "update": updates, "value": 0.5})
    return pd.concat([base, trained], ignore_index=True), seeds


@pytest.mark.parametrize("seeds_as_lines", [False, True])
def test_curve_chart_drops_no_point(seeds_as_lines: bool) -> None:
    means, seeds = curve()
    chart = curve_chart(
        means,
        seeds,
        looks(["Base", "OPSD"], bases={"Base"}),
        x="update",
        y_title="accuracy",
        percent=True,
        seeds_as_lines=seeds_as_lines,
        legend_columns=4,
    )
    marks = layers(spec_of(chart))
    lines = [len(data) for mark, data in marks if mark == "line"]
    assert lines == ([9001, 9001] if seeds_as_lines else [9001])
    assert [len(data) for mark, data in marks if mark == "area"] == [9001]
    assert [len(data) for mark, data in marks if mark == "point"] == ([] if seeds_as_lines else [9001, 9001])
    assert [data[0]["name"] for mark, data in marks if mark == "rule"] == ["Base"]


def test_curve_chart_without_bands_or_seeds() -> None:
    means, _ = curve()
    means = means.head(5).assign(low=np.nan, high=np.nan)
    chart = curve_chart(
        means,
        None,
        looks(["Base", "OPSD"]),
        x="update",
        y_title="loss",
        percent=False,
        seeds_as_lines=True,
        legend_columns=2,
    )
    assert [(mark, len(data)) for mark, data in layers(spec_of(chart))] == [("area", 0), ("line", 4), ("rule", 1)]


@pytest.mark.parametrize("x", AXIS_TITLES)
def test_every_axis_is_titled(x: str) -> None:
    points = pd.DataFrame({"update": [1, 2], "value": [0.1, None]})
    points[x] = [10.0, 20.0]
    spec = spec_of(trace_chart(points, x=x, y_title="loss", colour=PALETTE[0]))
    assert spec["layer"][0]["encoding"]["x"]["title"] == AXIS_TITLES[x]
    assert [len(data) for _, data in layers(spec)] == [2, 2]  # the missing value is a gap, not left out


def test_the_page_takes_more_rows_than_altair_would() -> None:
    def draw() -> None:
        import pandas as pd
        import streamlit as st

        from dashboard.charts import trace_chart

        points = pd.DataFrame({"update": range(20_000), "value": 0.5})
        st.altair_chart(trace_chart(points, x="update", y_title="loss", colour="#0072B2"))

    app = AppTest.from_function(draw).run()
    assert not app.exception
    (chart,) = app.get("vega_lite_chart")
    rows = pa.ipc.open_stream(chart.proto.datasets[0].data.data).read_all()
    assert rows.num_rows == 20_000


def test_partial_means_are_drawn_apart_from_the_line() -> None:
    means, _ = curve()
    means = means.head(6).assign(is_partial=[False] * 5 + [True])
    chart = curve_chart(
        means,
        None,
        looks(["Base", "OPSD"]),
        x="update",
        y_title="accuracy",
        percent=True,
        seeds_as_lines=False,
        legend_columns=4,
    )
    marks = layers(spec_of(chart))
    assert [(mark, len(data)) for mark, data in marks[:3]] == [("area", 4), ("line", 4), ("point", 4)]
    assert marks[3][0] == "point" and [row["update"] for row in marks[3][1]] == [4]


def test_no_label_is_left_out_of_the_legend() -> None:
    names = [f"cell {i}" for i in range(80)]
    means = pd.DataFrame({"name": names, "is_base": False, "is_partial": False, "update": 0, "mean": 0.5, "low": 0.4})
    means = means.assign(high=0.6, n_seeds=3, n_planned=3)
    chart = curve_chart(
        means, None, looks(names), x="update", y_title="y", percent=True, seeds_as_lines=False, legend_columns=4
    )
    colour = spec_of(chart)["layer"][0]["encoding"]["color"]
    assert len(colour["scale"]["domain"]) == 80 and colour["legend"]["symbolLimit"] == 0
