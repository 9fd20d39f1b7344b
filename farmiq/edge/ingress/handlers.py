"""What messages do, in one transaction: dedupe, each domain's handlers, outbox, quarantine (C-81).

All of it or nothing. `handle` is the list of steps; a redrive from quarantine runs it too.
"""

import contextlib
import functools
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime
from uuid import UUID

import psycopg

from farmiq import crash
from farmiq.edge import alerts, outbox
from farmiq.edge.arrival import Arrival, accept
from farmiq.edge.barn import store as barn
from farmiq.edge.devices import handlers as devices
from farmiq.edge.devices import store as devices_store
from farmiq.edge.feed import store as feed
from farmiq.edge.ingress import quarantine, rules, store
from farmiq.edge.ingress.source import Progress
from farmiq.edge.ingress.store import Outcome, Rejected
from farmiq.edge.media import handlers as media
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
from farmiq.messages.wording import worded
from farmiq.plumbing import db, log
from farmiq.plumbing.messaging import cursor


async def commit_bisecting(
    pool: db.Pool,
    messages: list[tuple[str, bytes]],
    registry: Registry,
    progress: Progress | None = None,
) -> Outcome:
    """Commit all in one transaction; if a message breaks it, commit each half alone (C-81).

    `progress` is the cursor behind the messages, which each transaction moves.
    """
    if not messages:
        return await commit(pool, messages, registry, progress)

    async def commit_part(part: slice) -> Outcome:
        return await commit(pool, messages[part], registry, progress and progress[part])

    async def isolate_poison(index: int, error: Exception) -> Outcome:
        poison = Rejected(*messages[index], [_reason(error)])
        mark = progress and progress[index : index + 1]
        return await _transact(pool, mark, lambda _: _rejected(poison))

    outcomes = await cursor.commit_bisecting(len(messages), commit_part, isolate_poison)
    return sum(outcomes, Outcome())


def _reason(error: Exception) -> str:
    if isinstance(error, psycopg.Error):
        return f"the database refused it: {db.first_line(error)}"
    reason = f"cannot be kept: {type(error).__name__}: {db.first_line(error)}"
    log.get("edge-ingress-gateway").error("ingress.bug", error=reason, exc_info=error)
    return reason


async def _rejected(message: Rejected) -> Outcome:
    return Outcome(rejected=(message,))


Handler = Callable[[db.Connection, Sequence[Arrival]], Awaitable[list[BusEvent]]]
# The handlers of each event type, in this order (C-81). A type without one goes to quarantine.
HANDLERS: dict[str, tuple[Handler, ...]] = {
    telemetry_words.READING: (telemetry.record,),
    device_words.STATUS: (devices.handle_statuses,),
    device_words.BUFFER_DROPPED: (devices.handle_dropped,),
    device_words.COMMAND_ANSWERED: (devices.handle_answers,),
    feed_words.DISPENSED: (feed.record,),
    feed_words.IMPORTED: (feed.record,),
    barn_words.RECORD_CREATED: (barn.record,),
    weighvision_words.SESSION_CREATED: (weighvision.record,),
    weighvision_words.WEIGHT_RECORDED: (weighvision.record,),
    weighvision_words.IMAGE_CAPTURED: (media.announced, weighvision.record),
    weighvision_words.SESSION_FINALIZED: (weighvision.record,),
    weighvision_words.SESSION_CANCELLED: (weighvision.record,),
}
# What only weigh sessions check before anything is stored.
CHECKED = {kind for kind, handlers in HANDLERS.items() if weighvision.record in handlers}


async def commit(
    pool: db.Pool,
    messages: Sequence[tuple[str, bytes]],
    registry: Registry | None = None,
    progress: Progress | None = None,
) -> Outcome:
    """Handle the valid messages and quarantine the others, in one transaction.

    A large batch assumes that an id that the dedupe does not have is not in the outbox either, so
    that rows can be copied into the outbox. If that is wrong, the transaction starts again and
    checks the outbox first, as a small batch does. Without `registry` the table is read.
    """
    registry = registry or Registry()

    async def steps(tx: db.Connection, *, check_outbox: bool = True) -> Outcome:
        if not messages:
            return Outcome()
        return await handle(tx, messages, registry=registry, check_outbox=check_outbox)

    if len(messages) >= outbox.WORTH_A_COPY:
        with contextlib.suppress(psycopg.errors.UniqueViolation):
            return await _transact(pool, progress, functools.partial(steps, check_outbox=False))
    return await _transact(pool, progress, steps)


async def _transact(
    pool: db.Pool,
    progress: Progress | None,
    steps: Callable[[db.Connection], Awaitable[Outcome]],
) -> Outcome:
    """The one transaction: the steps, quarantine and the cursor."""
    async with db.transaction(pool) as tx:
        outcome = await steps(tx)
        if outcome.rejected:
            await quarantine.insert(tx, outcome.rejected)
        if progress is not None:
            await progress.advance(tx)
        crash.here("ingress.before_commit")
    if progress is not None:
        progress.committed()
    return outcome


async def handle(
    tx: db.Connection,
    messages: Sequence[tuple[str, bytes]],
    received_at: Sequence[datetime] | None = None,
    *,
    registry: Registry | None = None,
    check_outbox: bool = True,
) -> Outcome:
    """Handle messages in the caller's transaction; rejected ones are only returned.

    `received_at`: when each was first received, if that was not now.
    """
    registry = registry or Registry()
    understood, rejected = parse(messages, received_at)
    known, unregistered = await _check_registered(tx, understood, registry)
    arrivals, conflicting = await _check_sessions(tx, known)
    outcome = await apply_events(tx, arrivals, check_outbox=check_outbox)
    # A message from quarantine says nothing about the state of its device now.
    if received_at is None and (heard := registry.to_note(arrivals)):
        await devices_store.seen(tx, heard)
    return Outcome(rejected=(*rejected, *unregistered, *conflicting)) + outcome


async def apply_events(
    tx: db.Connection, arrivals: list[Arrival], *, check_outbox: bool
) -> Outcome:
    """Dedupe → the handlers of each domain → outbox.

    Without `check_outbox` it raises UniqueViolation for an id that only the outbox has.
    """
    fresh, conflicts = await _deduplicate(tx, arrivals)
    new = fresh
    if check_outbox:
        new, clashes = await _deduplicate_by_outbox(tx, fresh)
        conflicts += clashes
    outgoing = await _run_handlers(tx, new)
    if outgoing:
        await (outbox.append if check_outbox else outbox.append_new)(tx, outgoing)
    await store.note_seqs(tx, rules.seen(new))
    stored, absorbed = _stored(arrivals, fresh, new, conflicts)
    return Outcome(stored, len(new), tuple(conflicts), absorbed)


def _stored(
    arrivals: list[Arrival], fresh: list[Arrival], new: list[Arrival], conflicts: list[Rejected]
) -> tuple[tuple[Arrival, ...], tuple[Arrival, ...]]:
    """(all that need not be sent again, those of them that only the outbox knew)."""
    if not conflicts and len(fresh) == len(new):
        return tuple(arrivals), ()
    rejected = {(message.topic, message.raw) for message in conflicts}
    known = {arrival.key for arrival in new}
    acceptable = [arrival for arrival in arrivals if (arrival.topic, arrival.raw) not in rejected]
    absorbed = [
        arrival
        for arrival in fresh
        if arrival.key not in known and (arrival.topic, arrival.raw) not in rejected
    ]
    return tuple(acceptable), tuple(absorbed)


async def _run_handlers(tx: db.Connection, new: Sequence[Arrival]) -> list[BusEvent]:
    """Run each handler once, with all its events; return what is to be sent to the cloud.

    A handler gets all its event types together, so it locks rows once and in one order.
    """
    groups: dict[Handler, list[Arrival]] = defaultdict(list)
    for arrival in new:
        for record in HANDLERS[arrival.kind]:
            groups[record].append(arrival)
    outgoing: list[BusEvent] = []
    for record, group in groups.items():
        outgoing += await record(tx, group)
    return outgoing


async def _check_registered(
    tx: db.Connection, arrivals: list[Arrival], registry: Registry
) -> tuple[list[Arrival], list[Rejected]]:
    """(from devices at the place where they are registered, rejected); C-02."""
    problems = await registry.problems(tx, arrivals)
    if not any(problems):
        return arrivals, []
    raised = Counter(
        _alert(arrival, reason, registry)
        for arrival, reason in zip(arrivals, problems, strict=True)
        if reason
    )
    await alerts.raise_all(tx, raised)
    return _separate(arrivals, problems)


async def _check_sessions(
    tx: db.Connection, arrivals: list[Arrival]
) -> tuple[list[Arrival], list[Rejected]]:
    """(accepted, rejected), before the dedupe: for a redrive the event must still be new."""
    if not any(arrival.kind in CHECKED for arrival in arrivals):
        return arrivals, []
    return _separate(arrivals, await weighvision.problems(tx, arrivals))


def _separate(
    arrivals: Sequence[Arrival], problems: Sequence[str | None]
) -> tuple[list[Arrival], list[Rejected]]:
    """(those without a problem, those with one)."""
    checked = [*zip(arrivals, problems, strict=True)]
    rejected = [
        Rejected(arrival.topic, arrival.raw, [reason]) for arrival, reason in checked if reason
    ]
    return [arrival for arrival, reason in checked if not reason], rejected


def _alert(arrival: Arrival, reason: str, registry: Registry) -> alerts.Alert:
    """Unknown devices share one alert: anybody can invent names."""
    place = arrival.place
    known = registry.knows(place)
    subject = f"{place.tenant_id}/{place.device_id}" if known else "unknown devices"
    message = (
        reason
        if known
        else worded("messages of devices that are not registered wait in quarantine")
    )
    return alerts.Alert("device.not_registered", subject, "security", message, whole_edge=not known)


def parse(
    messages: Sequence[tuple[str, bytes]], received_at: Sequence[datetime] | None = None
) -> tuple[list[Arrival], list[Rejected]]:
    """(valid messages that have a handler, rejected ones)."""
    moments = received_at or [datetime.now(UTC)] * len(messages)
    arrivals: list[Arrival] = []
    rejected: list[Rejected] = []
    for (topic, raw), at in zip(messages, moments, strict=True):
        try:
            arrival = accept(topic, raw, now=at)
        except InvalidError as invalid:
            rejected.append(Rejected(topic, raw, invalid.reasons))
            continue
        if arrival.kind in HANDLERS:
            arrivals.append(arrival)
        else:
            reason = f"{arrival.kind} is understood but not recorded at this edge yet"
            rejected.append(Rejected(topic, raw, [reason]))
    return arrivals, rejected


async def _deduplicate(
    tx: db.Connection, arrivals: list[Arrival]
) -> tuple[list[Arrival], list[Rejected]]:
    """(new, same id with another content); the others are duplicates (C-05)."""
    if not arrivals:
        return [], []
    first: dict[tuple[str, UUID], Arrival] = {}
    for arrival in arrivals:
        first.setdefault(arrival.key, arrival)
    new_keys = await store.first_seen(tx, list(first.values()))
    if len(new_keys) == len(arrivals):
        return arrivals, []
    fresh = [arrival for key, arrival in first.items() if key in new_keys]
    hashes = await store.known_hashes(
        tx, [arrival for arrival in arrivals if arrival.key not in new_keys]
    )
    hashes |= {arrival.key: arrival.content_hash for arrival in fresh}
    conflicts = [
        Rejected(
            arrival.topic,
            arrival.raw,
            ["EVENT_ID_CONFLICT: this event_id came with another content"],
        )
        for arrival in arrivals
        # No hash: purged just now, so the event was handled long ago.
        if hashes.get(arrival.key, arrival.content_hash) != arrival.content_hash
    ]
    return fresh, conflicts


async def _deduplicate_by_outbox(
    tx: db.Connection, fresh: list[Arrival]
) -> tuple[list[Arrival], list[Rejected]]:
    """(new, clashes): the outbox has ids longer than the dedupe.

    An id of the same tenant is an old duplicate, which was handled before. An id of another tenant,
    in the outbox or in this batch, is a clash (C-18).
    """
    if not fresh:
        return [], []
    holders = await store.outbox_tenants(tx, fresh)
    new: list[Arrival] = []
    clashes: list[Rejected] = []
    for arrival in fresh:
        event_id, tenant_id = arrival.event.event_id, arrival.event.tenant_id
        if event_id not in holders:
            holders[event_id] = tenant_id
            new.append(arrival)
        elif holders[event_id] != tenant_id:
            reason = "EVENT_ID_CONFLICT: this event_id belongs to another tenant"
            clashes.append(Rejected(arrival.topic, arrival.raw, [reason]))
    return new, clashes
