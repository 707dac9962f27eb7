"""The ablation matrix as a chart specification. Pure."""

from __future__ import annotations

import altair as alt
import pandas as pd

from dashboard.charts import GREY, Drawing, as_svg

BELOW, ABOVE = "204, 78, 0", "0, 114, 178"
"""Orange and blue of the palette: told apart under every common colour-vision deficiency."""
STRENGTH = 0.62
"""Opacity of the largest difference: text stays readable on it on a light and on a dark page (tested)."""
CELL_WIDTH, CELL_HEIGHT = 118, 62
SELECTION = "place"
LINES = (("text", -13, 15, "bold"), ("detail", 5, 11, "normal"), ("n", 20, 10, "normal"))
"""Column, place below the middle, size and weight of what a cell says."""
TOOLTIP = (
    ("name:N", "cell"),
    ("benchmark:N", "benchmark"),
    ("note:N", "what"),
    ("mean:Q", "score %"),
    ("mean_interval:N", "its interval"),
    ("delta:Q", "Δ points"),
    ("low:Q", "from"),
    ("high:Q", "to"),
    ("p_holm:Q", "p (Holm)"),
    ("n_seeds:Q", "seeds"),
    ("n_planned:Q", "planned"),
    ("n_paired_problems:Q", "paired problems"),
)


def matrix_chart(places: pd.DataFrame, *, row_title: str, column_title: str, ink: str) -> Drawing:
    """A coloured cell for every place of ``matrix.matrix``: blue above the baseline, orange below, centred at 0.

    Places without a difference have no colour; missing ones a dashed frame. ``ink`` is the colour of the text. A
    click selects a place by its row and column (``SELECTION``).
    """
    shown = places.drop(columns=["run_ids"])
    largest = max(1.0, float(shown["delta"].abs().max() or 0.0)) if shown["delta"].notna().any() else 1.0
    rows, columns = list(dict.fromkeys(shown["row"])), list(dict.fromkeys(shown["column"]))
    y = alt.Y("row:N", sort=rows, title=row_title, axis=alt.Axis(labelLimit=340, labelFontSize=12, ticks=False))
    x = alt.X(
        "column:N",
        sort=columns,
        title=column_title,
        axis=alt.Axis(orient="top", labelAngle=0, labelLimit=CELL_WIDTH - 6, labelFontSize=12, ticks=False),
    )
    colour = alt.Color(
        "delta:Q",
        title="Δ in points",
        scale=alt.Scale(
            domain=[-largest, 0, largest],
            range=[f"rgba({BELOW}, {STRENGTH})", "rgba(128, 128, 128, 0.06)", f"rgba({ABOVE}, {STRENGTH})"],
        ),
        legend=alt.Legend(orient="bottom", gradientLength=240, format="+.0f"),
    )
    place = alt.selection_point(name=SELECTION, fields=["row", "column"])
    tooltip = [_tooltip(field, title) for field, title in TOOLTIP]
    coloured = alt.Chart(shown.dropna(subset=["delta"])).mark_rect(stroke=GREY, strokeWidth=0.5, tooltip=None)
    layers = [coloured.encode(x=x, y=y, color=colour)]
    marked = (("missing", [3, 3], 1.0), ("score", [1, 0], 0.5), ("baseline", [1, 0], 2.0))
    for kind, dash, width in marked:
        frame = alt.Chart(shown[shown["kind"] == kind])
        drawn = frame.mark_rect(fill=None, stroke=GREY, strokeDash=dash, strokeWidth=width, tooltip=None)
        layers.append(drawn.encode(x=x, y=y))
    for column, dy, size, weight in LINES:
        text = alt.Chart(shown).mark_text(dy=dy, fontSize=size, fontWeight=weight, color=ink, tooltip=None)
        layers.append(text.encode(x=x, y=y, text=f"{column}:N"))
    # On top, and for every place: without a difference there is no coloured mark to point at.
    touched = alt.Chart(shown).mark_rect(fill="transparent", cursor="pointer")
    layers.append(touched.encode(x=x, y=y, tooltip=tooltip).add_params(place))
    sized = alt.layer(*layers).properties(width=alt.Step(CELL_WIDTH), height=alt.Step(CELL_HEIGHT))
    return as_svg(sized)


def _tooltip(field: str, title: str) -> alt.Tooltip:
    if field == "p_holm:Q":
        return alt.Tooltip(field, title=title, format=".4f")
    if field in ("mean:Q", "delta:Q", "low:Q", "high:Q"):
        return alt.Tooltip(field, title=title, format=".2f")
    return alt.Tooltip(field, title=title)
