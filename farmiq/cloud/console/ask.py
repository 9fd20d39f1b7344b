"""Pure: which weighings an address asks for, checked; everything that is wrong is gathered."""

import base64
import binascii
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import TypeVar
from uuid import UUID

from farmiq.cloud.console.weighings import STATES, Asked
from farmiq.messages.ids import ID_PATTERN

T = TypeVar("T")

MOST_ROWS = 10_000
ROWS = 100
LONGEST_CURSOR = 256
MOST_PAGES = 1000
API = (
    "day", "farm", "barn", "device", "state", "from", "to", "limit", "cursor", "format", "company",
)  # fmt: skip
PAGE = ("day", "station", "state", "page", "company")


class Wrong(Exception):  # noqa: N818 - it is what the asker did, not an error of ours
    """What is wrong: a field and a reason each."""

    def __init__(self, wrong: Sequence[tuple[str, str]]) -> None:
        super().__init__("; ".join(f"{field}: {reason}" for field, reason in wrong))
        self.details = [{"field": field, "reason": reason} for field, reason in wrong]


@dataclass(frozen=True, slots=True)
class Question:
    """Which sessions, newest first; None asks for all. `day` is one of the company's zone."""

    day: date | None
    farm: str | None
    barn: str | None
    device: str | None
    state: str | None
    begin: datetime | None
    end: datetime | None
    after_at: datetime | None
    after_id: UUID | None
    limit: int
    csv: bool


class _Given:
    """The parameters as sent; an empty one counts as not given."""

    def __init__(self, parameters: Sequence[tuple[str, str]], known: Sequence[str]) -> None:
        self._given = {name: value for name, value in parameters if value}
        names = [name for name, _ in parameters]
        self.wrong = [
            (name[:64], f"is not known; there are: {', '.join(known)}")
            for name in sorted(set(names) - set(known))[:20]
        ]
        self.wrong += [(name, "is given more than once") for name in known if names.count(name) > 1]

    def get(self, name: str, read: Callable[[str], T]) -> T | None:
        try:
            return read(self._given[name]) if name in self._given else None
        except ValueError as error:
            self.wrong.append((name, str(error)))
            return None

    def done(self) -> None:
        if self.wrong:
            raise Wrong(self.wrong)


def page(parameters: Sequence[tuple[str, str]]) -> Asked:
    """What the page shows. Raises Wrong with everything that is wrong."""
    given = _Given(parameters, PAGE)
    asked = Asked(
        day=given.get("day", _day),
        station=given.get("station", _id),
        state=given.get("state", _state),
        page=given.get("page", _number(MOST_PAGES)) or 1,
    )
    given.done()
    return asked


def question(parameters: Sequence[tuple[str, str]]) -> Question:
    """What a program asks for. Raises Wrong with everything that is wrong."""
    given = _Given(parameters, API)
    begin, end = given.get("from", _moment), given.get("to", _moment)
    if begin and end and begin > end:
        given.wrong.append(("to", "is before from"))
    after_at, after_id = given.get("cursor", _place) or (None, None)
    found = Question(
        day=given.get("day", _day),
        farm=given.get("farm", _id),
        barn=given.get("barn", _id),
        device=given.get("device", _id),
        state=given.get("state", _state),
        begin=begin,
        end=end,
        after_at=after_at,
        after_id=after_id,
        limit=given.get("limit", _number(MOST_ROWS)) or ROWS,
        csv=given.get("format", _format) == "csv",
    )
    given.done()
    return found


def cursor(at: datetime, key: UUID) -> str:
    text = f"{at.astimezone(UTC).isoformat()}|{key}"
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def image(text: str | None) -> int:
    """Which image of a weighing is shown; the first if the address says nothing sensible."""
    return int(text) if text and re.fullmatch(r"[0-9]{1,4}", text, re.ASCII) else 1


def _id(text: str) -> str:
    if not re.match(ID_PATTERN, text):
        raise ValueError("is not an id: letters, digits and . _ : -, at most 128")
    return text


def _state(text: str) -> str:
    """In any case: people type `incomplete`."""
    for known in STATES:
        if text.lower() == known.lower():
            return known
    raise ValueError(f"is none of: {', '.join(STATES)}")


def _day(text: str) -> date:
    try:
        day = date.fromisoformat(text)
    except ValueError:
        raise ValueError("is not a day such as 2026-05-31") from None
    if not date(1900, 1, 1) <= day <= date(9000, 1, 1):
        raise ValueError("is not between the years 1900 and 9000")
    return day


def _moment(text: str) -> datetime:
    try:
        # A plus sign in an address that nobody escaped arrives as a space.
        at = datetime.fromisoformat(text.strip().replace(" ", "+"))
    except ValueError:
        raise ValueError("is not a time such as 2026-05-31T06:00:00Z") from None
    if at.tzinfo is None:
        raise ValueError("has no zone: end it with Z, or with an offset such as %2B02:00")
    try:
        return at.astimezone(UTC)
    except OverflowError:
        raise ValueError("is not between the years 1 and 9999") from None


def _format(text: str) -> str:
    if text not in ("json", "csv"):
        raise ValueError("is neither json nor csv")
    return text


def _number(most: int) -> Callable[[str], int]:
    def read(text: str) -> int:
        if not re.fullmatch(r"[0-9]{1,6}", text, re.ASCII) or not 1 <= int(text) <= most:
            raise ValueError(f"is not a number from 1 to {most}")
        return int(text)

    return read


def _place(text: str) -> tuple[datetime, UUID]:
    if len(text) > LONGEST_CURSOR:
        raise ValueError(f"is longer than {LONGEST_CURSOR}")
    try:
        said = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)).decode()
        at, _, key = said.partition("|")
        return datetime.fromisoformat(at).astimezone(UTC), UUID(key)
    except (binascii.Error, ValueError, OverflowError):
        raise ValueError("is not a `next_cursor` that this cloud gave") from None
