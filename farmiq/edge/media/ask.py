"""Pure: which images somebody asks for, and where one page ends and the next begins."""

import base64
import binascii
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from uuid import UUID

from farmiq.edge import asked

MOST_ROWS = 1000
ROWS = 100
LONGEST_CURSOR = 256
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
        session=given.get("session", uuid),
        status=given.get("status", _state),
        begin=begin,
        end=end,
        after_at=after_at,
        after_id=after_id,
        limit=given.get("limit", asked.limit(MOST_ROWS)) or ROWS,
    )
    given.done()
    return found


def cursor(at: datetime, key: UUID) -> str:
    text = f"{at.astimezone(UTC).isoformat()}|{key}"
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def uuid(text: str) -> UUID:
    try:
        return UUID(text)
    except ValueError:
        raise ValueError("is not a UUID") from None


def _state(text: str) -> str:
    if text not in STATES:
        raise ValueError(f"is none of {', '.join(STATES)}")
    return text


def _place(text: str) -> tuple[datetime, UUID]:
    if len(text) > LONGEST_CURSOR:
        raise ValueError(f"is longer than {LONGEST_CURSOR}")
    try:
        said = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)).decode()
        at, _, key = said.partition("|")
        return datetime.fromisoformat(at).astimezone(UTC), UUID(key)
    except (binascii.Error, ValueError, OverflowError):
        raise ValueError("is not a `next_cursor` that this edge gave") from None
