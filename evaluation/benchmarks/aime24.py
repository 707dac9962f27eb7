"""AIME 2024: the 30 problems of both papers; answers are whole numbers from 0 to 999."""

from __future__ import annotations

from evaluation.benchmarks.base import SamplingProtocol, Score
from evaluation.benchmarks.math_sets import math_set

AIME24 = math_set(
    "aime24",
    "AIME 2024",
    file="aime24_test.jsonl",
    licence="problems: Mathematical Association of America",
    source="https://github.com/QwenLM/Qwen2.5-Math",
    get="it is evaluation/data/aime24/test.jsonl of QwenLM/Qwen2.5-Math on GitHub",
    max_new_tokens=38912,
    protocol=SamplingProtocol(samples=12, temperature=1.0, top_p=1.0, source="2601.18734v3"),
    published=(
        Score("Qwen3-1.7B, thinking", "avg@12", 51.5, "2601.18734 (README)"),
        Score("Qwen3-1.7B, not thinking", "avg@12", 11.9, "2601.18734 (README)"),
        Score("Qwen3-4B, not thinking", "avg@12", 23.1, "2601.18734 (README)"),
        Score("Qwen3-8B, not thinking", "avg@12", 26.4, "2601.18734 (README)"),
        Score("Qwen3-4B", "avg@8", 72.92, "2608.07935"),
        Score("Qwen3-1.7B + OPSD", "avg@12, best checkpoint", 57.2, "2601.18734v3"),
        Score("Qwen3-8B + OPSD", "avg@12, best checkpoint", 77.8, "2601.18734v3"),
        Score("Qwen3-1.7B + GRPO", "avg@12, best checkpoint", 51.9, "2608.08176"),
        Score("Qwen3-1.7B + OPSD", "avg@12, best checkpoint", 54.4, "2608.08176"),
        Score("Qwen3-1.7B + USD", "avg@12, best checkpoint", 58.9, "2608.08176"),
        Score("Qwen3-4B + USD", "avg@12, best checkpoint", 76.7, "2608.08176"),
        Score("Qwen3-8B + USD", "avg@12, best checkpoint", 79.7, "2608.08176"),
        Score("Qwen3-4B + GRPO", "mean@32, best", 31.6, "2606.04036"),
        Score("Qwen3-4B + SDPG-URKL", "mean@32, best", 40.1, "2606.04036"),
        Score("Qwen3-4B + SDPG-UFKL", "mean@32, best", 40.8, "2606.04036"),
    ),
)
