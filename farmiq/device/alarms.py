"""Pure: what is wrong with the station, since when; for the page, the status and the log."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

BUFFER_FULL = "buffer_full"
DRAIN_STALLED = "drain_stalled"
BUFFER_SALVAGED = "buffer_salvaged"
TOKEN_REFUSED = "token_refused"  # noqa: S105 - a name
LOGIN_REFUSED = "login_refused"
DISK_FULL = "disk_full"
UPLOADS_FAILED = "uploads_failed"
EVENTS_REFUSED = "events_refused"

# With one of these the station does not do its work; the others are to be looked at.
GRAVE = {BUFFER_FULL, DRAIN_STALLED, DISK_FULL, TOKEN_REFUSED, LOGIN_REFUSED}


@dataclass(frozen=True, slots=True)
class Alarm:
    since: datetime
    text: str


@dataclass
class Alarms:
    _raised: dict[str, Alarm] = field(default_factory=dict)

    def say(self, name: str, text: str | None, *, now: datetime) -> bool:
        """Raise with a text, or clear with None; True if that changed anything."""
        known = self._raised.get(name)
        if text is None:
            return self._raised.pop(name, None) is not None
        self._raised[name] = Alarm(known.since if known else now, text)
        return known is None

    @property
    def raised(self) -> Mapping[str, Alarm]:
        return self._raised

    @property
    def grave(self) -> bool:
        return bool(GRAVE & self._raised.keys())
