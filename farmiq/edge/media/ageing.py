"""Pure: how old an image is, and whether its time is over (C-23, RT-08, RT-09)."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from farmiq.plumbing import retry

# A station may have been cut off for weeks; what claims to be older has a wrong clock (C-44).
LONGEST_AWAY = timedelta(days=30)
MOST_AHEAD = timedelta(days=1)
# The store's own rule is the net for what we never came to delete; we come first.
NET_DAYS = 30


@dataclass(frozen=True, slots=True)
class Kept:
    """What decides whether an image may go. `session_open`: its session was never finalized."""

    captured_at: datetime
    created_at: datetime
    stored: bool
    synced: bool
    session_open: bool


def born_at(captured_at: datetime, created_at: datetime) -> datetime:
    """When it was taken, if the device's clock can be believed; else when we heard of it."""
    plausible = created_at - LONGEST_AWAY <= captured_at <= created_at + MOST_AHEAD
    return captured_at if plausible else created_at


def is_over(kept: Kept, *, now: datetime, days: float, open_sessions: bool) -> bool:
    """Never what the cloud has not got; of open sessions only if `open_sessions` says so."""
    if now - born_at(kept.captured_at, kept.created_at) <= timedelta(days=days):
        return False
    if kept.stored and not kept.synced:
        return False
    return open_sessions or not kept.session_open


def look_again_s(count: int) -> float:
    """How long until an image that was announced is looked for again: soon, then hourly."""
    return retry.fixed_delay_s(count, base_s=1.0, cap_s=3600.0)
