"""Pure: which images somebody asks for, and where one page ends and the next begins."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from farmiq import asked

MOST_ROWS = 1000
ROWS = 100
STATES = ("presigned", "stored", "missing")

_KNOWN = (
    "tenant", "farm", "barn", "device", "station", "session", "status", "from", "to", "limit",
    "cursor",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Question:
    """Which images, newest capture first; None asks for all."""

    tenant: str | None = None
    farm: str | None = None
    barn: str | None = None
    device: str | None = None
    station: str | None = None
    session: UUID | None = None
    status: str | None = None
    begin: datetime | None = None
    end: datetime | None = None
    after_at: datetime | None = None
    after_id: UUID | None = None
    limit: int = ROWS


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
        session=given.get("session", asked.uuid),
        status=given.get("status", asked.one_of(STATES)),
        begin=begin,
        end=end,
        after_at=after_at,
        after_id=after_id,
        limit=given.get("limit", asked.limit(MOST_ROWS)) or ROWS,
    )
    given.done()
    return found
