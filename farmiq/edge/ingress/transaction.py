"""The door's one transaction: dedupe, each domain's record, outbox, quarantine for the rest (C-81).

All of it or nothing: what the gateway acknowledges, and what a redrive takes out of quarantine, has
had its whole effect.
"""

from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from uuid import UUID

import psycopg

from farmiq import crash
from farmiq.edge import alerts, outbox
from farmiq.edge.arrival import Arrival
from farmiq.edge.barn import store as barn
from farmiq.edge.devices import record as devices
from farmiq.edge.devices import store as devices_store
from farmiq.edge.feed import store as feed
from farmiq.edge.ingress import gaps, quarantine, store
from farmiq.edge.ingress.accept import accept
from farmiq.edge.ingress.source import CursorMovedError, Progress
from farmiq.edge.ingress.store import Refused
from farmiq.edge.media import record as media
from farmiq.edge.registry import Registry
from farmiq.edge.telemetry import handlers as telemetry
from farmiq.edge.weighvision import record as weighvision
from farmiq.messages import barn as barn_words
from farmiq.messages import device as device_words
from farmiq.messages import feed as feed_words
from farmiq.messages import telemetry as telemetry_words
from farmiq.messages import weighvision as weighvision_words
from farmiq.messages.bus import BusEvent
from farmiq.messages.check import InvalidError
from farmiq.plumbing import db, log


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one transaction did with the messages it was given."""

    stored: tuple[Arrival, ...] = ()
    new_count: int = 0
    refused: tuple[Refused, ...] = ()
    # Stored ones that only the outbox still knew, by their id alone.
    absorbed: tuple[Arrival, ...] = ()

    def __add__(self, other: "Outcome") -> "Outcome":
        return Outcome(
            self.stored + other.stored,
            self.new_count + other.new_count,
            self.refused + other.refused,
            self.absorbed + other.absorbed,
        )


async def keep_in_halves(
    pool: db.Pool,
    sent: list[tuple[str, bytes]],
    registry: Registry,
    progress: Progress | None = None,
) -> Outcome:
    """One transaction for all; if the data of one breaks it, each half gets its own (C-81).

    Also what nobody thought of: a message that ends the service comes again, and ends the next.
    `progress` is the cursor of what was sent, which each transaction moves.
    """
    try:
        return await keep(pool, sent, registry, progress)
    except CursorMovedError:
        raise
    except Exception as error:
        if db.is_outage(error):
            raise
        if len(sent) == 1:
            return await _set_aside(pool, *sent[0], error, progress)
    half, count = len(sent) // 2, len(sent)
    parts = (None, None) if progress is None else _halves(progress, half, count)
    first = await keep_in_halves(pool, sent[:half], registry, parts[0])
    return first + await keep_in_halves(pool, sent[half:], registry, parts[1])


def _halves(progress: Progress, half: int, count: int) -> tuple[Progress, Progress]:
    return progress.slice(0, half), progress.slice(half, count)


Record = Callable[[db.Connection, Sequence[Arrival]], Awaitable[list[BusEvent]]]
# Which domains record what, in this order (C-81). What nobody records yet waits in quarantine.
DOMAINS: dict[str, tuple[Record, ...]] = {
    telemetry_words.READING: (telemetry.record,),
    device_words.STATUS: (devices.statuses,),
    device_words.BUFFER_DROPPED: (devices.dropped,),
    device_words.COMMAND_ANSWERED: (devices.answers,),
    feed_words.DISPENSED: (feed.record,),
    feed_words.IMPORTED: (feed.record,),
    barn_words.RECORD_CREATED: (barn.record,),
    weighvision_words.SESSION_CREATED: (weighvision.record,),
    weighvision_words.WEIGHT_RECORDED: (weighvision.record,),
    weighvision_words.IMAGE_CAPTURED: (media.announced, weighvision.record),
    weighvision_words.SESSION_FINALIZED: (weighvision.record,),
    weighvision_words.SESSION_CANCELLED: (weighvision.record,),
}
# What a domain alone can see before anything is noted: for each message why not, or None.
Problems = Callable[[db.Connection, Sequence[Arrival]], Awaitable[list[str | None]]]
PROBLEMS: tuple[Problems, ...] = (weighvision.problems,)


async def keep(
    pool: db.Pool,
    messages: Sequence[tuple[str, bytes]],
    registry: Registry | None = None,
    progress: Progress | None = None,
) -> Outcome:
    """The one transaction: the effect of what is right → quarantine for the rest.

    Many begin in good faith that what the dedupe has not seen is new, which lets the outbox be
    copied. If that proves wrong, it starts again and looks first, as a few do at once. Without a
    copy of the registry the table itself is asked.
    """
    registry = registry or Registry()
    if len(messages) < outbox.WORTH_A_COPY:
        return await _keep_together(pool, messages, registry, progress, look_first=True)
    try:
        return await _keep_together(pool, messages, registry, progress, look_first=False)
    except psycopg.errors.UniqueViolation:
        return await _keep_together(pool, messages, registry, progress, look_first=True)


async def _keep_together(
    pool: db.Pool,
    messages: Sequence[tuple[str, bytes]],
    registry: Registry,
    progress: Progress | None,
    *,
    look_first: bool,
) -> Outcome:
    outcome = Outcome()
    async with db.transaction(pool) as tx:
        if messages:
            outcome = await effect(tx, messages, registry=registry, look_first=look_first)
            await quarantine.insert(tx, outcome.refused)
        if progress is not None:
            await progress.advance(tx)
        crash.here("ingress.before_commit")
    if progress is not None:
        progress.committed()
    return outcome


async def effect(
    tx: db.Connection,
    messages: Sequence[tuple[str, bytes]],
    received_at: Sequence[datetime] | None = None,
    *,
    registry: Registry | None = None,
    look_first: bool = True,
) -> Outcome:
    """What messages do, in the caller's transaction; what is refused is only said.

    `received_at` is when each was first received, if that was not now.
    """
    registry = registry or Registry()
    understood, refused = sort(messages, received_at)
    known, strangers = await _registered(tx, understood, registry)
    arrivals, foreign = await _in_order(tx, known)
    outcome = await take_effect(tx, arrivals, look_first=look_first)
    # What waited in quarantine says nothing of how its device is now.
    if received_at is None and (heard := registry.to_note(arrivals)):
        await devices_store.seen(tx, heard)
    return Outcome(refused=(*refused, *strangers, *foreign)) + outcome


async def take_effect(tx: db.Connection, arrivals: list[Arrival], *, look_first: bool) -> Outcome:
    """Dedupe → each domain's record → outbox.

    Unless it looks first, it raises UniqueViolation for an id that only the outbox remembers.
    """
    fresh, conflicts = await _tell_apart(tx, arrivals)
    new = fresh
    if look_first:
        new, clashes = await _known_to_the_outbox(tx, fresh)
        conflicts += clashes
    owed = await _record(tx, new)
    if owed:
        await (outbox.append if look_first else outbox.append_new)(tx, owed)
    await store.note_seqs(tx, gaps.seen(new))
    stored, absorbed = _stored(arrivals, fresh, new, conflicts)
    return Outcome(stored, len(new), tuple(conflicts), absorbed)


def _stored(
    arrivals: list[Arrival], fresh: list[Arrival], new: list[Arrival], conflicts: list[Refused]
) -> tuple[tuple[Arrival, ...], tuple[Arrival, ...]]:
    """(all that need not be sent again, those of them that only the outbox still knew)."""
    if not conflicts and len(fresh) == len(new):
        return tuple(arrivals), ()
    wrong = {(message.topic, message.raw) for message in conflicts}
    known = {one.key for one in new}
    right = [one for one in arrivals if (one.topic, one.raw) not in wrong]
    absorbed = [one for one in fresh if one.key not in known and (one.topic, one.raw) not in wrong]
    return tuple(right), tuple(absorbed)


async def _record(tx: db.Connection, new: Sequence[Arrival]) -> list[BusEvent]:
    """Each domain records what concerns it, at once; returns what the cloud is owed for it."""
    owed: list[BusEvent] = []
    for record, group in _by_domain(new).items():
        owed += await record(tx, group)
    return owed


async def _registered(
    tx: db.Connection, arrivals: Sequence[Arrival], registry: Registry
) -> tuple[list[Arrival], list[Refused]]:
    """(of devices that are where they are registered, the rest); C-02."""
    judged = [*zip(arrivals, await registry.problems(tx, arrivals), strict=True)]
    strangers = [Refused(one.topic, one.raw, [why]) for one, why in judged if why]
    concerns = Counter(_concern(one, why, registry) for one, why in judged if why)
    await alerts.raise_all(tx, concerns)
    return [one for one, why in judged if not why], strangers


def _concern(arrival: Arrival, why: str, registry: Registry) -> alerts.Alert:
    """Names that nobody registered are anybody's to invent: they share one alert."""
    place = arrival.place
    known = registry.knows(place)
    subject = f"{place.tenant_id}/{place.device_id}" if known else "unknown devices"
    told = why if known else "messages of devices that are not registered wait in quarantine"
    return alerts.Alert("device.not_registered", subject, "security", told)


async def _in_order(
    tx: db.Connection, arrivals: list[Arrival]
) -> tuple[list[Arrival], list[Refused]]:
    """(what no domain objects to, the rest); before the dedupe, so that a redrive finds it new."""
    refused: list[Refused] = []
    for problems in PROBLEMS:
        judged = [*zip(arrivals, await problems(tx, arrivals), strict=True)]
        refused += [Refused(one.topic, one.raw, [why]) for one, why in judged if why]
        arrivals = [one for one, why in judged if not why]
    return arrivals, refused


def _by_domain(arrivals: Sequence[Arrival]) -> dict[Record, list[Arrival]]:
    """A domain gets all its kinds together: it takes its locks once, in one order."""
    groups: dict[Record, list[Arrival]] = defaultdict(list)
    for one in arrivals:
        for record in DOMAINS[one.kind]:
            groups[record].append(one)
    return groups


def sort(
    messages: Sequence[tuple[str, bytes]], received_at: Sequence[datetime] | None = None
) -> tuple[list[Arrival], list[Refused]]:
    """(what is understood and has a domain, what is refused)."""
    moments = received_at or [datetime.now(UTC)] * len(messages)
    arrivals: list[Arrival] = []
    refused: list[Refused] = []
    for (topic, raw), at in zip(messages, moments, strict=True):
        try:
            arrival = accept(topic, raw, now=at)
        except InvalidError as invalid:
            refused.append(Refused(topic, raw, invalid.reasons))
            continue
        if arrival.kind in DOMAINS:
            arrivals.append(arrival)
        else:
            reason = f"{arrival.kind} is understood but not recorded at this edge yet"
            refused.append(Refused(topic, raw, [reason]))
    return arrivals, refused


async def _tell_apart(
    tx: db.Connection, arrivals: list[Arrival]
) -> tuple[list[Arrival], list[Refused]]:
    """(never seen, same id with another content); what is neither is a repeat (C-05)."""
    if not arrivals:
        return [], []
    first: dict[tuple[str, UUID], Arrival] = {}
    for one in arrivals:
        first.setdefault(one.key, one)
    new_keys = await store.first_seen(tx, list(first.values()))
    if len(new_keys) == len(arrivals):
        return arrivals, []
    fresh = [one for key, one in first.items() if key in new_keys]
    hashes = await store.known_hashes(tx, [one for one in arrivals if one.key not in new_keys])
    hashes |= {one.key: one.content_hash for one in fresh}
    conflicts = [
        Refused(one.topic, one.raw, ["EVENT_ID_CONFLICT: this event_id came with another content"])
        for one in arrivals
        # Not known any more: forgotten just now, so it has had its effect long ago.
        if hashes.get(one.key, one.content_hash) != one.content_hash
    ]
    return fresh, conflicts


async def _known_to_the_outbox(
    tx: db.Connection, fresh: list[Arrival]
) -> tuple[list[Arrival], list[Refused]]:
    """(new, clashes): the outbox remembers longer than the dedupe.

    An id that it holds for the same tenant is an old replay, which has had its effect; an id that
    is another tenant's, there or in this very batch, is a clash (C-18).
    """
    if not fresh:
        return [], []
    holders = await store.outbox_tenants(tx, fresh)
    new: list[Arrival] = []
    clashes: list[Refused] = []
    for one in fresh:
        event_id, tenant_id = one.event.event_id, one.event.tenant_id
        if event_id not in holders:
            holders[event_id] = tenant_id
            new.append(one)
        elif holders[event_id] != tenant_id:
            reason = "EVENT_ID_CONFLICT: this event_id belongs to another tenant"
            clashes.append(Refused(one.topic, one.raw, [reason]))
    return new, clashes


async def _set_aside(
    pool: db.Pool, topic: str, raw: bytes, error: Exception, progress: Progress | None
) -> Outcome:
    if isinstance(error, psycopg.Error):
        why = f"the database refused it: {db.first_line(error)}"
    else:
        why = f"cannot be kept: {type(error).__name__}: {db.first_line(error)}"
        log.get("edge-ingress-gateway").error("ingress.bug", error=why, exc_info=error)
    refused = Refused(topic, raw, [why])
    async with db.transaction(pool) as tx:
        await quarantine.insert(tx, [refused])
        if progress is not None:
            await progress.advance(tx)
    if progress is not None:
        progress.committed()
    return Outcome(refused=(refused,))
