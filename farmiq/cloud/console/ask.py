"""Pure: which weighings an address asks for, checked; everything that is wrong is gathered."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime
from uuid import UUID

from farmiq import asked
from farmiq.cloud.console.weighings import STATES, Asked

MOST_ROWS = 10_000
ROWS = 100
MOST_PAGES = 1000
API = (
    "day", "farm", "barn", "device", "state", "from", "to", "limit", "cursor", "format", "company",
)  # fmt: skip
PAGE = ("day", "station", "state", "page", "company")


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


def page(parameters: Sequence[tuple[str, str]]) -> Asked:
    """What the page shows. Raises asked.Wrong with everything that is wrong."""
    given = asked.Asked(parameters, known=PAGE)
    found = Asked(
        day=given.get("day", asked.day),
        station=given.get("station", asked.id_),
        state=given.get("state", asked.one_of(STATES)),
        page=given.get("page", asked.limit(MOST_PAGES)) or 1,
    )
    given.done()
    return found


def question(parameters: Sequence[tuple[str, str]]) -> Question:
    """What a program asks for. Raises asked.Wrong with everything that is wrong."""
    given = asked.Asked(parameters, known=API)
    begin, end = given.between()
    after_at, after_id = given.get("cursor", asked.place) or (None, None)
    found = Question(
        day=given.get("day", asked.day),
        farm=given.get("farm", asked.id_),
        barn=given.get("barn", asked.id_),
        device=given.get("device", asked.id_),
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


def image(text: str | None) -> int:
    """Which image of a weighing is shown; the first if the address says nothing sensible."""
    return int(text) if text and re.fullmatch(r"[0-9]{1,4}", text, re.ASCII) else 1
