"""Speed of the sampler against ``generate``: ``python -m evaluation.bench [--json PATH] [--model DIR] [--quick]``.

Without ``--model`` a random Qwen3 of the tiny base's size (hidden 96, 3 layers, 365,664 parameters at 56 ids) in
float32; with it, a model folder. One thread. Each case draws the same number of completions of the same distribution
from both, alternating, over several rounds with seeds of their own; tokens and seconds of all rounds are summed:

equal    every completion has ``NEW_TOKENS`` tokens (no id ends one)
ragged   prompts of 4 to 19 tokens and completions whose lengths differ (ids end them at random), all at once
queued   the same, four times as many as decoded at once: ``generate`` takes them batch by batch

Tokens are counted up to each completion's end. The ratios are the result: seconds depend on the machine's other load
(process seconds are used, not the clock).
"""

from __future__ import annotations

import argparse
import json
import platform
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table
from transformers import AutoModelForCausalLM, Qwen3Config, Qwen3ForCausalLM

from evaluation.samplers.base import SampleRequest, SamplingParams
from evaluation.samplers.hf import HFSampler

NEW_TOKENS = 32
RAGGED_LIMIT = 128
END_IDS = (1, 2, 3)
"""Ids that end a completion of the ragged cases; a random model draws one of them every 56 / 3 tokens or so."""
PAD_ID = 0


@dataclass(frozen=True)
class Case:
    """``requests`` completions, ``rows`` decoded at once."""

    name: str
    requests: int
    rows: int
    ragged: bool


@dataclass(frozen=True)
class Result:
    """Tokens a second of both sides, and their ratio."""

    case: str
    rows: int
    requests: int
    tokens: int
    ours: float
    generate: float
    ratio: float


CASES = (
    Case("equal", 64, 64, False),
    Case("equal", 200, 200, False),
    Case("ragged", 64, 64, True),
    Case("ragged", 200, 200, True),
    Case("queued", 256, 64, True),
)


def tiny_model() -> Any:
    """A random model of the tiny base's shape."""
    torch.manual_seed(0)
    config = Qwen3Config(
        vocab_size=56,
        hidden_size=96,
        num_hidden_layers=3,
        num_attention_heads=3,
        num_key_value_heads=3,
        head_dim=32,
        intermediate_size=288,
        max_position_embeddings=256,
        tie_word_embeddings=True,
    )
    config._attn_implementation = "eager"  # faster than sdpa at this size, and what the tiny base uses
    return Qwen3ForCausalLM(config).eval()


def requests_of(case: Case, number: int) -> list[SampleRequest]:
    """The case's prompts in round ``number``, of 10 tokens or of 4 to 19."""
    source = random.Random(number)
    lengths = [source.randrange(4, 20) if case.ragged else 10 for _ in range(case.requests)]
    return [
        SampleRequest(tuple(source.randrange(4, 56) for _ in range(length)), seed)
        for seed, length in enumerate(lengths, start=number * case.requests)
    ]


def sample_ours(model: Any, case: Case, requests: Sequence[SampleRequest]) -> int:
    """Tokens drawn by HFSampler."""
    ends = frozenset(END_IDS) if case.ragged else frozenset[int]()
    sampler = HFSampler(model, end_ids=ends, pad_id=PAD_ID, max_rows=case.rows)
    params = SamplingParams(max_new_tokens=RAGGED_LIMIT if case.ragged else NEW_TOKENS)
    return sum(len(completion.token_ids) for completion in sampler.sample(requests, params))


def sample_generate(model: Any, case: Case, requests: Sequence[SampleRequest]) -> int:
    """Tokens drawn by ``generate``, batch by batch, each completion counted up to its end."""
    return sum(
        _generate(model, case, requests[first : first + case.rows]) for first in range(0, case.requests, case.rows)
    )


def _generate(model: Any, case: Case, batch: Sequence[SampleRequest]) -> int:
    width = max(len(request.prompt_ids) for request in batch)
    ids = torch.full((len(batch), width), PAD_ID)
    for row, request in enumerate(batch):
        ids[row, width - len(request.prompt_ids) :] = torch.tensor(request.prompt_ids)
    drawn = model.generate(
        ids.to(model.device),
        attention_mask=(ids != PAD_ID).to(model.device),
        do_sample=True,
        top_k=0,
        max_new_tokens=RAGGED_LIMIT if case.ragged else NEW_TOKENS,
        eos_token_id=list(END_IDS) if case.ragged else None,
        pad_token_id=PAD_ID,
    )[:, width:].cpu()
    if not case.ragged:
        return drawn.numel()
    ends = torch.isin(drawn, torch.tensor(END_IDS))
    lengths = torch.where(ends.any(1), ends.int().argmax(1) + 1, drawn.shape[1])
    return int(lengths.sum())


def measure(model: Any, case: Case, rounds: int) -> Result:
    """Both sides, alternating, after one unmeasured call of each."""
    sides: dict[str, Callable[[Any, Case, Sequence[SampleRequest]], int]]
    sides = {"ours": sample_ours, "generate": sample_generate}
    tokens, seconds = dict.fromkeys(sides, 0), dict.fromkeys(sides, 0.0)
    for number in range(-1, rounds):
        requests = requests_of(case, max(number, 0))
        torch.manual_seed(max(number, 0))
        for name, side in sides.items():
            began = time.process_time()
            count = side(model, case, requests)
            if number >= 0:
                tokens[name] += count
                seconds[name] += time.process_time() - began
    speed = {name: tokens[name] / seconds[name] for name in sides}
    ratio = speed["ours"] / speed["generate"]
    return Result(case.name, case.rows, case.requests, tokens["ours"], speed["ours"], speed["generate"], ratio)


def main(arguments: Sequence[str] | None = None) -> list[Result]:
    """Prints the table; returns its rows."""
    parser = argparse.ArgumentParser(prog="python -m evaluation.bench", description=__doc__)
    parser.add_argument("--json", type=Path, help="also write the rows to this file")
    parser.add_argument("--model", type=Path, help="a model folder; default: a random model of the tiny base's size")
    parser.add_argument("--quick", action="store_true", help="one round of each case")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    model: Any = tiny_model()
    if options.model is not None:
        model = AutoModelForCausalLM.from_pretrained(options.model, dtype=torch.float32).eval()
    results = [measure(model, case, 1 if options.quick else 5) for case in CASES]
    table = Table("case", "rows", "requests", "tokens", "ours, tokens/s", "generate, tokens/s", "ratio")
    for r in results:
        numbers = (f"{r.ours:,.0f}", f"{r.generate:,.0f}", f"{r.ratio:.2f}")
        table.add_row(r.case, str(r.rows), str(r.requests), f"{r.tokens:,}", *numbers)
    Console().print(table)
    if options.json is not None:
        machine = {"machine": platform.processor() or platform.machine(), "torch": torch.__version__, "threads": 1}
        options.json.write_text(json.dumps({**machine, "cases": [asdict(r) for r in results]}, indent=1) + "\n")
    return results


if __name__ == "__main__":
    main()
