"""What each kind of context does for a tiny base: its greedy accuracy with it, without it, and with another problem's.

``python -m training.base_models.context_table`` prints the table as Markdown. Where a context does not help the base,
no method that shows it to a teacher of the same weights can learn from it.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from evaluation.benchmarks import BENCHMARKS
from evaluation.benchmarks.base import Benchmark
from evaluation.problems import Problem, Split
from evaluation.samplers.base import SampleRequest, SamplingParams
from training.base_models.catalogue import BASE_MODELS
from training.base_models.resolve import resolve_model
from training.base_models.shown import SHOWN, Attempt, Case, critique_request, shown
from training.base_models.tokenizer import END, PAD, VOCABULARY, question_ids
from training.spec import ModelSpec

ATTEMPTS = 8
"""Attempts drawn at temperature 1 for each problem, as a group of rollouts is."""
BENCHMARK_NAMES = ("addition", "chain")

_CHARACTER = {index: token for token, index in VOCABULARY.items()}


@dataclass(frozen=True, slots=True)
class Row:
    """One kind of context on the ``problems`` problems that can have it.

    ``without``, ``own`` and ``other`` are the shares that the model answers right with no context, with the problem's
    own and with that of another of these problems.
    """

    kind: str
    example: str
    problems: int
    without: float
    own: float
    other: float


class Base:
    """A tiny model that answers questions of ``benchmark`` in text."""

    def __init__(self, model: Any, benchmark: Benchmark) -> None:
        from evaluation.samplers.hf import HFSampler

        self.benchmark = benchmark
        self._sampler = HFSampler(model, end_ids=frozenset({VOCABULARY[END]}), pad_id=VOCABULARY[PAD], max_rows=200)

    def texts(self, asked: Sequence[tuple[Problem, str | None]], temperature: float = 0.0) -> list[str]:
        """One response to each (problem, context), drawn with the position in ``asked`` as its seed."""
        requests = [
            SampleRequest(tuple(question_ids(problem.prompt[0].content, context)), seed)
            for seed, (problem, context) in enumerate(asked)
        ]
        params = SamplingParams(max_new_tokens=self.benchmark.max_new_tokens, temperature=temperature)
        drawn = self._sampler.sample(requests, params)
        end = VOCABULARY[END]
        return ["".join(_CHARACTER[i] for i in one.token_ids if i != end) for one in drawn]

    def passed(self, asked: Sequence[tuple[Problem, str | None]]) -> list[bool]:
        """Whether each greedy response is right."""
        texts = self.texts(asked)
        return [
            self.benchmark.grade(problem, text).verdict == "pass"
            for (problem, _), text in zip(asked, texts, strict=True)
        ]


def cases(base: Base, problems: Sequence[Problem]) -> list[Case]:
    """The problems with ``ATTEMPTS`` attempts of the base and its greedy critiques of the first failed one."""
    texts = base.texts([(problem, None) for problem in problems for _ in range(ATTEMPTS)], temperature=1.0)
    made = []
    for place, problem in enumerate(problems):
        attempts = texts[place * ATTEMPTS : (place + 1) * ATTEMPTS]
        first, second = (problems[(place + ahead) % len(problems)] for ahead in (1, 2))
        graded = tuple(Attempt(_written(text), base.benchmark.grade(problem, text)) for text in attempts)
        made.append(Case(problem, (first, second), graded))
    criticised = [place for place, case in enumerate(made) if case.failure is not None]
    own, helped = (
        base.texts([(made[place].problem, critique_request(made[place], informed=informed)) for place in criticised])
        for informed in (False, True)
    )
    for place, critique, informed in zip(criticised, own, helped, strict=True):
        made[place] = replace(made[place], critique=_written(critique), informed_critique=_written(informed))
    return made


def rows(base: Base, made: Sequence[Case]) -> list[Row]:
    """One row for no context, then one for each kind in ``SHOWN``."""
    alone = base.passed([(case.problem, None) for case in made])
    found = [Row("none", "", len(made), _share(alone), _share(alone), _share(alone))]
    for kind in SHOWN:
        contexts = [shown(kind, case) for case in made]
        places = [place for place, context in enumerate(contexts) if context is not None]
        problems = [made[place].problem for place in places]
        own = [contexts[place] for place in places]
        passed = base.passed([*zip(problems, own, strict=True), *zip(problems, [*own[1:], *own[:1]], strict=True)])
        found.append(
            Row(
                kind,
                own[0] or "" if own else "",
                len(places),
                _share([alone[place] for place in places]),
                _share(passed[: len(places)]),
                _share(passed[len(places) :]),
            )
        )
    return found


def critique_accuracy(made: Sequence[Case]) -> tuple[int, float, float]:
    """Failed attempts criticised, and the shares of critiques that say what the environment's feedback says.

    First those written without help, then those with the solution in view.
    """
    said = [(case, case.failure.grade.feedback) for case in made if case.failure is not None]
    own = [case.critique == feedback for case, feedback in said]
    return len(said), _share(own), _share([case.informed_critique == feedback for case, feedback in said])


def markdown(name: str, measured: Sequence[Row], critiques: tuple[int, float, float]) -> str:
    """The table of one benchmark."""
    lines = [
        f"### {name}",
        "",
        "| context | for example | problems | without | with | another problem's |",
        "|---|---|--:|--:|--:|--:|",
    ]
    for row in measured:
        figures = (
            f"{row.without:.3f} | {row.own:.3f} | {row.other:.3f}" if row.kind != "none" else f"{row.without:.3f} | |"
        )
        example = f"`{row.example}`" if row.example else ""
        lines.append(f"| {row.kind} | {example} | {row.problems} | {figures} |")
    count, own, informed = critiques
    lines += [
        "",
        f"Critiques of {count} failed attempts say what the environment's feedback says in {own:.3f} of cases, with "
        f"the solution in view in {informed:.3f}.",
    ]
    return "\n".join(lines)


def _share(passed: Sequence[bool]) -> float:
    return sum(passed) / len(passed) if passed else float("nan")


def _written(text: str) -> str:
    # Special tokens cannot stand inside a context block.
    return "".join(character for character in text if character in VOCABULARY)


def _parser() -> argparse.ArgumentParser:
    options = argparse.ArgumentParser(prog="python -m training.base_models.context_table", description=__doc__)
    options.add_argument("--model", default="tiny-full", help="a tiny base model, or the folder of one")
    options.add_argument("--problems", type=int, default=200)
    options.add_argument("--split", choices=["test", "validation"], default="test")
    options.add_argument("--cache", type=Path, default=Path.home() / ".cache" / "stillroom")
    return options


def main(arguments: list[str] | None = None) -> None:
    import torch
    from transformers import AutoModelForCausalLM

    given = _parser().parse_args(arguments)
    resolved = resolve_model(ModelSpec(name=given.model), given.cache)
    if resolved.language != BASE_MODELS["tiny-demo"].language:
        raise SystemExit(f"--model: {given.model!r} does not speak the language of the tiny models")
    torch.set_num_threads(1)
    model = AutoModelForCausalLM.from_pretrained(resolved.path, dtype=torch.float32).eval()
    split: Split = given.split
    for name in BENCHMARK_NAMES:
        base = Base(model, BENCHMARKS[name])
        made = cases(base, BENCHMARKS[name].load(split, limit=given.problems))
        print(markdown(name, rows(base, made), critique_accuracy(made)), end="\n\n", flush=True)


if __name__ == "__main__":
    main()
