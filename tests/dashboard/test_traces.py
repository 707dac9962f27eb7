"""The page Traces, and what it is made of."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from dashboard import traces
from dashboard.token_map import SCRIPT
from evaluation.results.ingest import ingest
from evaluation.results.traces import read_trace, write_traces
from tests.dashboard.conftest import Open
from tests.dashboard.seen import link_labels, table, texts
from tests.dashboard.traced import GRPO, OPSD, PIECES, STUDY, trace, write_traced_study
from tests.evaluation.results.factory import run_id, write_study


@pytest.fixture(scope="module")
def traced(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("traced") / "store"
    write_traced_study(folder)
    return folder


# --- pure parts -----------------------------------------------------------------------------------------------------


def test_values_and_scale() -> None:
    one = trace("p0", 10)
    assert one.teacher_logprob is not None
    ratio = np.array(one.teacher_logprob) - np.array(one.student_logprob)
    assert traces.values_of(one, "log_ratio") == pytest.approx(ratio)
    assert traces.scale_of([[1.0, -3.0, None], None, [2.0]]) == pytest.approx(np.quantile([1, 3, 2], 0.98))
    assert traces.scale_of([None]) == traces.SMALLEST_SCALE
    assert traces.measures_of([trace("p0", 10, taught=False)]) == ["student_entropy", "surprise"]
    assert traces.strongest(one, "divergence") == len(PIECES) - 1


def test_colours_grow_with_the_value_and_tell_signs_apart() -> None:
    strengths = [float(traces.colour(v, 2.0, signed=False).split(",")[3][:-1]) for v in (0.0, 1.0, 2.0, 9.0)]
    assert strengths == [0.0, 0.3, 0.6, 0.6]
    assert traces.colour(1.0, 1.0, signed=True).startswith("rgba(0,114,178")
    assert traces.colour(-1.0, 1.0, signed=True).startswith("rgba(213,94,0")
    assert traces.colour(None, 1.0, signed=False) == traces.colour(float("nan"), 1.0, signed=True) == "transparent"


def test_text_on_every_colour_can_be_read() -> None:
    """Contrast of 4.5 and more (WCAG AA) of the theme's text over the strongest colours, on both pages."""

    def luminance(rgb: np.ndarray) -> float:
        part = rgb / 255
        linear = np.where(part <= 0.03928, part / 12.92, ((part + 0.055) / 1.055) ** 2.4)
        return float(linear @ [0.2126, 0.7152, 0.0722])

    for page, text in (((255, 255, 255), (49, 51, 63)), ((14, 17, 23), (250, 250, 250))):
        for base in (traces.ONE_SIDED, traces.POSITIVE, traces.NEGATIVE):
            mixed = traces.STRONGEST * np.array(base) + (1 - traces.STRONGEST) * np.array(page)
            light, dark = sorted((luminance(mixed), luminance(np.array(text))), reverse=True)
            assert (light + 0.05) / (dark + 0.05) >= 4.5, (page, base)


@pytest.mark.parametrize(
    ("piece", "seen"), [("a", "a"), (" a", " a"), (" ", "␣"), ("  ", "␣␣"), ("\n", "⏎\n"), ("\t", "⇥\t"), ("", "▯")]
)
def test_white_space_can_be_seen(piece: str, seen: str) -> None:
    assert traces.shown(piece) == seen


def test_what_the_teacher_sees_more() -> None:
    assert traces.added("<u>1+1<e>", "<u>1+1<h>2<e>") == ("<u>1+1", "<h>2", "<e>")
    assert "".join(traces.added("ab", "axxb")) == "axxb" and traces.added("aa", "aaa") == ("", "a", "aa")
    assert traces.added("same", "same") == ("same", "", "")


def test_alternatives_have_both_probabilities() -> None:
    one = trace("p0", 10)
    assert one.teacher_top_prob is not None
    teacher, student = traces.alternatives(one, 1)
    assert teacher is not None
    assert list(teacher["teacher"]) == pytest.approx([100 * p for p in one.teacher_top_prob[1]])
    assert list(student["student"]) == pytest.approx([100 * p for p in one.student_top_prob[1]])
    assert list(teacher["student"]) == pytest.approx(list(student["student"]))
    alone = traces.alternatives(trace("p0", 10, taught=False), 1)
    assert alone[0] is None and list(alone[1].columns) == ["token", "student"]


def test_a_trace_comes_back_as_it_was_written(tmp_path: Path) -> None:
    written = [trace("p0", 10), trace("p1", 10, taught=False)]
    file = write_traces(tmp_path, "x", written)
    assert [read_trace(tmp_path, file, row) for row in range(2)] == written
    with pytest.raises(ValueError, match="no row 2"):
        read_trace(tmp_path, file, 2)
    with pytest.raises(ValueError, match="leads out of"):
        read_trace(tmp_path / "samples", "../samples/../../x.parquet", 0)


def test_long_answers_are_small_work() -> None:
    import time

    long = trace("p0", 10, tokens=["ab "] * 4000)
    began = time.perf_counter()
    cells = traces.token_cells(long, "divergence", 1.0)
    assert len(cells) == 4000 and time.perf_counter() - began < 1.0


def test_texts_of_models_are_never_markup_in_the_map() -> None:
    script = SCRIPT.read_text()
    assert "innerHTML" not in script and "insertAdjacentHTML" not in script and "textContent" in script


# --- the page -------------------------------------------------------------------------------------------------------

OPSD_0, GRPO_0 = run_id(STUDY, OPSD, 0), run_id(STUDY, GRPO, 0)


def test_two_updates_beside_each_other(open_page: Open, traced: Path) -> None:
    app = open_page(traced, "traces", problem="p0", run=OPSD_0, run2=OPSD_0)
    assert not app.exception and not app.error
    assert (app.query_params["update"], app.query_params["update2"]) == ("20", "10")
    said = texts(app)
    assert "OPSD · seed 0 · update 20" in said and "OPSD · seed 0 · update 10" in said
    assert "forward\\_kl\\_exact" in said and "frozen weights, context solution" in said
    teacher = table(app, "token", "teacher")
    one = trace("p0", 20)
    assert one.teacher_top_prob is not None
    assert list(teacher["teacher"]) == pytest.approx([100 * p for p in one.teacher_top_prob[len(PIECES) - 1]])


def test_a_link_names_the_token_and_the_colour(open_page: Open, traced: Path) -> None:
    app = open_page(traced, "traces", problem="p1", run=OPSD_0, token="1", colour="log_ratio", two="0")
    one = trace("p1", 20)
    assert one.teacher_top_prob is not None
    assert list(table(app, "token", "teacher")["teacher"]) == pytest.approx([100 * p for p in one.teacher_top_prob[1]])
    assert "Token 1 “4”" in texts(app)
    assert (app.query_params["token"], app.query_params["colour"], app.query_params["two"]) == ("1", "log_ratio", "0")
    far = open_page(traced, "traces", problem="p1", run=OPSD_0, token="999")
    assert f"Token {len(PIECES) - 1}" in texts(far)


def test_a_method_without_a_teacher_beside_one_with(open_page: Open, traced: Path) -> None:
    app = open_page(traced, "traces", run=OPSD_0, run2=GRPO_0)
    assert not app.exception
    assert "No teacher here\\: the method has no teacher" in texts(app)
    assert "This answer has no divergence" in texts(app)
    assert "No teacher looked at this answer" in texts(app)


def test_texts_of_models_are_shown_and_not_obeyed(open_page: Open, traced: Path) -> None:
    app = open_page(traced, "traces", problem="p0", run=OPSD_0, run2=OPSD_0, token="6")
    assert "\\<script\\>alert\\(1\\)\\</script\\>" in texts(app)
    bodies = [element.proto.body for element in app.get("html")]
    prompt = next(body for body in bodies if "<mark" in body)
    assert "&lt;img src=x onerror=alert(2)&gt;" in prompt and "<img" not in "".join(bodies)
    assert [code.value for code in app.code if "img" in code.value] == ["*two* <img src=x onerror=alert(2)>"] * 2


def test_a_trace_that_is_gone(open_page: Open, tmp_path: Path) -> None:
    write_traced_study(tmp_path)
    for file in (tmp_path / "runs" / OPSD_0 / "samples").glob("traces-*"):
        file.unlink()
    app = open_page(tmp_path, "traces", run=OPSD_0, run2=GRPO_0)
    assert not app.exception and "is not in the store any more" in texts(app)
    assert "GRPO · seed 0" in texts(app)


def test_a_store_without_traces_says_where_they_come_from(open_page: Open, tmp_path: Path) -> None:
    write_study(tmp_path, STUDY)
    assert "trace_problems" in texts(open_page(tmp_path, "traces"))


def test_downloads_hold_everything() -> None:
    one = trace("p0", 10)
    content = json.loads(traces.as_json(one, {"verdict": "pass", "update": np.int64(10)}))
    assert content["verdict"] == "pass" and content["tokens"] == PIECES and content["divergence"][0] is None
    rows = traces.token_table(one)
    assert list(rows["token"]) == PIECES and {"student_logprob", "divergence", "weight"} <= set(rows)
    assert "divergence" not in traces.token_table(trace("p0", 10, taught=False))


def test_answers_lead_to_their_traces(open_page: Open, traced: Path) -> None:
    app = open_page(traced, "run", run=OPSD_0, show="answers", update="20", answer="p0 #0")
    assert "Token by token" in link_labels(app)
    ingest(traced)
