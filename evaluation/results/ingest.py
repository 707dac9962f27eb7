"""Spools into the database: each line exactly once, each fact once, whatever dies in between.

One process at a time holds the store's lock. It reads every spool from where the ledger says to the last newline,
and inserts the facts and the new ledger rows in one transaction. Lines that are no facts go to quarantine.

``python -m evaluation.results.ingest STORE [--rebuild] [--follow]``
"""

from __future__ import annotations

import contextlib
import gc
import time
from collections import defaultdict
from collections.abc import Generator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

from evaluation.results.compacted import CompactedError, CompactedFile
from evaluation.results.database import connect_writer, create_schema, is_empty, refresh_views, schema_is_current
from evaluation.results.facts import TABLES, arrow_tables, prepare
from evaluation.results.ledger import SpoolState, read_compacted, read_ledger, write_compacted, write_ledger
from evaluation.results.lines import BadLine, parse_line
from evaluation.results.settle import settle
from evaluation.results.snapshot import publish_connection
from evaluation.results.sources import CompactedSource, FileSource, SpoolReader, SpoolSource
from evaluation.results.spool import sync_folder
from evaluation.results.store import Store

BATCH_LINES = 50_000
"""Lines of one transaction: large enough for Arrow's speed, small enough for memory."""
EXCERPT_CHARACTERS = 2_000


@dataclass(frozen=True, slots=True)
class IngestReport:
    """What one call of ``ingest`` or ``rebuild`` did."""

    files: int
    """Spool files in the store."""
    compacted: int
    """Compacted files in the store."""
    lines: int
    """Facts read in this call."""
    bad_lines: int
    """Lines quarantined in this call."""
    waiting_bytes: int
    """Bytes after the last newline of the spools: lines still being written, or torn by a crash."""
    replaced: tuple[str, ...]
    """Spools that shrank or were replaced; their facts were forgotten and read again from the start."""
    damaged: tuple[str, ...]
    """Compacted files that could not be read whole, and why; they are tried again each time."""
    rebuilt: bool
    published: bool
    seconds: float


def ingest(store: Path, *, wait: float | None = None, publish: bool = True) -> IngestReport:
    """Move every whole line of the store's spools into its database, and publish a snapshot if anything changed.

    ``wait`` is the longest wait in seconds for another ingesting process (None: as long as it takes). Raises
    StoreBusyError after that, StoreDamagedError for an unreadable database, OSError when the disk refuses.
    """
    files = Store(Path(store))
    with files.ingest_lock(wait):
        return _ingest(files, from_scratch=False, publish=publish)


def rebuild(store: Path, *, wait: float | None = None) -> IngestReport:
    """Make the database again from the spools, replace the old one whole, and publish."""
    files = Store(Path(store))
    with files.ingest_lock(wait):
        return _ingest(files, from_scratch=True, publish=True)


def _ingest(files: Store, *, from_scratch: bool, publish: bool) -> IngestReport:
    start = time.perf_counter()
    pass_, published = None, False
    if not from_scratch:
        with connect_writer(files.database) as con:
            if _has_current_schema(con):
                pass_ = _run_pass(con, files)
                published = publish and publish_connection(con, files)
    rebuilt = pass_ is None
    if pass_ is None:
        pass_ = _rebuild(files)
        if publish:
            with connect_writer(files.database) as con:
                published = publish_connection(con, files)
    return IngestReport(
        files=pass_.files,
        compacted=pass_.compacted,
        lines=pass_.lines,
        bad_lines=pass_.bad_lines,
        waiting_bytes=pass_.waiting_bytes,
        replaced=tuple(pass_.replaced),
        damaged=tuple(pass_.damaged.values()),
        rebuilt=rebuilt,
        published=published,
        seconds=time.perf_counter() - start,
    )


def _has_current_schema(con: duckdb.DuckDBPyConnection) -> bool:
    """Create the tables of a new database; False when the tables are those of another version."""
    if is_empty(con):
        create_schema(con)
    if not schema_is_current(con):
        return False
    refresh_views(con)
    return True


def _rebuild(files: Store) -> _Pass:
    for leftover in files.path.glob("results.rebuild-*"):
        leftover.unlink()
    fresh = files.path / f"results.rebuild-{time.time_ns()}.duckdb"
    with connect_writer(fresh) as con:
        create_schema(con)
        pass_ = _run_pass(con, files)
        con.execute("CHECKPOINT")
    # The old log must not be replayed onto the new file; should we die here, the spools still have everything.
    files.database.with_name(files.database.name + ".wal").unlink(missing_ok=True)
    fresh.replace(files.database)
    sync_folder(files.path)
    return pass_


def _run_pass(con: duckdb.DuckDBPyConnection, files: Store) -> _Pass:
    pass_ = _Pass(con, files.path, read_ledger(con))
    known = read_compacted(con)
    # Listed after the spools: one that is gone by then is in a compacted file that was there first.
    spools: list[SpoolSource] = [FileSource(path, files.path) for path in files.spool_files()]
    present = {path.relative_to(files.path).as_posix(): path for path in files.compacted_files()}
    for name in present.keys() - known:
        spools += pass_.opened(name, present[name])
    # One fixed order, wherever a spool lies: a rebuilt database has the same bits.
    with _no_collection():
        for source in sorted(spools, key=lambda source: source.name):
            pass_.read(source)
        pass_.commit()
    pass_.compacted = len(present)
    read = present.keys() - pass_.damaged.keys()
    if read != known:
        write_compacted(con, read)
    settle(con)
    return pass_


@contextlib.contextmanager
def _no_collection() -> Generator[None]:
    """Keep the garbage collector off: it would walk all held lines again and again, and they form no cycles."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


@dataclass(slots=True)
class _Pass:
    """One reading of all spools. Between two commits it holds at most BATCH_LINES lines."""

    con: duckdb.DuckDBPyConnection
    store: Path
    ledger: dict[str, SpoolState]
    files: int = 0
    compacted: int = 0
    lines: int = 0
    bad_lines: int = 0
    waiting_bytes: int = 0
    replaced: list[str] = field(default_factory=list)
    damaged: dict[str, str] = field(default_factory=dict)

    _held: int = 0
    _good: dict[str, list[dict[str, Any]]] = field(default_factory=lambda: defaultdict(list))
    _writers: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    _bad: list[tuple[str, int, int, str, str]] = field(default_factory=list)
    _touched: dict[str, SpoolState] = field(default_factory=dict)
    _forgotten: list[SpoolState] = field(default_factory=list)

    def opened(self, name: str, path: Path) -> list[SpoolSource]:
        """The spools of a compacted file; none of one that is damaged or gone."""
        try:
            file = CompactedFile.open(path)
        except (CompactedError, FileNotFoundError) as error:
            self.damaged[name] = str(error)
            return []
        return [CompactedSource(file, spool, self.store) for spool in file.spools]

    def read(self, source: SpoolSource) -> None:
        """Take every whole new line of one spool; what a damaged one still gives."""
        try:
            self._read(source)
        except CompactedError as error:
            assert isinstance(source, CompactedSource)
            self.damaged[source.file.path.relative_to(self.store).as_posix()] = str(error)

    def _read(self, source: SpoolSource) -> None:
        state = self.ledger.get(source.name)
        with contextlib.ExitStack() as stack:
            try:
                size, mtime_ns = source.status()
                self.files += not source.is_final
                if state and state.unchanged(size, mtime_ns):
                    self.waiting_bytes += state.seen_bytes - state.consumed_bytes
                    return
                if state and source.is_final and size < state.consumed_bytes:
                    return  # an older copy, from a bundle, of a spool that has grown since
                reader = stack.enter_context(source.opened())
            except FileNotFoundError:
                return  # compacted, or its run removed, since the files were listed
            state = self._continued(source, state, reader, size)
            self.waiting_bytes += self._take_all(state, reader)
            state.fingerprint = reader.fingerprint(state.consumed_bytes)
        state.seen_bytes, state.seen_mtime_ns = size, mtime_ns
        self._touched[source.name] = state

    def _continued(self, source: SpoolSource, state: SpoolState | None, reader: SpoolReader, size: int) -> SpoolState:
        """The state to go on from; that of a spool which was replaced is forgotten."""
        if state and not state.continues_in(reader, size):
            self.replaced.append(source.name)
            self._forgotten.append(state)
            state = None
        state = state or SpoolState.new(source.name)
        self.ledger[source.name] = state
        # Only a file read to its end is known by its size: a crash after a commit half-way must not skip the rest.
        state.seen_bytes, state.seen_mtime_ns = -1, 0
        return state

    def _take_all(self, state: SpoolState, reader: SpoolReader) -> int:
        """Take the whole lines from where the state says; returns the bytes after the last of them."""
        rest = b""
        for block in reader.blocks(state.consumed_bytes):
            *lines, rest = (rest + block).split(b"\n")
            for line in lines:
                self._take(state, line)
                if self._held >= BATCH_LINES:
                    state.fingerprint = reader.fingerprint(state.consumed_bytes)
                    self.commit()
        return len(rest)

    def _take(self, state: SpoolState, line: bytes) -> None:
        try:
            fact = prepare(parse_line(line))
        except BadLine as error:
            excerpt = line[: 4 * EXCERPT_CHARACTERS].decode(errors="replace")[:EXCERPT_CHARACTERS]
            self._bad.append((state.file, state.consumed_bytes, len(line), str(error), excerpt))
            state.bad_lines += 1
            self.bad_lines += 1
        else:
            kind = fact["kind"]
            self._good[kind].append(fact)
            self._writers[kind].append(state.writer)
            _note(state, fact)
            self.lines += 1
        state.consumed_bytes += len(line) + 1
        self._touched[state.file] = state
        self._held += 1

    def commit(self) -> None:
        """Facts, quarantine and ledger in one transaction, or none of them."""
        if not self._touched:
            return
        touched = {(fact["run_id"], TABLES[kind]) for kind, facts in self._good.items() for fact in facts}
        self.con.begin()
        for state in self._forgotten:
            touched |= self._forget(state)
        for kind, facts in self._good.items():
            for table, rows in arrow_tables(kind, facts, self._writers[kind]).items():
                self._insert(table, rows)
        if self._bad:
            self._insert("quarantine", self._quarantine())
        if touched:
            runs, tables = zip(*sorted(touched), strict=True)
            self._insert("unsettled", pa.table({"run_id": pa.array(runs), "fact_table": pa.array(tables)}))
        write_ledger(self.con, self._touched.values())
        if self._held or self._forgotten:
            self.con.execute("UPDATE schema_version SET revision = revision + 1")
        self.con.commit()
        self._held = 0
        for part in (self._good, self._writers, self._bad, self._touched, self._forgotten):
            part.clear()

    def _insert(self, table: str, rows: pa.Table) -> None:
        self.con.register("new_rows", rows)
        self.con.execute(f"INSERT INTO {table} BY NAME SELECT * FROM new_rows")
        self.con.unregister("new_rows")

    def _quarantine(self) -> pa.Table:
        files, starts, lengths, reasons, excerpts = zip(*self._bad, strict=True)
        now = datetime.now(UTC).replace(tzinfo=None)
        return pa.table(
            {
                "file": pa.array(files, pa.string()),
                "start_byte": pa.array(starts, pa.int64()),
                "length": pa.array(lengths, pa.int64()),
                "reason": pa.array(reasons, pa.string()),
                "excerpt": pa.array(excerpts, pa.string()),
                "found_at": pa.array([now] * len(files), pa.timestamp("us")),
            }
        )

    def _forget(self, state: SpoolState) -> set[tuple[str, str]]:
        """Delete what was read from a spool that is no longer the same; returns the runs and tables touched."""
        touched: set[tuple[str, str]] = set()
        for table in [*TABLES.values(), "steps"]:
            gone = self.con.execute(f"DELETE FROM {table} WHERE writer = ? RETURNING run_id", [state.writer]).fetchall()
            touched |= {(row[0], table) for row in gone}
        self.con.execute("DELETE FROM quarantine WHERE file = ?", [state.file])
        return touched


def _note(state: SpoolState, fact: dict[str, Any]) -> None:
    """What the ledger says of a spool besides the offset."""
    at = fact["at"]
    state.lines += 1
    state.role = fact["role"]
    state.pid = fact["pid"]
    if fact["kind"] not in state.kinds:
        state.kinds.append(fact["kind"])
    state.first_at = at if state.first_at is None else min(state.first_at, at)
    state.last_at = at if state.last_at is None else max(state.last_at, at)


if __name__ == "__main__":
    from evaluation.results.follow import main

    raise SystemExit(main())
