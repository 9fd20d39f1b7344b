"""Pure: will it fit? Rate times size times hours against the limits of the buffer (peers 3)."""

from dataclasses import dataclass

# Created, finalized, and the row of the session itself.
_EVENTS_PER_SESSION = 2
_BYTES_PER_EVENT = 1200
_DRAIN_PER_S = 20


@dataclass(frozen=True, slots=True)
class Plan:
    """What an outage of `hours` brings, and what there is room for."""

    hours: float
    events: int
    events_limit: int
    picture_bytes: int
    picture_limit: int
    database_bytes: int
    fits: bool
    hours_that_fit: float
    drain_s: float


def plan(
    *,
    sessions_per_hour: float,
    weights: int,
    pictures: int,
    picture_bytes: int,
    loose_per_hour: float,
    hours: float,
    events_limit: int,
    picture_limit: int,
) -> Plan:
    events_per_hour = (
        sessions_per_hour * (_EVENTS_PER_SESSION + weights + pictures) + loose_per_hour
    )
    bytes_per_hour = (sessions_per_hour * pictures + loose_per_hour) * picture_bytes
    that_fit = min(
        events_limit / events_per_hour if events_per_hour else float("inf"),
        picture_limit / bytes_per_hour if bytes_per_hour else float("inf"),
    )
    events = round(events_per_hour * hours)
    return Plan(
        hours=hours,
        events=events,
        events_limit=events_limit,
        picture_bytes=round(bytes_per_hour * hours),
        picture_limit=picture_limit,
        database_bytes=min(events, events_limit) * _BYTES_PER_EVENT,
        fits=hours <= that_fit,
        hours_that_fit=round(min(that_fit, 1e6), 1),
        drain_s=min(events, events_limit) / _DRAIN_PER_S,
    )
