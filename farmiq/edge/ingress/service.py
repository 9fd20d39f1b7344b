"""Ingress: MQTT in, one transaction, everything owed written down.

device --iot/…--> [ingress] --ingress_dedupe, telemetry_raw, feed_intakes, …, sync_outbox--> sync

The order is the promise: commit, then PUBACK, then the receipt. A crash between any two of them
makes the broker or the device send again, and the dedupe absorbs it. What has arrived is shared
among a few writers by device; acknowledgements still leave in the order in which messages came.
"""

import asyncio
from collections import Counter, defaultdict, deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from uuid import UUID

import prometheus_client
import psycopg

from farmiq import crash
from farmiq.config import EdgeSettings
from farmiq.edge import alerts, lease, outbox
from farmiq.edge.arrival import Arrival
from farmiq.edge.barn import store as barn
from farmiq.edge.devices import record as devices
from farmiq.edge.devices import store as devices_store
from farmiq.edge.feed import store as feed
from farmiq.edge.ingress import api, gaps, lanes, quarantine, refusals, store, upkeep
from farmiq.edge.ingress.accept import accept, sender_and_id
from farmiq.edge.ingress.receipts import Receipts
from farmiq.edge.ingress.store import Refused
from farmiq.edge.registry import Registry
from farmiq.edge.telemetry import recording as telemetry
from farmiq.messages import barn as barn_words
from farmiq.messages import device as device_words
from farmiq.messages import feed as feed_words
from farmiq.messages import telemetry as telemetry_words
from farmiq.messages import topics
from farmiq.messages.bus import BusEvent
from farmiq.messages.check import Invalid
from farmiq.messages.topics import Place
from farmiq.plumbing import chores, db, http, log, mqtt
from farmiq.plumbing.backoff import Backoff

NAME = "edge-ingress-gateway"

TAKEN = prometheus_client.Counter(
    "farmiq_ingress_messages_total", "Messages taken from the broker", ["outcome"]
)
REFUSED = prometheus_client.Counter(
    "farmiq_ingress_refused_total", "Messages put into quarantine, by kind", ["kind"]
)
REDELIVERED = prometheus_client.Counter(
    "farmiq_ingress_redelivered_total", "Messages the broker delivered not for the first time"
)
RETRIED = prometheus_client.Counter(
    "farmiq_ingress_retried_total", "Messages whose transaction had to be tried again"
)
WAITING = prometheus_client.Gauge(
    "farmiq_ingress_waiting", "Messages received and waiting for a transaction"
)
WAITING_BYTES = prometheus_client.Gauge(
    "farmiq_ingress_waiting_bytes", "Payload bytes received and waiting for a transaction"
)
IN_FLIGHT = prometheus_client.Gauge(
    "farmiq_ingress_in_flight", "Messages taken by a writer and not acknowledged yet"
)
PAUSED = prometheus_client.Gauge(
    "farmiq_ingress_paused", "1 while so much waits that nothing is read from the broker"
)


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


async def run(settings: EdgeSettings, door: http.Door) -> None:
    async with (
        db.pool(settings.db_url.get_secret_value(), name=NAME, check_after_s=1.0) as pool,
        # Chores and questions never wait for intake, nor intake for them.
        db.pool(settings.db_url.get_secret_value(), name=f"{NAME}-desk") as desk,
        asyncio.TaskGroup() as group,
    ):
        turn = lease.Turn(
            pool,
            name=settings.mqtt_client_id,
            holder=lease.holder(settings.http_port),
            lasts_s=settings.ingress_lease_s,
        )
        door.ready("ingress.database", lambda: db.problem(pool))
        door.ready("ingress.turn", turn.problem)
        door.note("ingress", turn.note)
        api.Desk(desk, effect).add_to(door.app)
        for chore in upkeep.chores_of(desk, settings):
            group.create_task(chores.keep_doing(chore))
        await turn.take_turns(lambda: _listen(settings, door, pool, turn))


async def _listen(settings: EdgeSettings, door: http.Door, pool: db.Pool, turn: lease.Turn) -> None:
    """While it is this gateway's turn: everything that devices send."""
    async with (
        mqtt.connected(
            settings.mqtt_url.get_secret_value(),
            client_id=settings.mqtt_client_id,
            topics=topics.UP,
            tls=settings.tls,
            permit=turn.confirm,
        ) as broker,
        asyncio.TaskGroup() as group,
    ):
        intake = Intake(pool, broker, Registry(), writers=settings.ingress_writers)
        with door.readying(
            {"ingress.broker": broker.problem, "ingress.intake": lambda: intake.problem}
        ):
            _show(broker, intake)
            group.create_task(intake.receipts.keep_sending())
            for lane in intake.lanes:
                group.create_task(intake.write(lane))
            while True:
                messages = await broker.batch(
                    most=settings.ingress_batch * settings.ingress_writers,
                    linger_s=settings.ingress_linger_ms / 1000,
                )
                await turn.confirm()
                await intake.take(messages)


def _show(broker: mqtt.Client, intake: "Intake") -> None:
    """Backpressure as numbers: they are looked at only when somebody asks."""
    WAITING.set_function(lambda: broker.waiting)
    WAITING_BYTES.set_function(lambda: broker.waiting_bytes)
    IN_FLIGHT.set_function(lambda: intake.in_flight)
    PAUSED.set_function(lambda: broker.paused)


@dataclass(slots=True)
class Handful:
    """Messages taken from the broker together, until every writer's part of them is committed."""

    messages: list[mqtt.Message]
    parts_left: int
    outcome: Outcome = field(default_factory=Outcome)


Lane = asyncio.Queue[tuple[Handful, list[mqtt.Message]]]


class Intake:
    """Takes messages: commit, PUBACK, receipt. `problem` says why nothing is being committed.

    What it holds is bounded: a writer has one part in its transaction and one waiting, and `take`
    waits for room.
    """

    def __init__(
        self, pool: db.Pool, broker: mqtt.Client, registry: Registry, *, writers: int
    ) -> None:
        self._pool, self._broker, self._registry = pool, broker, registry
        self.lanes = [Lane(maxsize=1) for _ in range(writers)]
        self._handfuls: deque[Handful] = deque()
        self.receipts = Receipts(broker, wanted=registry.wants_receipts)
        self.problem: str | None = None

    @property
    def in_flight(self) -> int:
        return sum(len(handful.messages) for handful in self._handfuls)

    async def take(self, messages: list[mqtt.Message]) -> None:
        """Hand each writer its part."""
        parts = lanes.share(messages, len(self.lanes))
        handful = Handful(messages, len(parts))
        self._handfuls.append(handful)
        for writer, part in parts.items():
            await self.lanes[writer].put((handful, part))

    async def write(self, lane: Lane) -> None:
        """One writer: a transaction for each part, one after the other."""
        while True:
            handful, part = await lane.get()
            handful.outcome += await self._until_committed(part)
            handful.parts_left -= 1
            crash.here("ingress.after_commit")
            self._acknowledge()

    def _acknowledge(self) -> None:
        """In the order in which messages came, as MQTT asks; what is done waits for its turn."""
        while self._handfuls and not self._handfuls[0].parts_left:
            done = self._handfuls.popleft()
            self._broker.ack(done.messages)
            crash.here("ingress.after_puback")
            _count(done.outcome)
            REDELIVERED.inc(sum(message.repeated for message in done.messages))
            self.receipts.add(by_sender(done.outcome))

    async def _until_committed(self, messages: list[mqtt.Message]) -> Outcome:
        """Nothing is acknowledged before this returns, so it tries for as long as it takes."""
        backoff = Backoff(cap_s=5.0)
        while True:
            try:
                sent = [(one.topic, one.payload) for one in messages]
                outcome = await _keep(self._pool, sent, self._registry)
            except db.UNAVAILABLE as error:
                self.problem = f"nothing is being committed: {db.first_line(error)}"
                log.get(NAME).warning("ingress.database_away", error=db.first_line(error))
                await backoff.wait()
                RETRIED.inc(len(messages))
            else:
                self.problem = None
                return outcome


async def _keep(pool: db.Pool, sent: list[tuple[str, bytes]], registry: Registry) -> Outcome:
    """One transaction for all; if the data of one breaks it, each half gets its own (C-81)."""
    try:
        return await keep(pool, sent, registry)
    except psycopg.Error as error:
        if not db.is_data_error(error):
            raise
        if len(sent) == 1:
            return await _set_aside(pool, *sent[0], error)
    half = len(sent) // 2
    return await _keep(pool, sent[:half], registry) + await _keep(pool, sent[half:], registry)


Record = Callable[[db.Connection, Sequence[Arrival]], Awaitable[list[BusEvent]]]
# Which domain records what (C-81). What nobody records yet waits in quarantine.
DOMAINS: dict[str, Record] = {
    telemetry_words.READING: telemetry.record,
    device_words.STATUS: devices.statuses,
    device_words.BUFFER_DROPPED: devices.dropped,
    device_words.COMMAND_ANSWERED: devices.answers,
    feed_words.DISPENSED: feed.record,
    feed_words.IMPORTED: feed.record,
    barn_words.RECORD_CREATED: barn.record,
}


async def keep(
    pool: db.Pool, messages: Sequence[tuple[str, bytes]], registry: Registry | None = None
) -> Outcome:
    """The one transaction: the effect of what is right → quarantine for the rest.

    Many begin in good faith that what the dedupe has not seen is new, which lets the outbox be
    copied. If that proves wrong, it starts again and looks first, as a few do at once. Without a
    copy of the registry the table itself is asked.
    """
    registry = registry or Registry()
    if len(messages) < outbox.WORTH_A_COPY:
        return await _keep_together(pool, messages, registry, look_first=True)
    try:
        return await _keep_together(pool, messages, registry, look_first=False)
    except psycopg.errors.UniqueViolation:
        return await _keep_together(pool, messages, registry, look_first=True)


async def _keep_together(
    pool: db.Pool, messages: Sequence[tuple[str, bytes]], registry: Registry, *, look_first: bool
) -> Outcome:
    async with db.transaction(pool) as tx:
        outcome = await effect(tx, messages, registry=registry, look_first=look_first)
        await quarantine.put(tx, outcome.refused)
        crash.here("ingress.before_commit")
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
    arrivals, strangers = await _registered(tx, understood, registry)
    outcome = await take_effect(tx, arrivals, look_first=look_first)
    # What waited in quarantine says nothing of how its device is now.
    if received_at is None and (heard := registry.to_note(arrivals)):
        await devices_store.seen(tx, heard)
    return Outcome(refused=(*refused, *strangers)) + outcome


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
    """Each domain records its own; returns what the cloud is owed for all of it."""
    owed: list[BusEvent] = []
    for kind, group in _by_kind(new).items():
        owed += await DOMAINS[kind](tx, group)
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


def _by_kind(arrivals: Sequence[Arrival]) -> dict[str, list[Arrival]]:
    groups: dict[str, list[Arrival]] = defaultdict(list)
    for one in arrivals:
        groups[one.kind].append(one)
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
        except Invalid as invalid:
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


async def _set_aside(pool: db.Pool, topic: str, raw: bytes, error: psycopg.Error) -> Outcome:
    refused = Refused(topic, raw, [f"the database refused it: {db.first_line(error)}"])
    async with db.transaction(pool) as tx:
        await quarantine.put(tx, [refused])
    return Outcome(refused=(refused,))


def _count(outcome: Outcome) -> None:
    TAKEN.labels(outcome="new").inc(outcome.new_count)
    TAKEN.labels(outcome="repeated").inc(len(outcome.stored) - outcome.new_count)
    TAKEN.labels(outcome="quarantined").inc(len(outcome.refused))
    for message in outcome.refused:
        REFUSED.labels(kind=refusals.kind(message.reasons)).inc()


def by_sender(outcome: Outcome) -> dict[Place, tuple[tuple[UUID, ...], dict[UUID, str]]]:
    """For each device: which ids are stored, and which are refused and why."""
    stored: dict[Place, list[UUID]] = defaultdict(list)
    refused: dict[Place, dict[UUID, str]] = defaultdict(dict)
    for arrival in outcome.stored:
        stored[arrival.place].append(arrival.event.event_id)
    for message in outcome.refused:
        sender = sender_and_id(message.topic, message.raw)
        if sender is not None:
            refused[sender[0]][sender[1]] = "; ".join(message.reasons)[:500]
    return {place: (tuple(stored[place]), refused[place]) for place in {*stored, *refused}}
