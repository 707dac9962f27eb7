"""AMC 2023: 40 problems of the AMC 12 with their multiple choices left out; answers are numbers."""

from __future__ import annotations

from evaluation.benchmarks.base import SamplingProtocol, Score
from evaluation.benchmarks.math_sets import math_set

AMC23 = math_set(
    "amc23",
    "AMC 2023",
    file="amc23_test.jsonl",
    licence="problems: Mathematical Association of America",
    source="https://github.com/QwenLM/Qwen2.5-Math",
    get="it is evaluation/data/amc23/test.jsonl of QwenLM/Qwen2.5-Math on GitHub",
    max_new_tokens=4096,
    protocol=SamplingProtocol(samples=32, temperature=1.0, top_p=1.0, source="2606.04036"),
    published=(
        Score("Qwen3-4B + GRPO", "mean@32, best", 73.9, "2606.04036"),
        Score("Qwen3-4B + SDPG-URKL", "mean@32, best", 86.3, "2606.04036"),
        Score("Qwen3-4B + SDPG-UFKL", "mean@32, best", 87.0, "2606.04036"),
    ),
)
