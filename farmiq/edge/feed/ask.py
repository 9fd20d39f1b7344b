"""Pure: which lots or intakes somebody asks for, and where one page ends and the next begins."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from farmiq import asked

MOST_ROWS = 1000
ROWS = 100

_KNOWN = (
    "tenant", "farm", "barn", "device", "lot", "from", "to", "limit", "cursor", "format",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Question:
    """Which rows, newest first; None asks for all. `after_…` is where the page before ended."""

    tenant: str | None
    farm: str | None
    barn: str | None
    device: str | None
    lot: str | None
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
        lot=given.get("lot", asked.id_),
        begin=begin,
        end=end,
        after_at=after_at,
        after_id=after_id,
        limit=given.get("limit", asked.limit(MOST_ROWS)) or ROWS,
        csv=given.get("format", asked.format_) == "csv",
    )
    given.done()
    return found
