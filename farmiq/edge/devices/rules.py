"""Pure: the state of a device (C-44) and of a command.

A device is online, late after two heartbeats of silence, offline after five or by its last will;
all times are by the edge's clock. The cloud gets online, offline and error; late is for the people
at the farm (C-103).

A command is queued → sent (the broker has it) → delivered → applied | failed (answers of the
device); expired if its time is over first. A late answer counts too: it is what happened.
"""

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Literal
from uuid import UUID

State = Literal["online", "late", "offline", "error"]
ReportedState = Literal["online", "offline", "error"]
# What people see, and may filter by.
SHOWN_STATES = ("online", "late", "offline", "error", "never seen", "revoked")

LATE_AFTER = 2
OFFLINE_AFTER = 5

CommandState = Literal["queued", "sent", "delivered", "applied", "failed", "expired"]
CommandOutcome = Literal["delivered", "applied", "failed"]

COMMAND_STATES: tuple[CommandState, ...] = (
    "queued", "sent", "delivered", "applied", "failed", "expired",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Liveness:
    """A row of device_state: `said_state` is of the last status, `told_state` of the cloud."""

    state: State
    since: datetime
    last_seen_at: datetime
    told_state: ReportedState | None = None
    said_state: ReportedState | None = None
    said_at: datetime | None = None
    status_event_id: UUID | None = None


def after_status(
    before: Liveness | None, *, reported: ReportedState, event_id: UUID, now: datetime
) -> Liveness:
    """After a status. The same status again, as a retained one comes, changes nothing.

    The broker sends a last will: it is no sign of life.
    """
    if before is None:
        return Liveness(
            state=reported, since=now, last_seen_at=now, told_state=reported,
            said_state=reported, said_at=now, status_event_id=event_id,
        )  # fmt: skip
    if before.status_event_id == event_id:
        return before
    return replace(
        before,
        state=reported,
        since=before.since if before.state == reported else now,
        last_seen_at=before.last_seen_at if reported == "offline" else now,
        told_state=reported,
        said_state=reported,
        said_at=now,
        status_event_id=event_id,
    )


def after_silence(before: Liveness, *, heartbeat_s: float, now: datetime) -> Liveness:
    """After some time without a status."""
    state = _state(before, heartbeat_s=heartbeat_s, now=now)
    since = before.since if state == before.state else now
    return replace(before, state=state, since=since, told_state=cloud_state(state))


def cloud_state(state: State) -> ReportedState:
    return "online" if state == "late" else state


def _state(before: Liveness, *, heartbeat_s: float, now: datetime) -> State:
    if before.said_state == "offline" and before.said_at and before.last_seen_at <= before.said_at:
        return "offline"
    silence = now - before.last_seen_at
    if silence > timedelta(seconds=OFFLINE_AFTER * heartbeat_s):
        return "offline"
    if silence > timedelta(seconds=LATE_AFTER * heartbeat_s):
        return "late"
    return "error" if before.said_state == "error" else "online"


def after_answer(state: CommandState, outcome: CommandOutcome) -> CommandState:
    """The state of a command after an answer; the first final answer stays."""
    if state in ("applied", "failed") or (state == "expired" and outcome == "delivered"):
        return state
    return outcome
