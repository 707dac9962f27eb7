"""What a benchmark is: a loader of problems and a grader of answers, with its version and licence."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

from evaluation.problems import Grade, Problem, Split


class MissingDataError(ValueError):
    """The benchmark's data is not there; the message says which file, where it was sought and how to get it."""


class Load(Protocol):
    """Loads problems of one split, always in the same order.

    ``limit`` keeps the first so many (procedural benchmarks generate that many; None means the benchmark's own
    size); ``root`` is the folder of benchmark files (setting STILLROOM_BENCHMARKS), which procedural benchmarks
    ignore. Raises MissingDataError or ValueError naming the place and the fix.
    """

    def __call__(self, split: Split, *, limit: int | None = None, root: Path | None = None) -> list[Problem]: ...


Kind = Literal["math", "science", "code", "tools", "reasoning", "synthetic", "own data"]


@dataclass(frozen=True, slots=True)
class Score:
    """A number that somebody measured on the benchmark, in percent."""

    model: str
    metric: str
    percent: float
    source: str
    """A paper's id, or the command that gives it."""


@dataclass(frozen=True, slots=True)
class SamplingProtocol:
    """How papers sample the benchmark; ``stillroom evaluate`` starts from it."""

    samples: int
    temperature: float
    top_p: float
    source: str


@dataclass(frozen=True, slots=True)
class Benchmark:
    """One set of problems with its grader.

    ``files`` are the file names sought under the benchmark folder for each split (empty for procedural ones); they
    are hashed into a run's identity. ``version`` changes whenever prompts, splits or grading change.
    """

    name: str
    version: str
    title: str
    licence: str
    source: str
    splits: tuple[Split, ...]
    max_new_tokens: int
    load: Load
    grade: Callable[[Problem, str], Grade]
    files: tuple[str, ...] = ()
    kind: Kind = "synthetic"
    get: str = ""
    """How to get the files; empty for procedural benchmarks."""
    grading: str = ""
    """The rule of the grader, in a line."""
    protocol: SamplingProtocol | None = None
    published: tuple[Score, ...] = ()
    reproduced: tuple[Score, ...] = ()
    """Measured here."""
    listed: bool = True
    """Shown in the table of benchmarks; the others are there by name all the same."""
