"""How a moment is written for programs: RFC 3339 in UTC, with Z."""

from datetime import UTC, datetime


def rfc3339(at: datetime) -> str:
    return at.astimezone(UTC).isoformat().replace("+00:00", "Z")
