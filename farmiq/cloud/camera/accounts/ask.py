"""Pure: which programs, sites, cameras, days, wakes, images or figures somebody asks for."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Any
from uuid import UUID

from farmiq import asked
from farmiq.cloud.camera import mac
from farmiq.cloud.camera.gateway import wire

MOST_ROWS = 500
ROWS = 100
MOST_DAYS = 366
DAYS = 30
LEVELS = ("payload", "device", "session", "site", "program", "company")
QUALITIES = ("ok", "blurred", "dark", "bright", "unreadable", "missing")
# A camera has its share of a day; what is above a day is not a camera's.
OF_A_CAMERA = ("payload", "device")

Reader = Callable[[str], Any]


def yes_no(text: str) -> bool:
    return asked.one_of(("true", "false"))(text) == "true"


PROGRAMS: Mapping[str, Reader] = {
    "type": asked.one_of(("control", "experimental")),
    "active": yes_no,
}
SITES: Mapping[str, Reader] = {"program": asked.uuid, "active": yes_no}
CAMERAS: Mapping[str, Reader] = {"site": asked.uuid, "active": yes_no, "mac": mac.normal}
SESSIONS: Mapping[str, Reader] = {
    "site": asked.uuid,
    "program": asked.uuid,
    "status": asked.one_of(("pending", "in_progress", "locked")),
    "from": asked.day,
    "to": asked.day,
}
WAKES: Mapping[str, Reader] = {
    "session": asked.uuid,
    "device": asked.uuid,
    "site": asked.uuid,
    "status": asked.one_of(("pending", "complete", "failed")),
    "overage": yes_no,
    "from": asked.day,
    "to": asked.day,
}
IMAGES: Mapping[str, Reader] = {
    "device": asked.uuid,
    "status": asked.one_of(("receiving", "complete", "failed")),
    "quality": asked.one_of(QUALITIES),
    "from": asked.day,
    "to": asked.day,
}
CHANGES: Mapping[str, Reader] = {
    "state": asked.one_of(("waiting", "applied", "superseded", "cancelled")),
}
ALERTS: Mapping[str, Reader] = {
    "site": asked.uuid,
    "device": asked.uuid,
    "open": yes_no,
    "from": asked.day,
    "to": asked.day,
}
COMMANDS: Mapping[str, Reader] = {
    "device": asked.uuid,
    "name": asked.one_of(wire.COMMAND_NAMES),
    "state": asked.one_of(wire.COMMAND_STATES),
}
QUARANTINE: Mapping[str, Reader] = {
    "device": asked.uuid,
    "kind": asked.one_of(wire.REJECTION_KINDS),
}
OVERAGE: Mapping[str, Reader] = {
    "program": asked.uuid,
    "site": asked.uuid,
    "device": asked.uuid,
    "from": asked.day,
    "to": asked.day,
}
ROLLUP: Mapping[str, Reader] = {name: OVERAGE[name] for name in ("program", "site", "from", "to")}


def of_level(level: str) -> Mapping[str, Reader]:
    return OVERAGE if level in OF_A_CAMERA else ROLLUP


@dataclass(frozen=True, slots=True)
class Question:
    """`filters` are those that were given, by name."""

    filters: Mapping[str, Any]
    after_at: datetime | None
    after_id: UUID | None
    limit: int
    company: UUID | None


def read(parameters: Sequence[tuple[str, str]], filters: Mapping[str, Reader]) -> Question:
    """Raises asked.Wrong with everything that is wrong."""
    given = asked.Asked(parameters, known=(*filters, "limit", "cursor", "company"))
    after_at, after_id = given.get("cursor", asked.place) or (None, None)
    values = {name: given.get(name, reader) for name, reader in filters.items()}
    found = Question(
        filters={name: value for name, value in values.items() if value is not None},
        after_at=after_at,
        after_id=after_id,
        limit=given.get("limit", asked.limit(MOST_ROWS)) or ROWS,
        company=given.get("company", asked.uuid),
    )
    given.wrong += _span_problem(found.filters.get("from"), found.filters.get("to"))
    given.done()
    return found


def read_days(parameters: Sequence[tuple[str, str]]) -> tuple[int, UUID | None]:
    """How many days back, and the company. Raises asked.Wrong."""
    given = asked.Asked(parameters, known=("days", "company"))
    found = given.get("days", asked.limit(MOST_DAYS)) or DAYS, given.get("company", asked.uuid)
    given.done()
    return found


def read_company(parameters: Sequence[tuple[str, str]]) -> UUID | None:
    given = asked.Asked(parameters, known=("company",))
    found = given.get("company", asked.uuid)
    given.done()
    return found


def span(question: Question) -> dict[str, date | None]:
    """First and last day of figures; a first that is None is `DAYS` before today.

    Without a last one it is as many days as may be asked for.
    """
    begin, end = question.filters.get("from"), question.filters.get("to")
    if begin is not None and end is None:
        end = begin + timedelta(days=MOST_DAYS - 1)
    if end is not None and begin is None:
        begin = end - timedelta(days=DAYS)
    return {"from": begin, "to": end}


def _span_problem(begin: date | None, end: date | None) -> list[tuple[str, str]]:
    if begin is None or end is None:
        return []
    if end < begin:
        return [("to", "is before from")]
    return []


def too_long(question: Question) -> bool:
    begin, end = question.filters.get("from"), question.filters.get("to")
    return bool(begin and end and (end - begin).days >= MOST_DAYS)


def cursor(at: date | datetime, key: UUID) -> str:
    """Where a page ends; a day is its midnight."""
    moment = at if isinstance(at, datetime) else datetime(at.year, at.month, at.day, tzinfo=UTC)
    return asked.cursor(moment, key)
