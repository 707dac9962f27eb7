"""Finding and reading the files of benchmarks: JSONL (plain or gzipped), one JSON array, or Parquet."""

from __future__ import annotations

import gzip
import hashlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from evaluation.benchmarks.base import MissingDataError
from evaluation.problems import Problem, Split


def find_file(benchmark: str, name: str, root: Path | None, get: str) -> Path:
    """The file ``name`` under the benchmark folder. Raises MissingDataError that says how to get it."""
    if root is not None and (root / name).is_file():
        return root / name
    where = "no benchmark folder is set" if root is None else f"there is no {name} in {root}"
    raise MissingDataError(
        f"benchmark {benchmark} needs {name}, and {where}: {get}; put it into a folder under that name and set "
        "STILLROOM_BENCHMARKS to the folder"
    )


def refuse_training(benchmark: str, split: Split) -> None:
    """Raises ValueError for any split of a benchmark that has its test split alone."""
    if split != "test":
        raise ValueError(f"{benchmark} has a test split only: it is made to measure with, not to train on")


def is_held_out(question: str, one_in: int) -> bool:
    """Whether a question of a training file belongs to the validation split.

    SHA-256 of the question without case and spacing is 0 modulo ``one_in``: no question is in two splits, whatever the
    order of the file.
    """
    digest = hashlib.sha256(" ".join(question.casefold().split()).encode()).digest()
    return int.from_bytes(digest[:8], "big") % one_in == 0


def records(file: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Place (``file:line``, or ``file[index]``) and record of each entry, in the file's order.

    Raises ValueError naming the place of what is no JSON object, and of a file that is not what its name says.
    """
    if file.suffix == ".parquet":
        yield from _parquet(file)
        return
    text = _text(file)
    if text.lstrip().startswith("["):
        yield from _array(file, text)
        return
    for number, line in enumerate(text.split("\n"), start=1):
        if line.strip():
            place = f"{file.name}:{number}"
            yield place, _object(line, place)


def _text(file: Path) -> str:
    try:
        raw = gzip.decompress(file.read_bytes()) if file.suffix == ".gz" else file.read_bytes()
        return raw.decode("utf-8-sig")
    except (OSError, EOFError) as error:
        raise ValueError(f"{file}: cannot be read ({error}): get the file again") from error
    except UnicodeDecodeError as error:
        raise ValueError(
            f"{file}: not UTF-8 text ({error.reason} at byte {error.start}): get the file again"
        ) from error


def _array(file: Path, text: str) -> Iterator[tuple[str, dict[str, Any]]]:
    try:
        entries = json.loads(text)
    except json.JSONDecodeError as error:
        raise ValueError(f"{file.name}: not a JSON array ({error}): get the file again") from error
    for index, entry in enumerate(entries):
        place = f"{file.name}[{index}]"
        if not isinstance(entry, dict):
            raise ValueError(f"{place}: a record is a JSON object, not {type(entry).__name__}")
        yield place, entry


def _object(line: str, place: str) -> dict[str, Any]:
    try:
        entry = json.loads(line)
    except json.JSONDecodeError as error:
        raise ValueError(f"{place}: not valid JSON ({error})") from error
    if not isinstance(entry, dict):
        raise ValueError(f"{place}: a record is a JSON object, not {type(entry).__name__}")
    return entry


def _parquet(file: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        entries = pq.read_table(file).to_pylist()
    except (pa.ArrowException, OSError) as error:
        raise ValueError(f"{file}: not a Parquet file ({error}): get the file again") from error
    for index, entry in enumerate(entries):
        yield f"{file.name}[{index}]", entry


def field(entry: dict[str, Any], place: str, *names: str) -> Any:
    """The first of the named fields that is there and not null. Raises ValueError naming all of them."""
    for name in names:
        if entry.get(name) is not None:
            return entry[name]
    raise ValueError(f"{place}: no field {' or '.join(names)} (there are {', '.join(sorted(entry)) or 'none'})")


def text_field(entry: dict[str, Any], place: str, *names: str) -> str:
    """The same for a text that is not empty."""
    value = field(entry, place, *names)
    if not isinstance(value, str) or not value.strip():
        raise ValueError(f"{place}: {' or '.join(names)} is not a text: {value!r:.80}")
    return value


def load_file(
    file: Path, limit: int | None, make: Callable[[dict[str, Any], str, int], Problem | None]
) -> list[Problem]:
    """The first ``limit`` problems that ``make`` (record, place, number from 1) gives; None leaves a record out.

    Raises ValueError for a file without any problem and for two problems of one id.
    """
    problems: list[Problem] = []
    places: dict[str, str] = {}
    for number, (place, entry) in enumerate(records(file), start=1):
        if limit is not None and len(problems) >= limit:
            break
        problem = make(entry, place, number)
        if problem is None:
            continue
        if problem.id in places:
            raise ValueError(f"{place}: id {problem.id!r} is taken by {places[problem.id]}")
        places[problem.id] = place
        problems.append(problem)
    if not problems and limit != 0:
        raise ValueError(f"{file}: no problems of this split in it")
    return problems
