"""The problems of a run: what it trains on and what it is evaluated on, loaded and checked in one place."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

from evaluation.benchmarks import BENCHMARKS
from evaluation.benchmarks.base import Benchmark
from evaluation.benchmarks.finding import LISTED, unknown
from evaluation.data import Grader, UserData, check_overlap, load_user_data, user_benchmark
from evaluation.names import nearest
from evaluation.problems import Problem
from training.spec import DataSpec, RunSpec

USER_DATA = "data"
"""Name under which evaluation.benchmarks refers to the user's own data."""


@dataclass(frozen=True)
class Sources:
    """Training problems with their grader, evaluation and retention problems by benchmark, and a hash of all of it."""

    train: list[Problem]
    train_benchmark: Benchmark | None
    evaluations: dict[str, tuple[Benchmark, list[Problem]]]
    content_hash: str


def sources_key(spec: RunSpec) -> str:
    """Runs with equal keys load equal sources."""
    asked = spec.evaluation
    names = f"{asked.benchmarks} {asked.retention}"
    return f"{spec.method is None} {spec.data} {names} {asked.split} {asked.problems}"


def load_sources(spec: RunSpec, root: Path | None) -> Sources:
    """Load everything a run asks about.

    ``root`` is the folder of benchmark files. Raises ValueError (MissingDataError for absent files) naming the
    place and the fix: unknown benchmark, problems shared by training and evaluation.
    """
    user = _user_data(spec.data)
    grader = spec.data.grader if spec.data else None
    digest = hashlib.sha256()
    evaluations = {}
    asked = [(name, "evaluation.benchmarks") for name in spec.evaluation.benchmarks]
    asked += [(name, "evaluation.retention") for name in spec.evaluation.retention]
    for name, place in asked:
        benchmark = _benchmark(name, user, grader, place)
        problems = benchmark.load(spec.evaluation.split, limit=spec.evaluation.problems, root=root)
        if not problems:
            raise ValueError(f"{place}: {name} has no problems in its {spec.evaluation.split} split")
        _add(digest, benchmark, root, user)
        evaluations[name] = (benchmark, problems)
    train: list[Problem] = []
    train_benchmark = None
    if spec.method is not None and spec.data is not None:
        train_benchmark = _benchmark(USER_DATA if user else spec.data.train, user, grader, "data.train")
        train = train_benchmark.load("train", limit=spec.data.limit, root=root)
        _add(digest, train_benchmark, root, user)
        _refuse_overlap(train, evaluations)
    return Sources(train, train_benchmark, evaluations, digest.hexdigest())


def _user_data(data: DataSpec | None) -> UserData | None:
    if data is None:
        return None
    if data.train in BENCHMARKS:
        given = [name for name in ("validation", "test", "grader") if getattr(data, name) is not None]
        if given:
            raise ValueError(f"data.{given[0]} belongs to data of your own; {data.train!r} is a benchmark: remove it")
        return None
    file = Path(data.train)
    if not file.is_file():
        if data.train.startswith("rg_"):
            raise ValueError(f"data.train: {unknown(data.train)}")
        raise ValueError(
            f"data.train: {data.train!r} is neither a benchmark nor a file beside the plan{nearest(file.name, LISTED)}"
        )
    return load_user_data(
        file,
        Path(data.validation) if data.validation else None,
        Path(data.test) if data.test else None,
    )


def _benchmark(name: str, user: UserData | None, grader: Grader | None, place: str) -> Benchmark:
    if name == USER_DATA and user is not None:
        return user_benchmark(user, grader) if grader else user_benchmark(user)
    if name not in BENCHMARKS:
        hint = " (it names the user's own data, and data.train is not a file)" if name == USER_DATA else ""
        raise ValueError(f"{place}: {unknown(name)}{hint}")
    return BENCHMARKS[name]


def _add(digest: hashlib._Hash, benchmark: Benchmark, root: Path | None, user: UserData | None) -> None:
    digest.update(f"{benchmark.name} {benchmark.version}\n".encode())
    if benchmark.name == USER_DATA and user is not None:
        digest.update(user.content_hash.encode())
    for name in benchmark.files:
        file = (root or Path()) / name
        if file.is_file():
            digest.update(hashlib.sha256(file.read_bytes()).digest())


def _refuse_overlap(train: list[Problem], evaluations: dict[str, tuple[Benchmark, list[Problem]]]) -> None:
    for name, (_, problems) in evaluations.items():
        overlaps = check_overlap(train, problems)
        if overlaps:
            first = overlaps[0]
            raise ValueError(
                f"data.train: {len(overlaps)} training problems are also in {name}'s evaluation problems, "
                f"e.g. {first.train_id!r} and {first.test_id!r}: remove them from the training data"
            )
