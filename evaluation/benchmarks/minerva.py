"""Minerva: 272 university problems in the sciences (Lewkowycz et al. 2022, arXiv:2206.14858)."""

from __future__ import annotations

from evaluation.benchmarks.math_sets import math_set

MINERVA = math_set(
    "minerva",
    "Minerva, university science problems",
    file="minerva_test.jsonl",
    licence="MIT (OpenCourseWare problems: CC-BY-NC-SA)",
    source="https://huggingface.co/datasets/math-ai/minervamath",
    get="it is test.jsonl of the hub's data set math-ai/minervamath (fields question, answer)",
    max_new_tokens=4096,
)
