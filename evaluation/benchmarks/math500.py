"""MATH-500: 500 problems of the MATH test set (Hendrycks et al. 2021, arXiv:2103.03874)."""

from __future__ import annotations

from evaluation.benchmarks.math_sets import math_set

MATH500 = math_set(
    "math500",
    "MATH-500, competition mathematics",
    file="math500_test.jsonl",
    licence="MIT (MATH)",
    source="https://huggingface.co/datasets/HuggingFaceH4/MATH-500",
    get="it is test.jsonl of the hub's data set HuggingFaceH4/MATH-500",
    max_new_tokens=4096,
)
