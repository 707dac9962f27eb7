"""SciKnowEval as the self-distillation papers use it: four subjects, four choices each, train and test files.

Files ``sciknoweval_<subject>_{train,test}.jsonl`` with fields prompt, system, answer (a letter) and idx, as in the
repository of SDPO (arXiv:2601.20802). The validation split is a hold-out of the training file: the questions whose
SHA-256 is 0 modulo ``VALIDATION_ONE_IN``; the train split is the rest. There are no worked solutions: methods that need
one cannot train here, those that learn from peers can.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from evaluation.benchmarks.base import Benchmark, SamplingProtocol, Score
from evaluation.benchmarks.reading import field, find_file, is_held_out, load_file, text_field
from evaluation.grading.choice import grade_choice
from evaluation.problems import Message, Problem, Split

VALIDATION_ONE_IN = 10
LEFT_OUT = {("material", 377): "the test file has the same question (365)"}
"""Training records that are not used: (subject, idx) -> why."""

PAPER = "2601.20802"
SOURCE = "https://github.com/lasgroup/SDPO"


def _benchmark(subject: str, published: tuple[Score, ...]) -> Benchmark:
    name = f"sciknoweval_{subject}"
    files: dict[str, str] = {"train": f"{name}_train.jsonl", "test": f"{name}_test.jsonl"}
    files["validation"] = files["train"]
    get = f"they are datasets/sciknoweval/{subject}/{{train,test}}.json of lasgroup/SDPO on GitHub, one record a line"

    def load(split: Split, *, limit: int | None = None, root: Path | None = None) -> list[Problem]:
        def make(entry: dict[str, Any], place: str, number: int) -> Problem | None:
            question, index = text_field(entry, place, "prompt"), field(entry, place, "idx")
            held_out = is_held_out(question, VALIDATION_ONE_IN)
            if split != "test" and ((subject, index) in LEFT_OUT or held_out != (split == "validation")):
                return None
            answer = text_field(entry, place, "answer").strip()
            if answer not in ("A", "B", "C", "D"):
                raise ValueError(f"{place}: the answer {answer!r} is none of A, B, C, D")
            system = entry.get("system")
            messages = [Message(role="system", content=system.strip())] if isinstance(system, str) else []
            return Problem(
                id=f"{'test' if split == 'test' else 'train'}-{index}",
                benchmark=name,
                split=split,
                prompt=(*messages, Message(role="user", content=question)),
                answer=answer,
            )

        return load_file(find_file(name, files[split], root, get), limit, make)

    return Benchmark(
        name=name,
        version="1",
        title=f"SciKnowEval, {subject}",
        licence="none stated by SciKnowEval: for evaluation, not to be redistributed",
        source=SOURCE,
        splits=("train", "validation", "test"),
        max_new_tokens=8192,
        load=load,
        grade=grade_choice,
        files=(files["train"], files["test"]),
        kind="science",
        get=get,
        grading="exactly one letter in the last <answer>…</answer>; lenient: \\boxed{B}, answer is (B), a letter alone",
        protocol=SamplingProtocol(samples=16, temperature=0.6, top_p=0.95, source=PAPER),
        published=published,
    )


def _scores(*rows: tuple[str, float, float, float]) -> tuple[Score, ...]:
    """Base, and the best within five hours of GRPO and SDPO."""
    return tuple(
        Score(model + suffix, metric, percent, PAPER)
        for model, *values in rows
        for suffix, metric, percent in zip(
            ("", " + GRPO", " + SDPO"), ("avg@16", "best avg@16 in 5 h", "best avg@16 in 5 h"), values, strict=True
        )
    )


SCIKNOWEVAL_BIOLOGY = _benchmark("biology", _scores(("Qwen3-8B", 30.8, 59.9, 56.8), ("Olmo3-7B", 16.2, 55.8, 52.8)))
SCIKNOWEVAL_CHEMISTRY = _benchmark("chemistry", _scores(("Qwen3-8B", 41.2, 74.5, 80.9), ("Olmo3-7B", 22.8, 56.7, 80.0)))
SCIKNOWEVAL_MATERIAL = _benchmark("material", _scores(("Qwen3-8B", 58.9, 77.1, 78.4), ("Olmo3-7B", 36.7, 75.0, 79.1)))
SCIKNOWEVAL_PHYSICS = _benchmark("physics", _scores(("Qwen3-8B", 59.2, 72.7, 75.6), ("Olmo3-7B", 37.7, 63.3, 66.1)))
