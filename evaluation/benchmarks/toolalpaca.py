"""ToolAlpaca in the form of the self-distillation papers: one question, documented tools, the calls that answer it.

File ``toolalpaca_test.jsonl`` (68 records) with fields prompt and answer (a JSON list of Action and Action_Input). The
answer is graded call by call: the same actions, each with the same arguments, in any order. Feedback names the calls
that are missing and those not asked for, so it holds the expected values; use it as privileged context knowingly.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from evaluation.benchmarks.base import Benchmark, SamplingProtocol, Score
from evaluation.benchmarks.reading import field, find_file, load_file, text_field
from evaluation.grading.tool_calls import (
    VERSION,
    Call,
    MalformedCallError,
    action_calls,
    difference,
    loosely_same,
    same,
)
from evaluation.problems import Grade, Message, Problem, Split

FILES: dict[Split, str] = {"train": "toolalpaca_train.jsonl", "test": "toolalpaca_test.jsonl"}
GET = "they are datasets/tooluse/{train,test}.json of lasgroup/SDPO on GitHub, one record a line"


def load(split: Split, *, limit: int | None = None, root: Path | None = None) -> list[Problem]:
    """The first ``limit`` problems in the file's order. Raises MissingDataError, or ValueError naming the place."""
    if split not in FILES:
        raise ValueError("toolalpaca has no validation split: give validation problems as a file of your own")

    def make(entry: dict[str, Any], place: str, number: int) -> Problem:
        answer = text_field(entry, place, "answer")
        gold(answer, place)
        return Problem(
            id=f"{split}-{field(entry, place, 'idx')}",
            benchmark="toolalpaca",
            split=split,
            prompt=(Message(role="user", content=text_field(entry, place, "prompt")),),
            answer=answer,
            solution=written(answer, place),
        )

    return load_file(find_file("toolalpaca", FILES[split], root, GET), limit, make)


def gold(answer: str, place: str) -> list[Call]:
    """The expected calls. Raises ValueError naming ``place``."""
    try:
        steps = json.loads(answer)
        return [Call(step["Action"], json.loads(step["Action_Input"] or "{}")) for step in steps]
    except (json.JSONDecodeError, KeyError, TypeError) as error:
        raise ValueError(f"{place}: the answer is no list of Action and Action_Input ({error})") from error


def written(answer: str, place: str) -> str:
    """The expected calls in the format that the prompt asks for: the reference to imitate."""
    lines = [
        f"Action: {call.name}\nAction Input: {json.dumps(dict(call.arguments), ensure_ascii=False)}"
        for call in gold(answer, place)
    ]
    return "\n".join(lines)


def grade(problem: Problem, text: str) -> Grade:
    """Passes iff the actions of ``text`` are those of the answer with equal arguments (1 = 1.0, "1" is not 1).

    Lenient: numbers may be written as text, and case does not matter. ``well_formed``: at least one action, and every
    input is JSON.
    """
    wanted = gold(problem.answer, f"problem {problem.id}")
    try:
        calls, malformed = action_calls(text), None
    except MalformedCallError as error:
        calls, malformed = [], str(error)
    strict = difference(wanted, calls, lambda a, b: a.name == b.name and same(a.arguments, b.arguments), Call.written)
    loose = difference(
        wanted, calls, lambda a, b: a.name == b.name and loosely_same(a.arguments, b.arguments), Call.written
    )
    right = strict is None and malformed is None
    return Grade(
        verdict="pass" if right else "fail",
        score=float(right),
        grader="tool_calls",
        version=VERSION,
        extracted="; ".join(call.written() for call in calls) or None,
        feedback=None if right else malformed or strict,
        well_formed=bool(calls) and malformed is None,
        lenient="pass" if loose is None and malformed is None else "fail",
    )


TOOLALPACA = Benchmark(
    name="toolalpaca",
    version="2",
    title="ToolAlpaca, tool calls",
    licence="Apache-2.0",
    source="https://github.com/tangqiaoyu/ToolAlpaca",
    splits=("train", "test"),
    max_new_tokens=1024,
    load=load,
    grade=grade,
    files=(FILES["train"], FILES["test"]),
    kind="tools",
    get=GET,
    grading="the same actions with equal arguments, in any order; lenient: numbers as text, any case",
    protocol=SamplingProtocol(samples=16, temperature=0.6, top_p=0.95, source="2601.20802"),
    published=(
        Score("Qwen3-8B", "avg@16", 57.5, "2601.20802"),
        Score("Qwen3-8B + GRPO", "best avg@16 in 5 h", 67.7, "2601.20802"),
        Score("Qwen3-8B + SDPO", "best avg@16 in 5 h", 68.5, "2601.20802"),
        Score("Olmo3-7B", "avg@16", 39.3, "2601.20802"),
    ),
)
