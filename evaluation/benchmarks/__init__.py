"""The benchmarks by name. To add one: write its module, import it here, add one line."""

from __future__ import annotations

from evaluation.benchmarks.addition import ADDITION
from evaluation.benchmarks.base import Benchmark
from evaluation.benchmarks.chain import CHAIN
from evaluation.benchmarks.gsm8k import GSM8K
from evaluation.benchmarks.smol_addition import SMOL_ADDITION

BENCHMARKS: dict[str, Benchmark] = {
    "addition": ADDITION,
    "chain": CHAIN,
    "smol_addition": SMOL_ADDITION,
    "gsm8k": GSM8K,
}
