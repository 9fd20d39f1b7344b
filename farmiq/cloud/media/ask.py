"""Pure: which images somebody asks for, checked; everything that is wrong is gathered."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from uuid import UUID
from zoneinfo import ZoneInfo

from farmiq import asked

MOST_ROWS = 500
ROWS = 100
KNOWN = ("session", "device", "day", "limit", "cursor", "company")


@dataclass(frozen=True, slots=True)
class Question:
    session: UUID | None
    device: str | None
    day: date | None
    after_at: datetime | None
    after_id: UUID | None
    limit: int
    company: UUID | None


def read(parameters: Sequence[tuple[str, str]]) -> Question:
    """Raises asked.Wrong with everything that is wrong."""
    given = asked.Asked(parameters, known=KNOWN)
    after_at, after_id = given.get("cursor", asked.place) or (None, None)
    found = Question(
        session=given.get("session", asked.uuid),
        device=given.get("device", asked.id_),
        day=given.get("day", asked.day),
        after_at=after_at,
        after_id=after_id,
        limit=given.get("limit", asked.limit(MOST_ROWS)) or ROWS,
        company=given.get("company", asked.uuid),
    )
    given.done()
    return found


def bounds(day: date | None, timezone: str) -> tuple[datetime | None, datetime | None]:
    """When a day begins and ends where the company is."""
    if day is None:
        return None, None
    zone = ZoneInfo(timezone)
    begin = datetime.combine(day, time(), tzinfo=zone)
    return begin.astimezone(UTC), datetime.combine(
        day + timedelta(days=1), time(), tzinfo=zone
    ).astimezone(UTC)
