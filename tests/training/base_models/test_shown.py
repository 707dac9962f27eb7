"""The contexts of the table: what each kind shows of a problem and of the base's attempts at it."""

from __future__ import annotations

from evaluation.benchmarks.addition import ADDITION
from evaluation.benchmarks.chain import CHAIN
from training.base_models.item_kinds import MAKERS
from training.base_models.shown import SHOWN, Attempt, Case, critique_request, shown
from training.base_models.tokenizer import CHARACTERS
from training.contexts.language import BLOCK_KINDS

SOLUTION = "9*7=3;3+5=8;8+3=1#1"
WRONG = "9*7=3;3+5=7;7+3=0#0"


def case(*texts: str, critique: str | None = None, informed: str | None = None) -> Case:
    template, first, second = CHAIN.load("train", limit=3)
    question = template.prompt[0].model_copy(update={"content": "9*7+5+3"})
    changes = {"id": "9*7+5+3", "prompt": (question,), "answer": "1", "solution": SOLUTION}
    problem = template.model_copy(update=changes)
    attempts = tuple(Attempt(text, CHAIN.grade(problem, text)) for text in texts)
    return Case(problem, (first, second), attempts, critique, informed)


def test_what_each_kind_shows() -> None:
    made = case(WRONG, SOLUTION, critique="ok", informed="3+5=8")
    expected = {
        "solution": SOLUTION,
        "answer": "#1",
        "partial_solution, half": "9*7=3;3+5?",
        "partial_solution, half, answer kept": "9*7=3;3+5?#1",
        "guidance: every step to do": "do 9*7=3,do 3+5=8,do 8+3=1",
        "guidance: first wrong step, do and avoid": "do 3+5=8,not 3+5=7",
        "guidance: wrong steps to avoid": "not 3+5=7,not 7+3=0",
        "demonstration, own reference": f"eg:{SOLUTION}",
        "peer_success": f"ok:{SOLUTION}",
        "peer_success + feedback": f"ok:{SOLUTION} fix:3+5=8",
        "peer_success + attempt + feedback": f"ok:{SOLUTION} no:{WRONG} fix:3+5=8",
        "attempt (failed)": f"no:{WRONG}",
        "feedback": "fix:3+5=8",
        "attempt + feedback": f"no:{WRONG} fix:3+5=8",
        "critique, its own": "note:ok",
        "attempt + critique": f"no:{WRONG} note:ok",
        "critique, with the solution in view": "note:3+5=8",
    }
    assert {kind: shown(kind, made) for kind in expected} == expected
    assert critique_request(made, informed=False) == f"check:{WRONG}"
    assert critique_request(made, informed=True) == f"{SOLUTION} check:{WRONG}"
    rest = set(SHOWN) - set(expected)
    assert rest == {"facts, with 6 irrelevant rows", "demonstration, another problem"}


def test_facts_hold_the_needed_rows_among_those_of_two_others_in_a_fixed_shuffled_order() -> None:
    made = case()
    context = shown("facts, with 6 irrelevant rows", made) or ""
    rows = context.removeprefix("f:").split(",")
    own = SOLUTION.partition("#")[0].split(";")
    others = [row for other in made.others for row in str(other.solution).partition("#")[0].split(";")]
    assert sorted(rows) == sorted({*own, *others})
    assert rows[: len(own)] != own
    assert shown("facts, with 6 irrelevant rows", made) == context


def test_what_cannot_be_had_is_left_out() -> None:
    failed = case(WRONG)
    assert shown("peer_success", failed) is None and shown("peer_success + feedback", failed) is None
    assert shown("critique, its own", failed) is None
    solved = case(SOLUTION)
    assert shown("feedback", solved) is None and shown("attempt (failed)", solved) is None
    assert critique_request(solved, informed=True) is None
    # The steps are right and the answer is not: there is no wrong fact to avoid.
    careless = case(SOLUTION.replace("#1", "#2"))
    assert shown("feedback", careless) == "fix:#1"
    assert shown("guidance: first wrong step, do and avoid", careless) is None
    assert shown("guidance: wrong steps to avoid", careless) is None


def test_every_block_is_measured_and_every_context_can_be_written() -> None:
    made = case(WRONG, SOLUTION, critique="ok", informed="ok")
    kinds = {block for build in SHOWN.values() for block, _ in build(made) or ()}
    # A peer's failure is written as the own failed attempt is; the request is what the critique row asks first.
    assert kinds == set(BLOCK_KINDS) - {"peer_failure", "critique_request"}
    for kind in SHOWN:
        assert set(shown(kind, made) or "") <= set(CHARACTERS)
    problem, first, second = ADDITION.load("validation", limit=3)
    half = shown("partial_solution, half", Case(problem, (first, second), ()))
    assert half == str(problem.solution)[:15] + "?"
    assert set(MAKERS) >= {"facts", "guidance", "demonstration", "feedback", "critique", "critique_request"}
