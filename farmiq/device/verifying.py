"""Verify: everything in the buffer read and compared with what was written; changes nothing."""

import hashlib
import sqlite3
from pathlib import Path
from typing import Any

from farmiq.device import minting, store
from farmiq.device.pictures import Pictures
from farmiq.device.store import Tx

_PAGE = 500
_MOST_PROBLEMS = 50


def verify(tx: Tx, folder: Path) -> dict[str, Any]:
    """How many events and pictures there are, and what is wrong with which."""
    problems = [str(row[0]) for row in tx.execute("pragma integrity_check(10)") if row[0] != "ok"]
    events = _events(tx, problems)
    pictures = _pictures(tx, Pictures(folder / "pictures"), problems)
    counted = store.tally(tx)
    kept = sum(counted[state] for state in store.EVENT_STATES)
    if kept != events:
        problems.append(f"{events} events are there, {kept} are counted")
    return {"events": events, "pictures": pictures, "problems": problems[:_MOST_PROBLEMS]}


def _events(tx: Tx, problems: list[str]) -> int:
    count, after = 0, 0
    try:
        while rows := store.page(tx, after_seq=after, most=_PAGE):
            after, count = rows[-1]["seq"], count + len(rows)
            problems += [
                f"event {row['event_id']} (seq {row['seq']}) is not what was written"
                for row in rows
                if not minting.intact(row["raw"], event_id=row["event_id"])
            ]
    except sqlite3.DatabaseError as error:
        problems.append(f"events behind seq {after} cannot be read: {error}")
    return count


def _pictures(tx: Tx, files: Pictures, problems: list[str]) -> int:
    count = 0
    for image_id, sha256 in tx.execute("select image_id, sha256 from images order by id"):
        count += 1
        data = files.read(image_id)
        if data is None:
            problems.append(f"picture {image_id} has no file")
        elif hashlib.sha256(data).hexdigest() != sha256:
            problems.append(f"picture {image_id} is not what was written")
    return count
