"""What every update of a run shares."""

from __future__ import annotations

from dataclasses import dataclass

from evaluation.benchmarks.base import Benchmark
from training.contexts.language import ContextLanguage
from training.learners.base import Learner
from training.method import Method
from training.rendering import Renderer
from training.spec import ComputeSpec


@dataclass(frozen=True, slots=True)
class Trainer:
    """What every update of a run shares."""

    method: Method
    learner: Learner
    renderer: Renderer
    language: ContextLanguage
    benchmark: Benchmark
    compute: ComputeSpec
    run_seed: int
