"""Pure: the parameters of a question over HTTP, checked; everything that is wrong is gathered."""

import base64
import binascii
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, date, datetime
from typing import TypeVar
from uuid import UUID

from farmiq.messages.ids import ID_PATTERN

T = TypeVar("T")

LONGEST_CURSOR = 256


class Wrong(Exception):  # noqa: N818 - it is what the asker did, not an error of ours
    """What is wrong: a field and a reason each."""

    def __init__(self, wrong: Sequence[tuple[str, str]]) -> None:
        super().__init__("; ".join(f"{field}: {reason}" for field, reason in wrong))
        self.details = [{"field": field, "reason": reason} for field, reason in wrong]


class Asked:
    """The parameters as sent; an empty one counts as not given."""

    def __init__(
        self,
        parameters: Sequence[tuple[str, str]],
        *,
        known: Sequence[str],
        needed: Sequence[str] = (),
    ) -> None:
        self._given: Mapping[str, str] = {name: value for name, value in parameters if value}
        names = [name for name, _ in parameters]
        odd = sorted({name for name in names if name not in known})
        twice = sorted({name for name in names if names.count(name) > 1 and name in known})
        missing = [name for name in needed if name not in self._given]
        self.wrong: list[tuple[str, str]] = [
            *((name[:64], f"is not known; there are: {', '.join(known)}") for name in odd[:20]),
            *((name, "is given more than once") for name in twice),
            *((name, "is missing") for name in missing),
        ]

    def get(self, name: str, read: Callable[[str], T]) -> T | None:
        if name not in self._given:
            return None
        try:
            return read(self._given[name])
        except ValueError as error:
            self.wrong.append((name, str(error)))
            return None

    def between(self) -> tuple[datetime | None, datetime | None]:
        """The moments `from` and `to`."""
        begin, end = self.get("from", moment), self.get("to", moment)
        if begin and end and begin > end:
            self.wrong.append(("to", "is before from"))
        return begin, end

    def done(self) -> None:
        """Raises Wrong with everything that is wrong."""
        if self.wrong:
            raise Wrong(self.wrong)


def id_(text: str) -> str:
    if not re.match(ID_PATTERN, text):
        raise ValueError("is not an id: letters, digits and . _ : -, at most 128")
    return text


def moment(text: str) -> datetime:
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


def day(text: str) -> date:
    try:
        found = date.fromisoformat(text)
    except ValueError:
        raise ValueError("is not a day such as 2026-05-31") from None
    if not date(1900, 1, 1) <= found <= date(9000, 1, 1):
        raise ValueError("is not between the years 1900 and 9000")
    return found


def uuid(text: str) -> UUID:
    try:
        return UUID(text)
    except ValueError:
        raise ValueError("is not a UUID") from None


def one_of(known: Sequence[str]) -> Callable[[str], str]:
    """In any case: people type `incomplete`."""

    def read(text: str) -> str:
        for each in known:
            if text.lower() == each.lower():
                return each
        raise ValueError(f"is none of: {', '.join(known)}")

    return read


def format_(text: str) -> str:
    if text not in ("json", "csv"):
        raise ValueError("is neither json nor csv")
    return text


def limit(most: int) -> Callable[[str], int]:
    def read(text: str) -> int:
        if not re.fullmatch(r"[0-9]{1,6}", text, re.ASCII) or not 1 <= int(text) <= most:
            raise ValueError(f"is not a number from 1 to {most}")
        return int(text)

    return read


def cursor(at: datetime, key: UUID) -> str:
    """Where a page ends, for whoever asks for the next one."""
    text = f"{at.astimezone(UTC).isoformat()}|{key}"
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def place(text: str) -> tuple[datetime, UUID]:
    """What a cursor says."""
    if len(text) > LONGEST_CURSOR:
        raise ValueError(f"is longer than {LONGEST_CURSOR}")
    try:
        said = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)).decode()
        at, _, key = said.partition("|")
        return datetime.fromisoformat(at).astimezone(UTC), UUID(key)
    except (binascii.Error, ValueError, OverflowError):
        raise ValueError("is not a `next_cursor` that was given") from None
