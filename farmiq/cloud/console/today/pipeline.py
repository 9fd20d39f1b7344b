"""Pure: the way of the data, device to consumer, each part with a count and the oldest age.

Only what the cloud knows is shown: how many messages wait in the queues of the bus it does not.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal

from farmiq.cloud.console.telemetry.view import State
from farmiq.cloud.console.today.reasons import MAX_WAITING_S, Known
from farmiq.ui import words
from farmiq.ui.i18n import gettext as _
from farmiq.ui.i18n import ngettext

Tone = Literal["good", "warn", "bad", "muted"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """`count` None: not known. `oldest_at` is a time, `about` says of what."""

    key: str
    name: str
    count: int | None
    text: str
    tone: Tone
    oldest_at: datetime | None = None
    about: str = ""
    href: str = "/delivery"


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrived:
    """What the cloud took from the company's edges in 24 hours, and its dead letters."""

    events: int = 0
    dead_letters: int = 0
    oldest_dead_letter_at: datetime | None = None


NOTHING_ARRIVED = Arrived()


def segments(known: Known, arrived: Arrived) -> tuple[Segment, ...]:
    return (
        _devices(known),
        _edges(known),
        _outbox(known),
        _cloud(known, arrived),
        _consumers(arrived),
    )


def _devices(known: Known) -> Segment:
    devices = [
        rows
        for barn in known.readings.barns
        for device in barn.devices
        if (rows := [row for row in device.rows if row.state is not State.REVOKED])
    ]
    online = sum(any(row.state is State.CURRENT for row in rows) for rows in devices)
    oldest_at = min(
        (max(row.reading.captured_at for row in rows) for rows in devices), default=None
    )
    return Segment(
        key="devices",
        name=_("Devices"),
        count=online,
        text=_("%(online)s of %(total)s online") % {"online": online, "total": len(devices)},
        tone="muted" if not devices else "good" if online == len(devices) else "warn",
        oldest_at=oldest_at,
        about=_("oldest reading"),
        href="/devices",
    )


def _edges(known: Known) -> Segment:
    heard = [edge for edge in known.edges if edge.received_at is not None]
    reporting = [edge for edge in heard if not edge.is_quiet(known.now)]
    return Segment(
        key="edges",
        name=_("Edges"),
        count=len(reporting),
        text=_("%(reporting)s of %(total)s report")
        % {"reporting": len(reporting), "total": len(known.edges)},
        tone="muted" if not heard else "good" if len(reporting) == len(heard) else "bad",
        oldest_at=min((edge.received_at for edge in heard if edge.received_at), default=None),
        about=_("oldest report"),
    )


def _outbox(known: Known) -> Segment:
    reporting = [edge for edge in known.edges if edge.waiting is not None]
    if not reporting:
        return Segment(
            key="outbox", name=_("Outbox"), count=None, text=_("not known"), tone="muted"
        )
    waiting = sum(edge.waiting or 0 for edge in reporting)
    # As they said it then: what waits at an edge that is silent gets older.
    oldest_at = min(
        (
            edge.received_at - timedelta(seconds=min(edge.oldest_s or 0.0, 1e9))
            for edge in reporting
            if edge.waiting and edge.received_at
        ),
        default=None,
    )
    is_late = oldest_at is not None and known.now - oldest_at > timedelta(seconds=MAX_WAITING_S)
    is_stuck = is_late or any(edge.dead_letters for edge in reporting)
    is_quiet = any(edge.is_quiet(known.now) for edge in reporting)
    return Segment(
        key="outbox",
        name=_("Outbox"),
        count=waiting,
        text=ngettext("%(num)s event waits", "%(num)s events wait", waiting) % {"num": waiting},
        tone="bad" if is_stuck else "warn" if is_quiet else "good",
        oldest_at=oldest_at,
        about=_("oldest event"),
    )


def _cloud(known: Known, arrived: Arrived) -> Segment:
    times = [row.reading.arrived_at for row in known.readings.rows]
    heard = [edge for edge in known.edges if edge.received_at is not None]
    is_cut_off = bool(heard) and all(edge.is_quiet(known.now) for edge in heard)
    return Segment(
        key="cloud",
        name=_("Cloud"),
        count=arrived.events,
        text=ngettext("%(events)s event in a day", "%(events)s events in a day", arrived.events)
        % {"events": words.number(arrived.events, 0)},
        tone="muted" if not times else "warn" if is_cut_off else "good",
        oldest_at=max(times, default=None),
        about=_("last arrival"),
    )


def _consumers(arrived: Arrived) -> Segment:
    if arrived.dead_letters:
        return Segment(
            key="consumers",
            name=_("Consumers"),
            count=arrived.dead_letters,
            text=ngettext("%(num)s dead letter", "%(num)s dead letters", arrived.dead_letters)
            % {"num": words.number(arrived.dead_letters, 0)},
            tone="bad",
            oldest_at=arrived.oldest_dead_letter_at,
            about=_("oldest"),
            href="/delivery/dead-letters",
        )
    return Segment(
        key="consumers",
        name=_("Consumers"),
        count=None,
        text=_("queues not known here; no dead letters"),
        tone="muted",
    )
