"""Pure: how many animals of a batch are there, by what was written down; the same at both sites."""

from collections.abc import Sequence
from datetime import date
from typing import NamedTuple

from farmiq.messages.wording import worded

GONE = ("mortality", "cull")
TYPES = (*GONE, "head_count")


class Noted(NamedTuple):
    """A record of one of TYPES on a local date."""

    on: date
    record_type: str
    value: float


def left(placed_count: int, records: Sequence[Noted], on: date) -> int:
    """How many animals can still die or leave on this date, with the records in their order.

    Those of the last count before it, or those placed, less who has gone since; and less who has
    gone from this date on, until somebody counted the animals again.
    """
    counts = {noted.on: noted.value for noted in records if noted.record_type == "head_count"}
    since = max((day for day in counts if day < on), default=None)
    until = min((day for day in counts if day >= on), default=date.max)
    first = date.min if since is None else since
    start = placed_count if since is None else counts[since]
    gone = [noted for noted in records if noted.record_type in GONE]
    before = sum(noted.value for noted in gone if first < noted.on < on)
    after = sum(noted.value for noted in gone if on <= noted.on <= until)
    return int(max(0, max(0, start - before) - after))


def too_many(record_type: str, value: float, there: int) -> str | None:
    """What is wrong with so many dead or culled animals, if these are there."""
    if record_type not in GONE or value <= there:
        return None
    if there == 1:
        return worded("is more than there are: 1 animal is left of the batch on that day")
    return worded(
        "is more than there are: %(number)s animals are left of the batch on that day", number=there
    )
