"""Reading the published snapshot. Every read is cached on (store, snapshot version, what was asked).

A connection is opened for one read and closed again, so that nothing is held while a page waits and every new snapshot
is seen.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import streamlit as st

from dashboard.serve import STORE_VARIABLE
from evaluation.results.compare import compare
from evaluation.results.comparison import Comparison
from evaluation.results.curves import learning_curves, seed_curves
from evaluation.results.query import QueryResult, run_query
from evaluation.results.snapshot import open_snapshot
from evaluation.results.spool import read_samples
from evaluation.results.store import Store, snapshot_version

DEFAULT_STORE = "store"
CACHED_TABLES = 256
"""Most tables kept in memory, over all sessions and versions."""
CACHED_COMPARISONS = 64
TEXT_COLUMNS = ("completion", "feedback")
"""What pages show of a samples file; its token ids and log-probabilities are many times as large."""
QUERIES = Path(__file__).parent / "queries"

Version = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What one drawing of a page reads: a store, and the version of the snapshot that was there when it began."""

    store: Path
    version: Version

    def table(self, name: str, /, **parameters: Any) -> pd.DataFrame:
        """The rows of ``queries/<name>.sql``."""
        return _table(str(self.store), self.version, query_text(name), tuple(sorted(parameters.items())))

    def comparison(
        self, plan: str, benchmark: str | None, split: str, baseline: str | None, metric: str, **more: Any
    ) -> Comparison:
        """The plan's table; ``more`` are further arguments of ``compare``. Raises CompareError if there is none."""
        asked = {"benchmark": benchmark, "split": split, "baseline": baseline, "metric": metric, **more}
        return _comparison(str(self.store), self.version, plan, tuple(sorted(asked.items())))

    def curves(self, plan: str, benchmark: str, split: str, metric: str) -> tuple[pd.DataFrame, pd.DataFrame]:
        """``learning_curves`` and the runs' own points behind them."""
        return _curves(str(self.store), self.version, plan, benchmark, split, metric)

    def query(self, sql: str) -> QueryResult:
        """One SELECT of the user's; raises QueryError."""
        return _query(str(self.store), self.version, sql)

    def texts(self, run_id: str, sample_file: str) -> pd.DataFrame:
        """A samples file of a run; raises FileNotFoundError when it has been pruned, ValueError when unreadable."""
        folder = Store(self.store).runs / run_id
        status = (folder / sample_file).stat()
        return _texts(str(folder), sample_file, (status.st_ino, status.st_mtime_ns))


def store_path() -> Path:
    """The store that this dashboard shows."""
    return Path(os.environ.get(STORE_VARIABLE) or DEFAULT_STORE).resolve()


def published_version(store: Path) -> Version | None:
    """The version of the snapshot that is published now; None before the first."""
    return snapshot_version(store)


@cache
def query_text(name: str) -> str:
    """The text of one of our queries."""
    return (QUERIES / f"{name}.sql").read_text(encoding="utf-8")


@st.cache_data(max_entries=CACHED_TABLES, show_spinner=False)
def _table(store: str, version: Version, sql: str, parameters: tuple[tuple[str, Any], ...]) -> pd.DataFrame:
    with open_snapshot(Path(store)) as con:
        return con.execute(sql, dict(parameters)).df()


@st.cache_data(max_entries=CACHED_COMPARISONS, show_spinner=False)
def _comparison(store: str, version: Version, plan: str, asked: tuple[tuple[str, Any], ...]) -> Comparison:
    with open_snapshot(Path(store)) as con:
        return compare(con, plan=plan, **dict(asked))


@st.cache_data(max_entries=CACHED_COMPARISONS, show_spinner=False)
def _curves(
    store: str, version: Version, plan: str, benchmark: str, split: str, metric: str
) -> tuple[pd.DataFrame, pd.DataFrame]:
    with open_snapshot(Path(store)) as con:
        means = learning_curves(con, plan, benchmark, split=split, metric=metric)
        return means, seed_curves(con, plan, benchmark, split=split)


@st.cache_data(max_entries=CACHED_COMPARISONS, show_spinner="Asking")
def _query(store: str, version: Version, sql: str) -> QueryResult:
    return run_query(Path(store), sql)


@st.cache_data(max_entries=CACHED_COMPARISONS, show_spinner=False)
def _texts(folder: str, sample_file: str, version: Version) -> pd.DataFrame:
    try:
        table = read_samples(Path(folder), sample_file)
        return table.select([name for name in TEXT_COLUMNS if name in table.column_names]).to_pandas()
    except pa.ArrowInvalid as error:
        raise ValueError(f"{sample_file} is not a readable Parquet file ({error})") from error
