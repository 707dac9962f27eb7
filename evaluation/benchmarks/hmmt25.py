"""HMMT February 2025: 30 problems; answers are expressions, some of them lists."""

from __future__ import annotations

from evaluation.benchmarks.base import SamplingProtocol, Score
from evaluation.benchmarks.math_sets import math_set

HMMT25 = math_set(
    "hmmt25",
    "HMMT February 2025",
    file="hmmt_feb_2025.parquet",
    licence="CC-BY-NC-SA-4.0 (MathArena)",
    source="https://huggingface.co/datasets/MathArena/hmmt_feb_2025",
    get="it is data/train-00000-of-00001.parquet of the hub's data set MathArena/hmmt_feb_2025",
    max_new_tokens=38912,
    protocol=SamplingProtocol(samples=12, temperature=1.0, top_p=1.0, source="2601.18734v3"),
    published=(
        Score("Qwen3-1.7B, thinking", "avg@12", 23.1, "2601.18734 (README)"),
        Score("Qwen3-1.7B + OPSD", "avg@12, best checkpoint", 29.2, "2601.18734v3"),
        Score("Qwen3-8B + OPSD", "avg@12, best checkpoint", 45.8, "2601.18734v3"),
        Score("Qwen3-1.7B + GRPO", "avg@12, best checkpoint", 26.9, "2608.08176"),
        Score("Qwen3-1.7B + OPSD", "avg@12, best checkpoint", 28.3, "2608.08176"),
        Score("Qwen3-1.7B + USD", "avg@12, best checkpoint", 29.4, "2608.08176"),
        Score("Qwen3-4B + USD", "avg@12, best checkpoint", 46.7, "2608.08176"),
        Score("Qwen3-8B + USD", "avg@12, best checkpoint", 49.7, "2608.08176"),
    ),
)
