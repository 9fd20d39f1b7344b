"""Pure: who is told of a step of an episode, and when.

opened        contacts of level 1 whose severities and farms fit; if there is none, level 2
worsened      as opened, and who was told so far; not who knows of it at this severity already;
              during maintenance when that ends
escalated     contacts of level 2, if nobody has acknowledged
acknowledged  all who were told, but for the one who acknowledged
resolved      all who were told; who was not yet, because of quiet hours, hears nothing at all
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from typing import Literal
from uuid import UUID
from zoneinfo import ZoneInfo

StepName = Literal["opened", "worsened", "escalated", "acknowledged", "resolved"]

FIRST, SECOND = 1, 2
# A step that waited longer than this, of an episode that is over by now, tells nobody anything new.
STALE_AFTER = timedelta(minutes=15)
PASS_QUIET_HOURS = frozenset({"critical", "security"})
NOTIFYING = frozenset({"opened", "worsened", "escalated"})
_OVER = frozenset({"resolved", "withdrawn"})


@dataclass(frozen=True, slots=True)
class QuietHours:
    """From `begin` to `end` by the clocks of `zone`, over midnight if `end` is earlier.

    Severities in `passed_by` are sent at once.
    """

    begin: time
    end: time
    zone: ZoneInfo
    passed_by: frozenset[str] = PASS_QUIET_HOURS

    def until(self, now: datetime) -> datetime | None:
        """When the quiet hours end that it is in at `now`; None outside of them.

        A local time that a day has twice counts the first time; one that it lacks, an hour later.
        """
        today = now.astimezone(self.zone).date()
        for day in (today - timedelta(days=1), today):
            ends_on = day if self.begin < self.end else day + timedelta(days=1)
            begin, end = self._at(day, self.begin), self._at(ends_on, self.end)
            if begin <= now < end:
                return end
        return None

    def _at(self, day: date, clock: time) -> datetime:
        return datetime.combine(day, clock, tzinfo=self.zone).astimezone(UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class Contact:
    """A person, what they are told of, and their address on each channel."""

    contact_id: str
    label: str = ""
    level: int = FIRST
    severities: frozenset[str]
    farms: frozenset[str] | None = None
    quiet_hours: QuietHours | None = None
    addresses: Mapping[str, str]
    language: str = "en"

    def wants(self, severity: str, farm_id: str | None) -> bool:
        """What concerns no single farm, such as an edge, concerns everybody."""
        here = self.farms is None or farm_id is None or farm_id in self.farms
        return here and severity in self.severities

    def is_named(self, person: str | None) -> bool:
        """Whether this is who acknowledged: by a link, or signed in with one of their addresses."""
        return person is not None and person in {self.label, *self.addresses.values()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    step: StepName
    created_at: datetime
    severity: str
    farm_id: str | None
    # Of the episode, as it is now.
    state: str
    acknowledged_by: str | None = None
    # The end of maintenance, which delays messages as quiet hours do.
    held_until: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Earlier:
    """A message that was made of an earlier step of the episode."""

    message_id: UUID
    contact_id: str
    channel_id: str
    step: str
    severity: str
    state: Literal["pending", "sent", "failed", "dropped"]
    send_after: datetime


@dataclass(frozen=True, slots=True)
class Planned:
    contact_id: str
    channel_id: str
    address: str
    send_after: datetime
    language: str = "en"


@dataclass(frozen=True, slots=True)
class Plan:
    """Messages to make, and earlier ones that nobody needs any more."""

    messages: tuple[Planned, ...] = ()
    dropped: tuple[UUID, ...] = ()


def plan(
    step: Step,
    contacts: Sequence[Contact],
    earlier: Collection[Earlier],
    *,
    channels: Collection[str],
    now: datetime,
) -> Plan:
    """Who is told of this step; `channels` are those that may be used."""
    if step.step == "worsened":
        messages = _notified(step, contacts, earlier, channels=channels, now=now)
        instead = {(message.contact_id, message.channel_id) for message in messages}
        late = [item for item in earlier if item.step in NOTIFYING and _is_delayed(item, now)]
        dropped = [
            item.message_id for item in late if (item.contact_id, item.channel_id) in instead
        ]
        return Plan(messages, tuple(sorted(dropped)))
    if step.step in NOTIFYING:
        return Plan(_notified(step, contacts, earlier, channels=channels, now=now))
    # Not yet sent because of quiet hours; once it is over there is nothing to tell.
    waiting = {item.message_id for item in earlier if _is_delayed(item, now)}
    reached = {
        (item.contact_id, item.channel_id)
        for item in earlier
        if item.step in NOTIFYING and _reached(item) and item.message_id not in waiting
    }
    if step.step == "acknowledged":
        contacts = [item for item in contacts if not item.is_named(step.acknowledged_by)]
    messages = _to(contacts, step, channels=channels, now=now, only=reached)
    return Plan(messages, tuple(sorted(waiting)) if step.step == "resolved" else ())


def _notified(
    step: Step,
    contacts: Sequence[Contact],
    earlier: Collection[Earlier],
    *,
    channels: Collection[str],
    now: datetime,
) -> tuple[Planned, ...]:
    if step.state in _OVER and now - step.created_at > STALE_AFTER:
        return ()
    if step.step == "escalated" and step.state != "active":
        return ()
    reachable = [
        contact
        for contact in contacts
        if contact.wants(step.severity, step.farm_id)
        and any(channel_id in channels for channel_id in contact.addresses)
    ]
    first = [contact for contact in reachable if contact.level == FIRST]
    second = [contact for contact in reachable if contact.level == SECOND]
    if step.step == "opened":
        return _to(first or second, step, channels=channels, now=now)
    known = {item.contact_id for item in earlier if _reached(item)}
    if step.step == "worsened":
        again = [contact for contact in second if contact.contact_id in known] if first else second
        notified = {
            (item.contact_id, item.channel_id)
            for item in earlier
            if _reached(item) and item.step in NOTIFYING and item.severity == step.severity
        }
        messages = _to([*first, *again], step, channels=channels, now=now)
        return tuple(
            item for item in messages if (item.contact_id, item.channel_id) not in notified
        )
    others = [contact for contact in second if contact.contact_id not in known]
    return _to(others, step, channels=channels, now=now)


def _to(
    contacts: Sequence[Contact],
    step: Step,
    *,
    channels: Collection[str],
    now: datetime,
    only: Collection[tuple[str, str]] | None = None,
) -> tuple[Planned, ...]:
    return tuple(
        Planned(
            contact.contact_id,
            channel_id,
            address,
            _send_after(contact, step, now),
            contact.language,
        )
        for contact in contacts
        for channel_id, address in sorted(contact.addresses.items())
        if channel_id in channels and (only is None or (contact.contact_id, channel_id) in only)
    )


def _send_after(contact: Contact, step: Step, now: datetime) -> datetime:
    begin = max(now, step.held_until or now)
    quiet = contact.quiet_hours
    if quiet is None or step.severity in quiet.passed_by:
        return begin
    return quiet.until(begin) or begin


def _reached(item: Earlier) -> bool:
    return item.state in {"pending", "sent"}


def _is_delayed(item: Earlier, now: datetime) -> bool:
    return item.state == "pending" and item.send_after > now
