"""Salvage: out of a damaged buffer every row that can still be read goes into a fresh one.

The damaged file is set aside beside it, with its journal, and never deleted by us.
"""

import contextlib
import sqlite3
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from farmiq.device import minting

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
# Between two readable ends this many rows are asked for one by one.
_MOST_ASKED = 200_000


@dataclass(frozen=True, slots=True)
class Salvaged:
    reason: str
    aside: Path
    rows: int
    # Rows that could be read and were not what they had been.
    broken: int


def salvage(path: Path, connect: Connect, *, reason: str) -> Salvaged:
    """Set the file aside and make a fresh one of what it holds."""
    aside = _set_aside(path)
    rows = broken = 0
    with contextlib.closing(connect(path)) as fresh:
        fresh.execute("begin immediate")
        # The counts of a damaged file are as good as its pages: they are made again from the rows.
        for table, key in _BY_ROWID.items():
            for row in _readable(aside, table, key):
                if table == "events" and not _sound(row):
                    broken += 1
                    continue
                with contextlib.suppress(sqlite3.Error):
                    _insert(fresh, table, row)
                    rows += 1
        _restore_meta(aside, fresh)
        fresh.execute("commit")
    return Salvaged(reason[:300], aside, rows, broken)


def _set_aside(path: Path) -> Path:
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    aside = path.with_name(f"{path.name}.damaged-{stamp}")
    number = 0
    while aside.exists():
        number += 1
        aside = path.with_name(f"{path.name}.damaged-{stamp}-{number}")
    for end in ("-wal", "-shm", ""):
        part = path.with_name(path.name + end)
        if part.exists():
            part.rename(aside.with_name(aside.name + end))
    return aside


def _readable(aside: Path, table: str, key: str) -> Iterator[dict[str, Any]]:
    """From the front until a page fails, from the back until one fails, then one by one."""
    low, high = 0, None
    for row in _scan(aside, table, key, "asc"):
        low = row["_key"]
        yield row
    for row in _scan(aside, table, key, "desc"):
        if row["_key"] <= low:
            return
        high = row["_key"]
        yield row
    if high is None:
        return
    for asked in range(low + 1, min(high, low + _MOST_ASKED)):
        yield from _scan(aside, table, key, "asc", at=asked)


def _scan(
    aside: Path, table: str, key: str, order: str, *, at: int | None = None
) -> Iterator[dict[str, Any]]:
    only = f"where {key} = {at:d}" if at is not None else ""
    # The names are our own. `not indexed` because an index may be the damaged part.
    statement = f"select {key} as _key, * from {table} not indexed {only} order by {key} {order}"  # noqa: S608
    try:
        with contextlib.closing(sqlite3.connect(aside)) as old:
            cursor = old.execute(statement)
            names = [column[0] for column in cursor.description]
            while (row := cursor.fetchone()) is not None:
                yield dict(zip(names, row, strict=True))
    except (sqlite3.Error, UnicodeDecodeError):
        return


def _sound(row: dict[str, Any]) -> bool:
    raw, event_id = row.get("raw"), row.get("event_id")
    return isinstance(raw, bytes) and minting.intact(raw, event_id=str(event_id))


def _insert(fresh: sqlite3.Connection, table: str, row: dict[str, Any]) -> None:
    names = [name for name in row if name != "_key"]
    marks = ", ".join(f":{name}" for name in names)
    fresh.execute(f"insert into {table} ({', '.join(names)}) values ({marks})", row)  # noqa: S608


def _restore_meta(aside: Path, fresh: sqlite3.Connection) -> None:
    """Numbers go on behind the last that was seen anywhere; the running clock too."""
    known: dict[str, Any] = {}
    with contextlib.suppress(sqlite3.Error), contextlib.closing(sqlite3.connect(aside)) as old:
        for name in ("last_seq", "ran_s"):
            row = old.execute("select value from meta where name = ?", (name,)).fetchone()
            if row is not None and isinstance(row[0], (int, float)):
                known[name] = row[0]
    (most,) = fresh.execute("select max(seq) from events").fetchone()
    (latest,) = fresh.execute("select max(kept_s) from events").fetchone()
    (dropped,) = fresh.execute("select coalesce(sum(count), 0) from ledger").fetchone()
    last_seq = max(int(known.get("last_seq", 0)), int(most or 0))
    ran_s = max(float(known.get("ran_s", 0.0)), float(latest or 0.0))
    fresh.execute("insert or replace into meta values ('last_seq', ?)", (last_seq,))
    fresh.execute("insert or replace into meta values ('ran_s', ?)", (ran_s,))
    fresh.execute("update tally set count = ? where name = 'dropped'", (dropped,))
