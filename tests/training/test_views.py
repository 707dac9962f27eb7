"""What each view's prompts hold: the context, cuts and their counts, and nothing privileged where it must not be."""

from __future__ import annotations

from typing import Any

import pytest

from evaluation.benchmarks.addition import ADDITION
from tests.training.contexts.hand_made import MARKED, byte_renderer, problem, rollout
from tests.training.small import small_renderer
from training.base_models.language import CONTEXT_LANGUAGE
from training.contexts.rows import ContextRow
from training.method import FrozenWeights, StudentWeights, View
from training.methods import METHODS
from training.views import ViewPrompts, context_metrics, view_prompts

BYTES = byte_renderer()
KINDS: list[Any] = [
    "solution",
    "answer",
    {"kind": "partial_solution", "share": 0.5},
    "overlap_masked",
    {"kind": "peer_success", "feedback": "always", "attempt": True},
    {"kind": "environment_feedback", "attempt": True},
    {"kind": "self_critique", "attempt": True},
    "demonstration",
    {"kind": "demonstration", "of": "another_problem"},
    "other_problem",
    {"kind": "other_problem", "shows": "answer"},
]


def teacher(context: Any, **how: Any) -> View:
    return View(weights=FrozenWeights(), context=context, **how)


def seen(view: View, rows: list[ContextRow], renderer: Any = BYTES, critiques: Any = None) -> ViewPrompts:
    return view_prompts({"teacher": view}, ["teacher"], rows, renderer, MARKED, {"teacher": critiques or {}})["teacher"]


def text(ids: tuple[int, ...] | None) -> str:
    assert ids is not None
    return str(BYTES.tokenizer.decode([*ids]))


ROWS = [rollout("wrong", 0.0, 0, "F"), rollout("right", 1.0, 0), rollout("slip", 0.0, 1, "G"), rollout("good", 1.0, 1)]


@pytest.mark.parametrize("context", KINDS)
def test_with_the_context_taken_out_every_prompt_is_the_students(context: Any) -> None:
    view = seen(teacher(context), ROWS, critiques=dict.fromkeys(range(4), "note"))
    for row, prompt, shown in zip(ROWS, view.prompts, view.contexts, strict=True):
        if shown is None:
            assert prompt is None
            continue
        assert prompt is not None and shown.text is not None
        assert text(prompt).replace(f"[{shown.text}]", "") == text(BYTES.student_ids(row.problem))
    assert view.context_tokens == [0 if one is None else len((one.text or "").encode()) for one in view.contexts]


@pytest.mark.parametrize("context", KINDS)
def test_student_and_evaluation_prompts_hold_nothing_privileged(context: Any) -> None:
    """Sentinels in everything privileged: none of them is in a prompt of a view without context."""
    secret = "SECRET"
    rows = [
        ContextRow(
            problem(f"p{row.group}", solution=f"{secret}-solution", answer=f"{secret}-answer"),
            row.group,
            f"{secret} {row.text}",
            row.token_ids,
            row.reward,
            row.grade and row.grade.model_copy(update={"feedback": f"{secret}-feedback"}),
        )
        for row in ROWS
    ]
    views = {"student": View(weights=StudentWeights()), "teacher": teacher(context)}
    critiques = {"teacher": dict.fromkeys(range(4), f"{secret}-critique")}

    prompts = view_prompts(views, ["teacher", "student"], rows, BYTES, MARKED, critiques)

    assert any(secret in text(prompt) for prompt in prompts["teacher"].prompts if prompt is not None)
    for row, prompt in zip(rows, prompts["student"].prompts, strict=True):
        assert prompt is not None and secret not in text(prompt)
        assert prompt == BYTES.student_ids(row.problem), "what evaluation renders"
    assert all(one is not None and one.text is None for one in prompts["student"].contexts)


def test_every_methods_rollout_view_and_learning_views_on_the_tiny_base_hide_the_solution() -> None:
    problems = ADDITION.load("train", limit=4)
    rows = [ContextRow(one, group) for group, one in enumerate(problems)]
    plain = small_renderer()
    checked = 0
    for method in METHODS.values():
        bare = {name: view for name, view in method.views.items() if view.context.kind == "none"}
        bare = {name: view.model_copy(update={"thinking": None}) for name, view in bare.items()}
        for view in view_prompts(bare, [*bare], rows, plain, CONTEXT_LANGUAGE).values():
            for one, prompt in zip(problems, view.prompts, strict=True):
                assert prompt is not None
                shown = str(plain.tokenizer.decode([*prompt]))
                assert (one.solution or "") not in shown and one.answer not in shown and "<|hint|>" not in shown
                checked += 1
    assert checked >= 4 * len(METHODS)


@pytest.mark.parametrize("context", KINDS)
def test_tiny_prompts_of_every_kind_need_no_unknown_token(context: Any) -> None:
    problems = ADDITION.load("train", limit=2)
    texts = (problems[0].solution or "", "1+1+0=0?", "<|pad|>#", problems[1].solution or "")
    rows = []
    for index, written in enumerate(texts):
        one = problems[index // 2]
        grade = ADDITION.grade(one, written)
        rows.append(ContextRow(one, index // 2, written, (7,), float(grade.score or 0), grade))
    renderer = small_renderer()
    view = View(weights=FrozenWeights(), context=context)
    critiques = {"t": dict.fromkeys(range(4), "Step 1 is WRONG")}
    prompts = view_prompts({"t": view}, ["t"], rows, renderer, CONTEXT_LANGUAGE, critiques)["t"]
    for prompt in prompts.prompts:
        assert prompt is None or renderer.unknown_id not in prompt
    if context == "solution":
        assert prompts.prompts[0] == renderer.privileged_ids(problems[0], problems[0].solution)


def test_a_views_own_template_and_thinking_flag() -> None:
    rows = [ContextRow(problem("a", solution="S{problem}"), 0)]
    view = teacher("solution", template="see {context} then {problem}", thinking=False)
    assert text(seen(view, rows).prompts[0]) == (
        "[user]see <solution>S{problem} then ask a<end>[assistant]<think></think>"
    )


def test_max_context_tokens_cuts_the_end_and_is_counted() -> None:
    rows = [ContextRow(problem("a", solution="abcdef"), 0), ContextRow(problem("b", solution="ab"), 1)]
    view = seen(teacher("solution", max_context_tokens=13), rows)
    assert [one and (one.text, one.cut) for one in view.contexts] == [("<solution>abc", True), ("<solution>ab", False)]
    assert text(view.prompts[0]) == "[user]ask a[<solution>abc]<end>[assistant]"
    assert context_metrics({"teacher": view}) == {
        "context/teacher": (2.0, 2.0),
        "context_masked/teacher": (0.0, 2.0),
        "context_cut/teacher": (1.0, 2.0),
        "context_tokens/teacher": (25.0, 2.0),
    }


def test_masked_rows_and_views_without_context_in_the_metrics() -> None:
    views = {
        "student": View(weights=StudentWeights()),
        "teacher": teacher({"kind": "peer_success", "feedback": "never"}),
    }
    found = context_metrics(view_prompts(views, [*views], ROWS[:3], BYTES, MARKED))
    assert found["context/teacher"] == (1.0, 3.0) and found["context_masked/teacher"] == (2.0, 3.0)
    assert found["context_tokens/teacher"] == (len("<peer_success>right"), 1.0)
    assert not [name for name in found if name.endswith("/student")]
    nothing = seen(teacher({"kind": "partial_solution", "share": 0.0, "keep_answer": False}), ROWS)
    assert nothing.prompts[0] == BYTES.student_ids(ROWS[0].problem) and context_metrics({"t": nothing}) == {}


def test_feedback_that_leaves_the_response_no_room_is_cut_and_counted() -> None:
    row = rollout("x" * 10, 0.0, 0, "F" * 50)
    whole = seen(teacher("environment_feedback"), [row])
    assert whole.prompts[0] is not None and whole.contexts[0] is not None and not whole.contexts[0].cut
    short = byte_renderer(context_length=len(whole.prompts[0]) + 10 - 20)

    cut = seen(teacher("environment_feedback"), [row], short)

    assert cut.prompts[0] is not None and cut.contexts[0] is not None
    assert len(cut.prompts[0]) + 10 == short.context_length
    assert cut.contexts[0].cut and cut.contexts[0].text == "<feedback>" + "F" * 30
    assert text(cut.prompts[0]).startswith("[user]ask p0[") and text(cut.prompts[0]).endswith("]<end>[assistant]")


def test_a_solution_that_does_not_fit_is_never_cut_by_itself() -> None:
    rows = [ContextRow(problem("a", solution="x" * 50), 0, "yy", (1, 2), 1.0)]
    view = seen(teacher("solution"), rows, byte_renderer(context_length=30))
    assert view.contexts[0] is not None and not view.contexts[0].cut
    assert view.prompts[0] is not None and len(view.prompts[0]) > 30, "for align to refuse"


def test_responses_are_never_tokenised_again_only_shown_texts_are() -> None:
    """Building prompts does not touch the rows' ids, whatever their texts would be tokenised to."""
    rows = [ContextRow(problem("a"), 0, "same", (9, 9, 9), 1.0), ContextRow(problem("a"), 0, "other", (8,), 0.0)]
    before = [row.token_ids for row in rows]
    view = seen(teacher({"kind": "peer_success", "feedback": "never"}), rows)
    assert [row.token_ids for row in rows] == before
    assert view.prompts[1] is not None and text(view.prompts[1]) == "[user]ask a[<peer_success>same]<end>[assistant]"
