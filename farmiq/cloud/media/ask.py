"""Pure: which images somebody asks for, checked; everything that is wrong is gathered."""

import base64
import binascii
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from typing import TypeVar
from uuid import UUID
from zoneinfo import ZoneInfo

from farmiq.messages.ids import ID_PATTERN

T = TypeVar("T")

MOST_ROWS = 500
ROWS = 100
LONGEST_CURSOR = 256
KNOWN = ("session", "device", "day", "limit", "cursor", "company")


class Wrong(Exception):  # noqa: N818 - it is what the asker did, not an error of ours
    """What is wrong: a field and a reason each."""

    def __init__(self, wrong: Sequence[tuple[str, str]]) -> None:
        super().__init__("; ".join(f"{field}: {reason}" for field, reason in wrong))
        self.details = [{"field": field, "reason": reason} for field, reason in wrong]


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
    """Raises Wrong with everything that is wrong."""
    given = {name: value for name, value in parameters if value}
    names = [name for name, _ in parameters]
    wrong = [
        (name[:64], f"is not known; there are: {', '.join(KNOWN)}")
        for name in sorted(set(names) - set(KNOWN))[:20]
    ]
    wrong += [(name, "is given more than once") for name in KNOWN if names.count(name) > 1]

    def get(name: str, read_: Callable[[str], T]) -> T | None:
        try:
            return read_(given[name]) if name in given else None
        except ValueError as error:
            wrong.append((name, str(error)))
            return None

    after_at, after_id = get("cursor", _place) or (None, None)
    found = Question(
        session=get("session", uuid),
        device=get("device", _id),
        day=get("day", _day),
        after_at=after_at,
        after_id=after_id,
        limit=get("limit", _limit) or ROWS,
        company=get("company", uuid),
    )
    if wrong:
        raise Wrong(wrong)
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


def cursor(at: datetime, key: UUID) -> str:
    text = f"{at.astimezone(UTC).isoformat()}|{key}"
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def uuid(text: str) -> UUID:
    try:
        return UUID(text)
    except ValueError:
        raise ValueError("is not a UUID") from None


def _id(text: str) -> str:
    if not re.match(ID_PATTERN, text):
        raise ValueError("is not an id: letters, digits and . _ : -, at most 128")
    return text


def _day(text: str) -> date:
    try:
        found = date.fromisoformat(text)
    except ValueError:
        raise ValueError("is not a day such as 2026-05-31") from None
    if not date(1970, 1, 1) <= found <= date(9000, 1, 1):
        raise ValueError("is not between the years 1970 and 9000")
    return found


def _limit(text: str) -> int:
    if not re.fullmatch(r"[0-9]{1,5}", text, re.ASCII) or not 1 <= int(text) <= MOST_ROWS:
        raise ValueError(f"is not a number from 1 to {MOST_ROWS}")
    return int(text)


def _place(text: str) -> tuple[datetime, UUID]:
    if len(text) > LONGEST_CURSOR:
        raise ValueError(f"is longer than {LONGEST_CURSOR}")
    try:
        said = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)).decode()
        at, _, key = said.partition("|")
        return datetime.fromisoformat(at).astimezone(UTC), UUID(key)
    except (binascii.Error, ValueError, OverflowError):
        raise ValueError("is not a `next_cursor` that we gave") from None
