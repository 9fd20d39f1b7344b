"""Pure: which weigh sessions somebody asks for, and where one page ends and the next begins."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime
from typing import Literal, get_args
from uuid import UUID

from farmiq import asked

State = Literal["created", "finalized", "cancelled", "INCOMPLETE"]
STATES: tuple[State, ...] = get_args(State)

MOST_ROWS = 1000
ROWS = 100

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
    begin, end = given.between()
    after_at, after_id = given.get("cursor", asked.place) or (None, None)
    found = Question(
        tenant=given.get("tenant", asked.id_),
        farm=given.get("farm", asked.id_),
        barn=given.get("barn", asked.id_),
        device=given.get("device", asked.id_),
        station=given.get("station", asked.id_),
        day=given.get("day", asked.day),
        state=given.get("state", asked.one_of(STATES)),
        begin=begin,
        end=end,
        after_at=after_at,
        after_id=after_id,
        limit=given.get("limit", asked.limit(MOST_ROWS)) or ROWS,
        csv=given.get("format", asked.format_) == "csv",
    )
    given.done()
    return found
