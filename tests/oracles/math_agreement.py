r"""Our math graders beside plain Math-Verify: ``python -m tests.oracles.math_agreement [--cases FOLDER]``.

Prints every disagreement on 220 stored completions of SmolLM2-135M-Instruct (``--generate MODEL`` draws them again from
a model folder; it needs STILLROOM_BENCHMARKS), or with ``--cases`` on the cases in a folder of Math-Verify's own tests.
Plain Math-Verify means ``verify(parse(gold), parse(text))`` with its default settings.
"""

from __future__ import annotations

import argparse
import ast
import gzip
import json
import os
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evaluation.benchmarks import BENCHMARKS
from evaluation.grading.batch import grade_many
from evaluation.grading.extraction import boxed
from evaluation.grading.math import equal_answers, grade_math
from evaluation.problems import Grade, Message, Problem, Verdict

DATA = Path(__file__).parent / "data"
COMPLETIONS = DATA / "smollm2_completions.jsonl.gz"
CASES = DATA / "math_verify_cases.tsv"
DRAWN = (("smol_addition", 40, 64), ("gsm8k", 50, 256), ("math500", 130, 320))
"""Benchmark, problems from the first, and new tokens at most; one sample each at temperature 0.6, seed 0."""


@dataclass(frozen=True)
class Judged:
    """One text with both judgements of it."""

    benchmark: str
    problem: Problem
    text: str
    ours: Grade
    theirs: bool


def plain_math_verify(gold: str, text: str) -> bool:
    """Whether Math-Verify with its defaults finds ``gold`` in ``text``; works in the main thread only."""
    from math_verify import parse, verify

    return verify(parse(f"\\boxed{{{gold}}}"), parse(text))


def stored_completions() -> list[dict[str, str]]:
    with gzip.open(COMPLETIONS, "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def _problem(answer: str, benchmark: str = "none", name: str = "none") -> Problem:
    message = Message(role="user", content="not needed to grade")
    return Problem(id=name, benchmark=benchmark, split="test", prompt=(message,), answer=answer)


def judged_completions() -> list[Judged]:
    """Both judgements of every stored completion, ours by the graders of the benchmarks they answer."""
    found: list[Judged] = []
    for name, _, _ in DRAWN:
        rows = [row for row in stored_completions() if row["benchmark"] == name]
        pairs = [(_problem(row["answer"], name, row["problem"]), row["text"]) for row in rows]
        grades = grade_many(BENCHMARKS[name], pairs)
        found += [
            Judged(name, problem, text, grade, plain_math_verify(problem.answer, text))
            for (problem, text), grade in zip(pairs, grades, strict=True)
        ]
    return found


def lenient(grade: Grade) -> Verdict:
    """The lenient verdict, or the only one."""
    return grade.lenient or grade.verdict


def restated_cases() -> list[tuple[str, str, str, Verdict, Verdict, str]]:
    """Gold, text, how it is read, their verdict, ours, and the reason where they differ."""
    cases: list[Any] = []
    for line in CASES.read_text(encoding="utf-8").splitlines():
        if not line.startswith("#"):
            gold, text, read, theirs, ours, *reason = line.split("\t")
            cases.append((gold, text.replace("⏎", "\n"), read, theirs, ours, reason[0] if reason else ""))
    return cases


def our_verdict(gold: str, text: str, read: str) -> Verdict:
    """``read`` says whether ``text`` is a whole answer or free text."""
    if read == "text":
        return lenient(grade_math(_problem(gold), text))
    equal = equal_answers(gold, text).equal
    return "not_scored" if equal is None else "pass" if equal else "fail"


def cases_of(folder: Path) -> Iterator[tuple[str, str, str, bool]]:
    """Test, gold, text and expectation of every parametrised pair in Math-Verify's tests, read without running them."""
    for file in sorted(folder.glob("test_*.py")):
        for function in ast.parse(file.read_text(encoding="utf-8")).body:
            if not isinstance(function, ast.FunctionDef):
                continue
            for decorator in function.decorator_list:
                if not isinstance(decorator, ast.Call) or len(decorator.args) != 2:
                    continue
                names, rows = decorator.args
                if not isinstance(names, ast.Constant) or not isinstance(rows, ast.List):
                    continue
                columns = [name.strip() for name in str(names.value).split(",")]
                if columns[:2] == ["gold", "pred"]:
                    for row in filter(_is_literal, rows.elts):
                        values = dict(zip(columns, ast.literal_eval(row), strict=True))
                        expected = values.get("expected", values.get("result"))
                        yield f"{file.name}::{function.name}", values["gold"], values["pred"], bool(expected)


def _is_literal(node: ast.expr) -> bool:
    return all(isinstance(part, ast.Constant | ast.Tuple | ast.expr_context) for part in ast.walk(node))


def generate(model_folder: Path) -> None:
    """Draws the completions again and stores them."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from evaluation.evaluate import request_seed
    from evaluation.samplers.base import SampleRequest, SamplingParams
    from evaluation.samplers.hf import HFSampler

    torch.set_num_threads(1)
    root = Path(os.environ["STILLROOM_BENCHMARKS"])
    tokenizer: Any = AutoTokenizer.from_pretrained(model_folder)
    model: Any = AutoModelForCausalLM.from_pretrained(model_folder, dtype=torch.float32).eval()
    sampler = HFSampler(model, end_ids=frozenset({tokenizer.eos_token_id}), pad_id=tokenizer.pad_token_id, max_rows=48)
    lines = []
    for name, count, limit in DRAWN:
        problems = BENCHMARKS[name].load("test", limit=count, root=root)
        prompts = [
            tokenizer.apply_chat_template(
                [message.model_dump() for message in problem.prompt], add_generation_prompt=True, return_dict=False
            )
            for problem in problems
        ]
        requests = [
            SampleRequest(tuple(ids), request_seed(0, name, problem.id, 0))
            for ids, problem in zip(prompts, problems, strict=True)
        ]
        drawn = sampler.sample(requests, SamplingParams(max_new_tokens=limit, temperature=0.6))
        for problem, completion in zip(problems, drawn, strict=True):
            text = tokenizer.decode(completion.token_ids, skip_special_tokens=True)
            row = {"benchmark": name, "problem": problem.id, "answer": problem.answer, "text": text}
            lines.append(json.dumps({**row, "finish": completion.finish_reason}, ensure_ascii=False) + "\n")
    COMPLETIONS.write_bytes(gzip.compress("".join(lines).encode(), 9, mtime=0))


def _print_cases(folder: Path) -> None:
    total = differing = 0
    for test, gold, text, expected in cases_of(folder):
        box = boxed(gold)
        bare = box.text if box is not None else gold
        lone = "boxed" not in text and re.fullmatch(r"\$+[^$]*\$+|[^$\\ ]*", text.strip()) is not None
        ours = our_verdict(bare.strip("$"), text, "whole" if lone else "text")
        total += 1
        if (ours == "pass") != expected:
            differing += 1
            print(f"{test}: theirs {'pass' if expected else 'fail'}, ours {ours}: {gold[-80:]!r} | {text[-120:]!r}")
    print(f"{differing} of {total} cases differ")


def main(arguments: Sequence[str] | None = None) -> None:
    """Prints the disagreements."""
    parser = argparse.ArgumentParser(prog="python -m tests.oracles.math_agreement", description=__doc__)
    parser.add_argument("--cases", type=Path, help="the folder tests/ of a checkout of Math-Verify")
    parser.add_argument("--generate", type=Path, help="a model folder: draw the completions again first")
    options = parser.parse_args(arguments)
    if options.cases is not None:
        _print_cases(options.cases)
        return
    if options.generate is not None:
        generate(options.generate)
    judged = judged_completions()
    for one in judged:
        if (lenient(one.ours) == "pass") != one.theirs:
            print(
                f"{one.benchmark} {one.problem.id}: reference {one.problem.answer!r}, ours {lenient(one.ours)} "
                f"(read {one.ours.extracted!r}), theirs {'pass' if one.theirs else 'fail'}: …{one.text[-120:]!r}"
            )
    counts = Counter((one.benchmark, one.ours.verdict, lenient(one.ours), one.theirs) for one in judged)
    for (name, strict, loose, theirs), count in sorted(counts.items()):
        print(f"{count:4} {name}: strict {strict}, lenient {loose}, Math-Verify {'pass' if theirs else 'fail'}")


if __name__ == "__main__":
    main()
