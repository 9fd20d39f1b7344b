"""Pure: which weigh sessions somebody asks for, and where one page ends and the next begins."""

import base64
import binascii
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import Literal, get_args
from uuid import UUID

from farmiq.edge import asked

State = Literal["created", "finalized", "cancelled", "INCOMPLETE"]
STATES: tuple[State, ...] = get_args(State)

MOST_ROWS = 1000
ROWS = 100
LONGEST_CURSOR = 256

_KNOWN = (
    "tenant", "farm", "barn", "device", "station", "day", "state", "from", "to", "limit", "cursor",
    "format",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Question:
    """Which sessions, newest first; None asks for all. `day` is a day of the farm."""

    tenant: str | None
    farm: str | None
    barn: str | None
    device: str | None
    station: str | None
    day: date | None
    state: str | None
    begin: datetime | None
    end: datetime | None
    after_at: datetime | None
    after_id: UUID | None
    limit: int
    csv: bool


def read(parameters: Sequence[tuple[str, str]]) -> Question:
    """Raises asked.Wrong with everything that is wrong."""
    given = asked.Asked(parameters, known=_KNOWN)
    begin, end = given.get("from", asked.moment), given.get("to", asked.moment)
    if begin and end and begin > end:
        given.wrong.append(("to", "is before from"))
    after_at, after_id = given.get("cursor", _place) or (None, None)
    found = Question(
        tenant=given.get("tenant", asked.id_),
        farm=given.get("farm", asked.id_),
        barn=given.get("barn", asked.id_),
        device=given.get("device", asked.id_),
        station=given.get("station", asked.id_),
        day=given.get("day", _day),
        state=given.get("state", state),
        begin=begin,
        end=end,
        after_at=after_at,
        after_id=after_id,
        limit=given.get("limit", asked.limit(MOST_ROWS)) or ROWS,
        csv=given.get("format", asked.format_) == "csv",
    )
    given.done()
    return found


def state(text: str) -> str:
    """In any case: people type `incomplete`."""
    for known in STATES:
        if text.lower() == known.lower():
            return known
    raise ValueError(f"is none of: {', '.join(STATES)}")


def cursor(at: datetime, key: UUID) -> str:
    text = f"{at.astimezone(UTC).isoformat()}|{key}"
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def _day(text: str) -> date:
    try:
        day = date.fromisoformat(text)
    except ValueError:
        raise ValueError("is not a day such as 2026-05-31") from None
    if not date(1900, 1, 1) <= day <= date(9000, 1, 1):
        raise ValueError("is not between the years 1900 and 9000")
    return day


def _place(text: str) -> tuple[datetime, UUID]:
    if len(text) > LONGEST_CURSOR:
        raise ValueError(f"is longer than {LONGEST_CURSOR}")
    try:
        said = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)).decode()
        at, _, key = said.partition("|")
        return datetime.fromisoformat(at).astimezone(UTC), UUID(key)
    except (binascii.Error, ValueError, OverflowError):
        raise ValueError("is not a `next_cursor` that this edge gave") from None
