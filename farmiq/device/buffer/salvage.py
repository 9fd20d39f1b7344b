"""Salvage: copy every row that can still be read from a damaged buffer into a fresh one.

The damaged file stays beside it, with its journal; we never delete it.
"""

import contextlib
import os
import shutil
import sqlite3
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from farmiq.device.buffer import rules, store

Connect = Callable[[Path], sqlite3.Connection]

# Tables in which a row stands for itself; counts follow from the rows.
_BY_ROWID = {
    "sessions": "rowid",
    "weights": "id",
    "images": "id",
    "events": "seq",
    "ledger": "id",
    "commands": "n",
}
FRESH, REPAIRED = ".fresh", ".repaired"
_PARTS = ("-wal", "-shm")
PAGE_BYTES = 4096
MIN_BYTES = 512
# At most so many rows between two readable ends are read one by one.
_MAX_SINGLE_READS = 200_000


@dataclass(frozen=True, slots=True)
class Salvaged:
    reason: str
    damaged_file: Path
    rows: int
    # Rows that could be read and were not what they had been.
    broken: int
    # None: nothing says how far the numbers had come, they begin anew (C-84).
    last_seq: int | None


def salvage(path: Path, connect: Connect, *, reason: str) -> Salvaged:
    """Make a fresh file of what this one holds, then set this one aside.

    A power cut in the middle only makes it begin again: the old file stays until the fresh one is
    whole, and `finish` completes the exchange.
    """
    fresh_path = _beside(path, FRESH)
    _remove(fresh_path)
    with contextlib.closing(connect(fresh_path)) as fresh:
        fresh.execute("pragma wal_checkpoint(truncate)")
        source = _source(path, fresh_path)
        rows, broken, last_seq = _copy(source, fresh)
    if source != path:
        _remove(source)
    damaged_file = _damaged_name(path)
    path.rename(damaged_file)
    _exchange(path, damaged_file)
    return Salvaged(reason[:300], damaged_file, rows, broken, last_seq)


def missing(path: Path, *, used: bool) -> str | None:
    """What is wrong if a buffer was here and is not; None if there is one, or never was.

    SQLite takes a truncated file for an empty database and deletes its journal; seq would restart
    silently. `used`: the folder shows that a buffer was here before.
    """
    if path.exists():
        size = path.stat().st_size
        return None if size >= MIN_BYTES else "the file is cut off" if size else "it was empty"
    journal = _beside(path, "-wal")
    if not used and not (journal.exists() and journal.stat().st_size):
        return None
    # An empty file in its place: it is salvaged as any other, with the journal if there is one.
    path.touch()
    return "the file was gone"


def finish(path: Path) -> None:
    """Before the file is opened: end what a power cut interrupted."""
    _remove(_beside(path, REPAIRED))
    if not _beside(path, FRESH).exists():
        return
    if path.exists():
        _remove(_beside(path, FRESH))
    else:
        _exchange(path, _damaged_name(path))


def _exchange(path: Path, damaged: Path) -> None:
    """The old journal goes first: beside the new file it would be taken for the new one's."""
    for end in _PARTS:
        if _beside(path, end).exists():
            _beside(path, end).rename(_beside(damaged, end))
    _beside(path, FRESH).rename(path)
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """A rename is on the disk only after its folder is."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _copy(source: Path, fresh: sqlite3.Connection) -> tuple[int, int, int | None]:
    """(rows copied, events that are not what was written, the last seq if found)."""
    rows = broken = 0
    fresh.execute("begin immediate")
    # The triggers count the rows again: the counts of a damaged file cannot be trusted.
    for table, key in _BY_ROWID.items():
        for row in _readable(source, table, key):
            if table == "events" and not _is_intact(row):
                broken += 1
                continue
            with contextlib.suppress(sqlite3.Error):
                del row["_key"]
                store.insert(fresh, table, **row)
                rows += 1
    last_seq = _restore_meta(source, fresh)
    fresh.execute("commit")
    return rows, broken, last_seq or None


def _source(path: Path, fresh_path: Path) -> Path:
    """The damaged file, or a copy with a first page that can be read.

    That page is written most often. It names the root pages of the tables, which are the same in
    every buffer of this version, so the fresh file's first page fits.
    """
    # SQLite would delete the journal of an empty file, which may hold all there is.
    if path.stat().st_size >= MIN_BYTES:
        with contextlib.suppress(sqlite3.Error), contextlib.closing(sqlite3.connect(path)) as old:
            old.execute("select rowid from events limit 1").fetchone()
            old.execute("select * from meta limit 1").fetchone()
            return path
    first = bytearray(fresh_path.read_bytes()[:PAGE_BYTES])
    repaired = _beside(path, REPAIRED)
    shutil.copyfile(path, repaired)
    if _beside(path, "-wal").exists():
        shutil.copyfile(_beside(path, "-wal"), _beside(repaired, "-wal"))
    pages = max(1, path.stat().st_size // PAGE_BYTES)
    first[28:32] = pages.to_bytes(4, "big")
    # No list of free pages: what was free is only not used again.
    first[32:40] = bytes(8)
    # The number of pages counts only if these two agree.
    first[92:96] = first[24:28]
    with repaired.open("r+b") as file:
        file.write(first)
    return repaired


def _damaged_name(path: Path) -> Path:
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    names = (f".damaged-{stamp}{tail}" for tail in ("", *(f"-{n}" for n in range(1, 1000))))
    return next(
        damaged_file for name in names if not (damaged_file := _beside(path, name)).exists()
    )


def _beside(path: Path, end: str) -> Path:
    return path.with_name(path.name + end)


def _remove(path: Path) -> None:
    for end in ("", *_PARTS):
        _beside(path, end).unlink(missing_ok=True)


def _readable(damaged: Path, table: str, key: str) -> Iterator[dict[str, Any]]:
    """Read from the front until a page fails, from the back until one fails, then one by one."""
    low, high = 0, None
    for row in _scan(damaged, table, key, "asc"):
        low = row["_key"]
        yield row
    for row in _scan(damaged, table, key, "desc"):
        if row["_key"] <= low:
            return
        high = row["_key"]
        yield row
    if high is None:
        return
    for value in range(low + 1, min(high, low + _MAX_SINGLE_READS)):
        yield from _scan(damaged, table, key, "asc", at=value)


def _scan(
    damaged: Path, table: str, key: str, order: str, *, at: int | None = None
) -> Iterator[dict[str, Any]]:
    only = f"where {key} = {at:d}" if at is not None else ""
    # The names are our own. `not indexed` because an index may be the damaged part.
    statement = f"select {key} as _key, * from {table} not indexed {only} order by {key} {order}"  # noqa: S608
    try:
        with contextlib.closing(sqlite3.connect(damaged)) as old:
            cursor = old.execute(statement)
            names = [column[0] for column in cursor.description]
            while (row := cursor.fetchone()) is not None:
                yield dict(zip(names, row, strict=True))
    except (sqlite3.Error, UnicodeDecodeError):
        return


def _is_intact(row: dict[str, Any]) -> bool:
    raw = row.get("raw")
    return isinstance(raw, bytes) and rules.is_intact(raw, event_id=str(row.get("event_id")))


def _restore_meta(damaged: Path, fresh: sqlite3.Connection) -> int:
    """Continue seq and the running clock after the last values seen anywhere."""
    known: dict[str, Any] = {}
    with contextlib.suppress(sqlite3.Error), contextlib.closing(sqlite3.connect(damaged)) as old:
        for name in ("last_seq", "ran_s"):
            row = old.execute("select value from meta where name = ?", (name,)).fetchone()
            if row is not None and isinstance(row[0], (int, float)):
                known[name] = row[0]
    (max_seq,) = fresh.execute("select max(seq) from events").fetchone()
    (latest,) = fresh.execute("select max(kept_s) from events").fetchone()
    (dropped,) = fresh.execute("select coalesce(sum(count), 0) from ledger").fetchone()
    last_seq = max(int(known.get("last_seq", 0)), int(max_seq or 0))
    ran_s = max(float(known.get("ran_s", 0.0)), float(latest or 0.0))
    # The row of a picture may be lost: files without a row are not deleted from here on.
    fresh.execute("insert or replace into meta values ('keep_orphans', 1)")
    fresh.execute("insert or replace into meta values ('last_seq', ?)", (last_seq,))
    fresh.execute("insert or replace into meta values ('ran_s', ?)", (ran_s,))
    fresh.execute("update tally set count = ? where name = 'dropped'", (dropped,))
    return last_seq
