"""Chart specifications from tables (pure), and the one place where a method's colour is decided."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import altair as alt
import pandas as pd

from evaluation.results.curves import COST_AXES, X_AXES

PALETTE = ("#0072B2", "#CC4E00", "#009E73", "#D573A9", "#D99A1C", "#4AA5DE")
"""Seen apart under the common colour-vision deficiencies, and readable on a white and on a dark page (tested)."""
SHAPES = ("circle", "square", "triangle-up", "diamond", "cross", "triangle-down")
"""The second sign beside colour, so that nothing rests on colour alone."""
DASHES = ((1, 0), (8, 3), (3, 3), (10, 3, 2, 3))
"""Lines of labels beyond the palette repeat its colours with another dash."""
GREY = "#737373"
CONTROL_DASHES = ((4, 4), (2, 4), (8, 4, 2, 4))
PREFERRED = {"OPSD": 0, "GRPO": 1, "SFT": 2, "USD": 3, "SDPO": 4, "LOPD": 5}
"""Places in PALETTE that are kept for these labels; any other label's place follows from its text."""

_SPECIAL_TITLES = {"update": "updates", "gpu_seconds": "GPU seconds", "flop": "FLOP"}
AXIS_TITLES = {axis: _SPECIAL_TITLES.get(axis, axis.replace("_", " ")) for axis in X_AXES}
"""What pages call what a curve is drawn over."""
COSTS = COST_AXES
"""Those of them that are costs."""
MEAN_FIELDS = (
    ("name:N", "method"),
    ("mean:Q", "mean"),
    ("low:Q", "from"),
    ("high:Q", "to"),
    ("n_seeds:Q", "seeds"),
    ("n_planned:Q", "of"),
)
SEED_FIELDS = (
    ("name:N", "method"),
    ("seed:N", "seed"),
    ("value:Q", "value"),
    ("update:Q", "update"),
    ("run_id:N", "run"),
)
ROW_HEIGHT = 42
CURVE_HEIGHT = 340
"""Of a curve without its legend."""
LEGEND_ROW_HEIGHT = 20
TRACE_HEIGHT = 220


Drawing = alt.LayerChart | alt.FacetChart


@dataclass(frozen=True, slots=True)
class Look:
    """How one method is drawn everywhere."""

    colour: str
    shape: str
    dash: tuple[int, ...]


def looks(labels: Sequence[str], controls: Collection[str] = (), bases: Collection[str] = ()) -> dict[str, Look]:
    """The look of each label of a plan, in the plan's order; controls are grey and dashed, untrained models grey.

    A label keeps its preferred colour whatever else is shown, unless an earlier label of the same plan has it; pass
    all labels of the plan, not those picked on a page, and filters change no colour.
    """
    given: dict[str, Look] = {}
    taken: set[int] = set()
    greys = 0
    for label in dict.fromkeys(labels):
        if label in bases:
            given[label] = Look(GREY, SHAPES[0], DASHES[0])
            continue
        if label in controls:
            given[label] = Look(GREY, SHAPES[greys % len(SHAPES)], CONTROL_DASHES[greys % len(CONTROL_DASHES)])
            greys += 1
            continue
        place = _free_place(_preferred(label), taken)
        taken.add(place)
        turn, colour = divmod(place, len(PALETTE))
        given[label] = Look(PALETTE[colour], SHAPES[(colour + turn) % len(SHAPES)], DASHES[turn % len(DASHES)])
    return given


def _preferred(label: str) -> int:
    if label in PREFERRED:
        return PREFERRED[label]
    return int.from_bytes(hashlib.sha256(label.encode()).digest()[:4], "big") % len(PALETTE)


def _free_place(wanted: int, taken: set[int]) -> int:
    """The wanted place or the next free one; a full palette starts over with another dash."""
    size = len(PALETTE)
    turn = 0
    while True:
        for step in range(size):
            place = turn * size + (wanted + step) % size
            if place not in taken:
                return place
        turn += 1


@dataclass(frozen=True, slots=True)
class _Channels:
    """Colour, shape and dash of the shown labels, in one legend."""

    color: alt.Color
    shape: alt.Shape
    dash: alt.StrokeDash


def _channels(shown: Sequence[str], styles: Mapping[str, Look], *, as_lines: bool, columns: int) -> _Channels:
    domain = list(shown)
    legend = alt.Legend(title=None, orient="bottom", columns=columns, labelLimit=300, symbolOpacity=1, symbolLimit=0)
    # A line's sign is its dash, a point's its shape; both in one symbol are hard to read.
    if as_lines:
        legend.symbolType = "stroke"
    legend.symbolStrokeWidth = 3 if as_lines else 0

    def scale(values: Sequence[Any]) -> alt.Scale:
        return alt.Scale(domain=domain, range=list(values))

    return _Channels(
        alt.Color("name:N", scale=scale([styles[n].colour for n in domain]), legend=legend, title=None),
        alt.Shape("name:N", scale=scale([styles[n].shape for n in domain]), legend=legend, title=None),
        alt.StrokeDash("name:N", scale=scale([styles[n].dash for n in domain]), legend=legend, title=None),
    )


def as_svg(chart: Drawing) -> Drawing:
    """Drawn as SVG whatever the number of marks, so that it can be saved as such."""
    return chart.properties(usermeta={"embedOptions": {"renderer": "svg"}})


def score_chart(rows: pd.DataFrame, seeds: pd.DataFrame, styles: Mapping[str, Look], *, title: str) -> Drawing:
    """Scores of one benchmark: mean, interval and every seed as a dot, one line a method; a rule at the baseline.

    ``rows``: name, mean, low, high (NaN without an interval), n_seeds, n_planned, n_problems, is_baseline.
    ``seeds``: name, seed, value, run_id, update. Scores are shares in 0..1 and shown in percent.
    """
    names = list(rows["name"])
    colour = alt.Color("name:N", scale=alt.Scale(domain=names, range=[styles[n].colour for n in names]), legend=None)
    shape = alt.Shape("name:N", scale=alt.Scale(domain=names, range=[styles[n].shape for n in names]), legend=None)
    y = alt.Y("name:N", sort=names, title=None, axis=alt.Axis(labelLimit=320, labelFontSize=13))
    x = alt.X("mean:Q", title=title, axis=alt.Axis(format="%"), scale=alt.Scale(zero=True, nice=True))
    tooltip = [*_tooltip(MEAN_FIELDS, ".1%"), alt.Tooltip("n_problems:Q", title="problems")]
    means = alt.Chart(rows)
    with_interval = alt.Chart(rows.dropna(subset=["low", "high"]))
    layers = [
        alt.Chart(rows[rows["is_baseline"]]).mark_rule(color=GREY, strokeDash=[4, 4], tooltip=None).encode(x=x),
        with_interval.mark_rule(strokeWidth=3).encode(x=alt.X("low:Q", title=title), x2="high:Q", y=y, color=colour),
        means.mark_tick(thickness=4, size=26, opacity=1).encode(x=x, y=y, color=colour, tooltip=tooltip),
        alt.Chart(seeds)
        .mark_point(filled=True, size=44, opacity=0.85)
        .encode(
            x=alt.X("value:Q", title=title),
            y=y,
            yOffset=alt.value(ROW_HEIGHT * 0.78),
            color=colour,
            shape=shape,
            tooltip=_tooltip(SEED_FIELDS, ".1%"),
        ),
    ]
    chart = alt.layer(*layers).properties(height=alt.Step(ROW_HEIGHT))
    return as_svg(chart)


def curve_chart(
    means: pd.DataFrame,
    seeds: pd.DataFrame | None,
    styles: Mapping[str, Look],
    *,
    x: str,
    y_title: str,
    percent: bool,
    seeds_as_lines: bool,
    legend_columns: int,
) -> Drawing:
    """Mean and band over seeds along training, every point drawn.

    ``means``: name, is_base, update, mean, low, high (NaN without a band), n_seeds, n_planned, is_partial and column
    ``x``. Lines and bands join means of equally many seeds; a partial mean stands by itself, hollow.
    ``seeds`` (None to leave them out): name, seed, run_id, update, value and column ``x``. The untrained model is a
    horizontal rule.
    """
    shown = list(dict.fromkeys(means.loc[~means["is_base"], "name"]))
    channels = _channels(shown, styles, as_lines=seeds_as_lines, columns=legend_columns)
    number = ".1%" if percent else ".4~g"
    x_axis = _cost_axis(x)
    trained = means[~means["is_base"]]
    joined, partial = trained[~trained["is_partial"]], trained[trained["is_partial"]]
    band = alt.Chart(joined.dropna(subset=["low", "high"])).mark_area(opacity=0.16, tooltip=None)
    layers = [band.encode(x=x_axis, y=alt.Y("low:Q", title=y_title), y2="high:Q", color=channels.color)]
    if seeds is not None:
        layers.append(_seed_layer(seeds, channels, x_axis, y_title, number, as_lines=seeds_as_lines))
    axis = alt.Axis(format="%" if percent else "~g")
    y_axis = alt.Y("mean:Q", title=y_title, axis=axis, scale=alt.Scale(zero=percent))
    tooltip = _tooltip((*MEAN_FIELDS[:1], ("update:Q", "update"), *MEAN_FIELDS[1:]), number)
    encoding = {"x": x_axis, "y": y_axis, "color": channels.color, "tooltip": tooltip}
    lines = alt.Chart(joined).encode(**encoding)
    layers.append(lines.mark_line(strokeWidth=2.5).encode(strokeDash=channels.dash))
    if not seeds_as_lines:
        layers.append(lines.mark_point(filled=True, size=70).encode(shape=channels.shape))
    if len(partial):
        layers.append(alt.Chart(partial).mark_point(filled=False, size=70).encode(**encoding))
    base = means[means["is_base"]]
    if len(base):
        rule = alt.Chart(base).mark_rule(color=GREY, strokeDash=[4, 4])
        layers.append(rule.encode(y=alt.Y("mean:Q"), tooltip=_tooltip(MEAN_FIELDS[:2], number)))
    legend_rows = -(-len(shown) // legend_columns)
    return as_svg(alt.layer(*layers).properties(height=CURVE_HEIGHT + LEGEND_ROW_HEIGHT * legend_rows))


def trace_chart(points: pd.DataFrame, *, x: str, y_title: str, colour: str) -> Drawing:
    """One metric of one run: ``points`` has update, value and column ``x``; a missing value leaves a gap."""
    line = (
        alt.Chart(points)
        .mark_line(color=colour, strokeWidth=2)
        .encode(
            x=_cost_axis(x),
            y=alt.Y("value:Q", title=y_title, axis=alt.Axis(format="~g"), scale=alt.Scale(zero=False)),
            tooltip=["update:Q", alt.Tooltip("value:Q", title=y_title, format=".4~g")],
        )
    )
    chart = alt.layer(line, line.mark_point(color=colour, filled=True, size=18)).properties(height=TRACE_HEIGHT)
    return as_svg(chart)


def pair_chart(points: pd.DataFrame, run_ids: Sequence[str], *, x: str, y_title: str, percent: bool) -> Drawing:
    """One curve of two runs: ``points`` has run_id, update, value and column ``x``; the first run is blue and solid."""
    number = ".1%" if percent else ".4~g"
    domain = list(run_ids)
    legend = alt.Legend(title=None, orient="bottom", columns=1, labelLimit=400, symbolType="stroke")
    colour = alt.Color("run_id:N", scale=alt.Scale(domain=domain, range=list(PALETTE[:2])), legend=legend)
    dash = alt.StrokeDash(
        "run_id:N", scale=alt.Scale(domain=domain, range=[list(d) for d in DASHES[:2]]), legend=legend
    )
    axis = alt.Axis(format="%" if percent else "~g")
    encoded = alt.Chart(points).encode(
        x=_cost_axis(x),
        y=alt.Y("value:Q", title=y_title, axis=axis, scale=alt.Scale(zero=percent)),
        color=colour,
        tooltip=["run_id:N", "update:Q", alt.Tooltip("value:Q", title=y_title, format=number)],
    )
    layers = [encoded.mark_line(strokeWidth=2.5).encode(strokeDash=dash), encoded.mark_point(filled=True, size=30)]
    return as_svg(alt.layer(*layers).properties(height=CURVE_HEIGHT))


def _tooltip(fields: Sequence[tuple[str, str]], number: str) -> list[alt.Tooltip]:
    """What is said about the mark under the pointer; ``number`` is the format of values."""
    values = ("mean:Q", "low:Q", "high:Q", "value:Q")
    return [
        alt.Tooltip(field, title=title, format=number) if field in values else alt.Tooltip(field, title=title)
        for field, title in fields
    ]


def _cost_axis(x: str) -> alt.X:
    axis = alt.Axis(tickMinStep=1, tickCount=10) if x == "update" else alt.Axis(format="~s")
    return alt.X(f"{x}:Q", title=AXIS_TITLES[x], axis=axis)


def _seed_layer(
    seeds: pd.DataFrame,
    channels: _Channels,
    x_axis: alt.X,
    y_title: str,
    number: str,
    *,
    as_lines: bool,
) -> alt.Chart:
    encoded = alt.Chart(seeds).encode(
        x=x_axis,
        y=alt.Y("value:Q", title=y_title),
        color=channels.color,
        detail="run_id:N",
        tooltip=_tooltip(SEED_FIELDS, number),
    )
    if as_lines:
        return encoded.mark_line(strokeWidth=1, opacity=0.4)
    return encoded.mark_point(filled=True, size=26, opacity=0.5).encode(shape=channels.shape)
