"""The benchmarks by name. To add one: write its module, import it here, add it to the list."""

from __future__ import annotations

from evaluation.benchmarks.addition import ADDITION
from evaluation.benchmarks.aime24 import AIME24
from evaluation.benchmarks.aime25 import AIME25
from evaluation.benchmarks.amc23 import AMC23
from evaluation.benchmarks.base import Benchmark
from evaluation.benchmarks.bfcl import BFCL
from evaluation.benchmarks.chain import CHAIN
from evaluation.benchmarks.gsm8k import GSM8K
from evaluation.benchmarks.gym_families import REASONING_GYM
from evaluation.benchmarks.hmmt25 import HMMT25
from evaluation.benchmarks.humaneval import HUMANEVAL, HUMANEVAL_PLUS
from evaluation.benchmarks.livecodebench import LIVECODEBENCH_V5, LIVECODEBENCH_V6
from evaluation.benchmarks.math500 import MATH500
from evaluation.benchmarks.mbpp import MBPP, MBPP_PLUS
from evaluation.benchmarks.minerva import MINERVA
from evaluation.benchmarks.sciknoweval import (
    SCIKNOWEVAL_BIOLOGY,
    SCIKNOWEVAL_CHEMISTRY,
    SCIKNOWEVAL_MATERIAL,
    SCIKNOWEVAL_PHYSICS,
)
from evaluation.benchmarks.smol_addition import SMOL_ADDITION
from evaluation.benchmarks.toolalpaca import TOOLALPACA

_ALL = (
    ADDITION,
    CHAIN,
    SMOL_ADDITION,
    GSM8K,
    MATH500,
    AIME24,
    AIME25,
    AMC23,
    HMMT25,
    MINERVA,
    SCIKNOWEVAL_BIOLOGY,
    SCIKNOWEVAL_CHEMISTRY,
    SCIKNOWEVAL_MATERIAL,
    SCIKNOWEVAL_PHYSICS,
    HUMANEVAL,
    HUMANEVAL_PLUS,
    MBPP,
    MBPP_PLUS,
    LIVECODEBENCH_V5,
    LIVECODEBENCH_V6,
    TOOLALPACA,
    BFCL,
    *REASONING_GYM,
)

BENCHMARKS: dict[str, Benchmark] = {benchmark.name: benchmark for benchmark in _ALL}
