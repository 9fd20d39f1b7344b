"""Pure: how a device is, from what it said and when it was heard, by the edge's own clock (C-44).

online, late after two heartbeats of silence, offline after five or when its last will says so.
The cloud is told online, offline and error; late is for the people at the farm (C-103).
"""

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Literal
from uuid import UUID

State = Literal["online", "late", "offline", "error"]
# What people see, and may ask for.
SHOWN = ("online", "late", "offline", "error", "never seen", "revoked")
Said = Literal["online", "offline", "error"]

LATE_AFTER = 2
OFFLINE_AFTER = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Life:
    """What is known of a device's life; all moments are the edge's."""

    state: State
    since: datetime
    last_seen_at: datetime
    told_state: Said | None = None
    said_state: Said | None = None
    said_at: datetime | None = None
    status_event_id: UUID | None = None


def heard(life: Life | None, *, said: Said, event_id: UUID, now: datetime) -> Life:
    """After a status. The same status once more, as a retained one comes, changes nothing.

    A last will is said by the broker: it is no sign of life.
    """
    if life is None:
        return Life(
            state=said, since=now, last_seen_at=now, told_state=said, said_state=said,
            said_at=now, status_event_id=event_id,
        )  # fmt: skip
    if life.status_event_id == event_id:
        return life
    return replace(
        life,
        state=said,
        since=life.since if life.state == said else now,
        last_seen_at=life.last_seen_at if said == "offline" else now,
        told_state=said,
        said_state=said,
        said_at=now,
        status_event_id=event_id,
    )


def passed(life: Life, *, heartbeat_s: float, now: datetime) -> Life:
    """After time went by."""
    state = _state(life, heartbeat_s=heartbeat_s, now=now)
    since = life.since if state == life.state else now
    return replace(life, state=state, since=since, told_state=told(state))


def told(state: State) -> Said:
    return "online" if state == "late" else state


def _state(life: Life, *, heartbeat_s: float, now: datetime) -> State:
    if life.said_state == "offline" and life.said_at and life.last_seen_at <= life.said_at:
        return "offline"
    silence = now - life.last_seen_at
    if silence > timedelta(seconds=OFFLINE_AFTER * heartbeat_s):
        return "offline"
    if silence > timedelta(seconds=LATE_AFTER * heartbeat_s):
        return "late"
    return "error" if life.said_state == "error" else "online"
