"""How a tiny base answers a test split: without context, with the true solution, with another problem's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from evaluation.benchmarks.addition import ADDITION
from evaluation.benchmarks.base import Benchmark
from training.base_models.tokenizer import END, PAD, VOCABULARY, question_ids

if TYPE_CHECKING:
    from transformers import Qwen3ForCausalLM

Shown = Literal["nothing", "own_solution", "other_solution"]

_CHARACTER = {index: token for token, index in VOCABULARY.items()}


def greedy_texts(model: Qwen3ForCausalLM, prompts: list[list[int]], max_new_tokens: int) -> list[str]:
    """Greedy continuations of prompts of one common length, up to the end token."""
    import torch

    lengths = {len(prompt) for prompt in prompts}
    if len(lengths) != 1:
        raise ValueError(f"prompts of one length are needed, got lengths {sorted(lengths)}")
    tokens = torch.tensor(prompts)
    with torch.no_grad():
        output = model.generate(
            inputs=tokens,
            attention_mask=torch.ones_like(tokens),
            max_new_tokens=max_new_tokens,
            do_sample=False,
            eos_token_id=VOCABULARY[END],
            pad_token_id=VOCABULARY[PAD],
        )
    drawn = output[:, tokens.shape[1] :].tolist()
    end = VOCABULARY[END]
    return ["".join(_CHARACTER[i] for i in row[: row.index(end) if end in row else None]) for row in drawn]


def addition_accuracy(model: Qwen3ForCausalLM, shown: Shown, problems: int | None = None) -> float:
    """``accuracy`` on the addition benchmark."""
    return accuracy(model, ADDITION, shown, problems)


def accuracy(model: Qwen3ForCausalLM, benchmark: Benchmark, shown: Shown, problems: int | None = None) -> float:
    """Share of the first ``problems`` test problems that ``model`` answers right by greedy decoding."""
    asked = benchmark.load("test", limit=problems)
    others = [*asked[1:], asked[0]]
    contexts = {
        "nothing": [None] * len(asked),
        "own_solution": [problem.solution for problem in asked],
        "other_solution": [problem.solution for problem in others],
    }[shown]
    prompts = [question_ids(problem.id, context) for problem, context in zip(asked, contexts, strict=True)]
    texts = greedy_texts(model, prompts, benchmark.max_new_tokens)
    grades = [benchmark.grade(problem, text) for problem, text in zip(asked, texts, strict=True)]
    return sum(grade.verdict == "pass" for grade in grades) / len(grades)
