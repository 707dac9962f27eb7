"""The LaTeX table, read back by a strict reader of the few constructs it may use."""

from __future__ import annotations

import itertools
import re
from dataclasses import replace
from pathlib import Path

import pytest

from evaluation.results.compare import compare
from evaluation.results.comparison import Comparison
from evaluation.results.ingest import ingest
from evaluation.results.latex import escape, to_latex
from evaluation.results.snapshot import open_snapshot
from tests.evaluation.results.factory import Cell, Study, write_study

ODD = "[50 % of] β_max & {x^2} #1 $5 ~ a\\b"


@pytest.fixture(scope="module")
def comparison(tmp_path_factory: pytest.TempPathFactory) -> Comparison:
    store = tmp_path_factory.mktemp("store")
    cells = (Cell("OPSD", "opsd", 0.8), Cell(ODD, "grpo", 0.5), Cell("hint", "opsd", 0.9, is_control=True))
    study = Study(cells=cells, problems=24)
    write_study(store, study, ingested=False)
    write_study(store, replace(study, plan="other", benchmark="second_set", cells=cells[:1]), ingested=False)
    ingest(store)
    with open_snapshot(store) as con:
        return compare(con, plans=("demo", "other"))


def cells_of(text: str) -> list[list[str]]:
    """The cells of the tabular's lines; fails on anything a strict reader would not take."""
    body = re.fullmatch(r".*\\begin\{tabular\}\{(l r*|lr*)\}\n(.*)\\end\{tabular\}.*", text, re.DOTALL)
    assert body is not None
    columns = len(body[1])
    rows = []
    for line in body[2].splitlines():
        if re.fullmatch(r"\\(toprule|midrule|bottomrule)|(\\cmidrule\(lr\)\{\d+-\d+\} ?)+", line):
            continue
        assert line.endswith(r" \\"), line
        found = re.split(r"(?<!\\)&", line.removesuffix(r" \\"))
        width = sum(int(span[1]) if (span := re.match(r" *\\multicolumn\{(\d+)\}", cell)) else 1 for cell in found)
        assert width == columns, line
        rows.append([cell.strip() for cell in found])
    return rows


def test_structure(comparison: Comparison) -> None:
    text = to_latex(comparison)
    assert text.isascii()
    stack: list[str] = []
    for kind, name in re.findall(r"\\(begin|end)\{(\w+)\}", text):
        if kind == "begin":
            stack.append(name)
        else:
            assert stack.pop() == name
    assert not stack
    bare = re.sub(r"\\[\\{}$%&#_]", "", text)
    depth = 0
    for character in bare:
        depth += (character == "{") - (character == "}")
        assert depth >= 0
    assert depth == 0 and bare.count("$") % 2 == 0
    lines = [line for line in bare.splitlines() if not line.startswith("% needs")]
    assert not re.search(r"[#%_~]|(?<!\$)\^", re.sub(r"\$[^$]*\$", "", "\n".join(lines)))


def test_numbers_stand_in_their_cells(comparison: Comparison) -> None:
    heads, names, *rows = cells_of(to_latex(comparison))
    assert heads[1:] == [r"\multicolumn{2}{c}{addition}", r"\multicolumn{2}{c}{second\_set}"]
    assert names == ["method", *[r"accuracy \%", r"$\Delta$ Base"] * 2]
    shown = {row[0]: row[1:] for row in rows}
    for row in comparison.rows:
        name = f"{row.label} ({row.plan})" if row.label in ("Base", "OPSD") else row.label
        name = f"{name} (control)" if row.is_control else name
        cells = shown[("{}" if name.startswith("[") else "") + escape(name)]
        place = 0 if row.benchmark == "addition" else 2
        assert cells[place].startswith(f"{100 * row.mean:.1f} ")
        if row.interval:
            assert f"[{100 * row.interval.low:.1f}, {100 * row.interval.high:.1f}]" in cells[place]
        if row.delta is not None:
            assert cells[place + 1].startswith(f"${100 * row.delta:+.1f}$")
            assert ("^{*}" in cells[place + 1]) == (row.p_holm is not None and row.p_holm < 0.05)
        assert cells[2 - place] == "--"


def test_a_line_never_begins_like_an_argument_of_the_one_before(comparison: Comparison) -> None:
    lines = to_latex(comparison).splitlines()
    after = [line for before, line in itertools.pairwise(lines) if before.endswith(r"\\")]
    assert after and not any(line.startswith(("[", "*")) for line in after)


def test_the_best_is_bold_on_request_and_no_control_is(comparison: Comparison) -> None:
    assert r"\textbf" not in to_latex(comparison)
    bold = [row[0] for row in cells_of(to_latex(comparison, bold_best=True)) if any("textbf" in cell for cell in row)]
    assert bold == ["OPSD (demo)", "OPSD (other)"]


def test_notes_are_kept(comparison: Comparison) -> None:
    assert r"95 \% interval over seeds and problems" in to_latex(comparison)


@pytest.mark.parametrize(
    ("text", "expected"), [("50 % & a_b", r"50 \% \& a\_b"), ("β ≤ λ", r"$\beta$ $\le$ $\lambda$")]
)
def test_escaping(text: str, expected: str) -> None:
    assert escape(text) == expected


def test_an_empty_table_is_still_one(tmp_path: Path) -> None:
    nothing = Comparison("p", "h", "test", "accuracy", None, (), ())
    assert to_latex(nothing).count(r"\begin{tabular}") == 1
