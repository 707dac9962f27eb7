"""AIME 2025: the 30 problems of both papers; answers are whole numbers from 0 to 999."""

from __future__ import annotations

from evaluation.benchmarks.base import SamplingProtocol, Score
from evaluation.benchmarks.math_sets import math_set

AIME25 = math_set(
    "aime25",
    "AIME 2025",
    file="aime25_test.jsonl",
    licence="problems: Mathematical Association of America",
    source="https://huggingface.co/datasets/math-ai/aime25",
    get="it is test.jsonl of the hub's data set math-ai/aime25 (fields problem, answer)",
    max_new_tokens=38912,
    protocol=SamplingProtocol(samples=12, temperature=1.0, top_p=1.0, source="2601.18734v3"),
    published=(
        Score("Qwen3-1.7B, thinking", "avg@12", 36.7, "2601.18734 (README)"),
        Score("Qwen3-1.7B + OPSD", "avg@12, best checkpoint", 43.9, "2601.18734v3"),
        Score("Qwen3-8B + OPSD", "avg@12, best checkpoint", 70.8, "2601.18734v3"),
        Score("Qwen3-1.7B + GRPO", "avg@12, best checkpoint", 38.9, "2608.08176"),
        Score("Qwen3-1.7B + OPSD", "avg@12, best checkpoint", 41.9, "2608.08176"),
        Score("Qwen3-1.7B + USD", "avg@12, best checkpoint", 43.6, "2608.08176"),
        Score("Qwen3-4B + USD", "avg@12, best checkpoint", 70.0, "2608.08176"),
        Score("Qwen3-8B + USD", "avg@12, best checkpoint", 73.3, "2608.08176"),
        Score("Qwen3-4B + GRPO", "mean@32, best", 27.9, "2606.04036"),
        Score("Qwen3-4B + SDPG-URKL", "mean@32, best", 30.8, "2606.04036"),
        Score("Qwen3-4B + SDPG-UFKL", "mean@32, best", 33.5, "2606.04036"),
    ),
)
