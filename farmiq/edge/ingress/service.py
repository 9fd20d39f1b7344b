"""Ingress: MQTT in, one transaction, everything owed written down.

device --iot/…--> [ingress] --ingress_dedupe, telemetry_raw, feed_intakes, …, sync_outbox--> sync

The order is the promise: commit, then PUBACK, then the receipt. A crash between any two of them
makes the broker or the device send again, and the dedupe absorbs it.
"""

import asyncio
import contextlib
from collections import defaultdict
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from uuid import UUID

import prometheus_client
import psycopg

from farmiq import crash
from farmiq.config import EdgeSettings
from farmiq.edge import lease, outbox
from farmiq.edge.arrival import Arrival
from farmiq.edge.barn import store as barn
from farmiq.edge.feed import store as feed
from farmiq.edge.ingress import api, gaps, quarantine, refusals, store, upkeep
from farmiq.edge.ingress.accept import accept, sender_and_id
from farmiq.edge.ingress.store import Refused
from farmiq.edge.telemetry import store as telemetry
from farmiq.messages import barn as barn_words
from farmiq.messages import feed as feed_words
from farmiq.messages import receipt, topics
from farmiq.messages import telemetry as telemetry_words
from farmiq.messages.bus import BusEvent
from farmiq.messages.check import Invalid
from farmiq.messages.topics import Place
from farmiq.plumbing import chores, db, http, ids, log, mqtt
from farmiq.plumbing.backoff import Backoff

NAME = "edge-ingress-gateway"

MOST_RECEIPTS_WAITING = 100

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
        db.pool(settings.db_url.get_secret_value(), name=NAME) as pool,
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
        intake = Intake(pool, broker)
        with door.readying(
            {"ingress.broker": broker.problem, "ingress.intake": lambda: intake.problem}
        ):
            WAITING.set_function(lambda: broker.waiting)
            group.create_task(intake.send_receipts())
            while True:
                messages = await broker.batch(
                    most=settings.ingress_batch, linger_s=settings.ingress_linger_ms / 1000
                )
                await turn.confirm()
                await intake.take(messages)


class Intake:
    """Takes messages: commit, PUBACK, receipt. `problem` says why nothing is being committed."""

    def __init__(self, pool: db.Pool, broker: mqtt.Client) -> None:
        self._pool, self._broker = pool, broker
        self._receipts: asyncio.Queue[Outcome] = asyncio.Queue(MOST_RECEIPTS_WAITING)
        self.problem: str | None = None

    async def take(self, messages: list[mqtt.Message]) -> None:
        outcome = await self._until_committed(messages)
        crash.here("ingress.after_commit")
        self._broker.ack(messages)
        crash.here("ingress.after_puback")
        _count(outcome)
        REDELIVERED.inc(sum(message.repeated for message in messages))
        # A receipt that is not sent only means that the device asks again: intake never waits.
        with contextlib.suppress(asyncio.QueueFull):
            self._receipts.put_nowait(outcome)

    async def send_receipts(self) -> None:
        while True:
            await _send_receipts(self._broker, await self._receipts.get())

    async def _until_committed(self, messages: list[mqtt.Message]) -> Outcome:
        """Nothing is acknowledged before this returns, so it tries for as long as it takes."""
        backoff = Backoff(cap_s=5.0)
        while True:
            try:
                outcome = await _keep(self._pool, messages)
            except db.UNAVAILABLE as error:
                self.problem = f"nothing is being committed: {db.first_line(error)}"
                log.get(NAME).warning("ingress.database_away", error=db.first_line(error))
                await backoff.wait()
                RETRIED.inc(len(messages))
            else:
                self.problem = None
                return outcome


async def _keep(pool: db.Pool, messages: Sequence[mqtt.Message]) -> Outcome:
    """One transaction for all; if the data of one breaks it, each gets its own (C-81)."""
    sent = [(message.topic, message.payload) for message in messages]
    try:
        return await keep(pool, sent)
    except psycopg.Error as error:
        if not db.is_data_error(error):
            raise
    whole = Outcome()
    for topic, raw in sent:
        try:
            whole += await keep(pool, [(topic, raw)])
        except psycopg.Error as error:
            if not db.is_data_error(error):
                raise
            whole += await _set_aside(pool, topic, raw, error)
    return whole


Record = Callable[[db.Connection, Sequence[Arrival]], Awaitable[list[BusEvent]]]
# Which domain records what (C-81). What nobody records yet waits in quarantine.
DOMAINS: dict[str, Record] = {
    telemetry_words.READING: telemetry.record,
    feed_words.DISPENSED: feed.record,
    feed_words.IMPORTED: feed.record,
    barn_words.RECORD_CREATED: barn.record,
}


async def keep(pool: db.Pool, messages: Sequence[tuple[str, bytes]]) -> Outcome:
    """The one transaction: the effect of what is right → quarantine for the rest."""
    async with db.transaction(pool) as tx:
        outcome = await effect(tx, messages)
        await quarantine.put(tx, outcome.refused)
        crash.here("ingress.before_commit")
    return outcome


async def effect(
    tx: db.Connection,
    messages: Sequence[tuple[str, bytes]],
    received_at: Sequence[datetime] | None = None,
) -> Outcome:
    """Dedupe → each domain's record → outbox, in the caller's transaction.

    `received_at` is when each was first received, if that was not now.
    """
    arrivals, unreadable = _sort(messages, received_at or [datetime.now(UTC)] * len(messages))
    fresh, conflicts = await _tell_apart(tx, arrivals)
    new, clashes = await _known_to_the_outbox(tx, fresh)
    for kind, group in _by_kind(new).items():
        await outbox.append(tx, await DOMAINS[kind](tx, group))
    await store.note_seqs(tx, gaps.seen(new))
    refused = (*unreadable, *conflicts, *clashes)
    wrong = {(message.topic, message.raw) for message in (*conflicts, *clashes)}
    stored = tuple(one for one in arrivals if (one.topic, one.raw) not in wrong)
    known = {one.key for one in new}
    absorbed = tuple(
        one for one in fresh if one.key not in known and (one.topic, one.raw) not in wrong
    )
    return Outcome(stored, len(new), refused, absorbed)


def _by_kind(arrivals: Sequence[Arrival]) -> dict[str, list[Arrival]]:
    groups: dict[str, list[Arrival]] = defaultdict(list)
    for one in arrivals:
        groups[one.kind].append(one)
    return groups


def _sort(
    messages: Sequence[tuple[str, bytes]], received_at: Sequence[datetime]
) -> tuple[list[Arrival], list[Refused]]:
    arrivals: list[Arrival] = []
    refused: list[Refused] = []
    for (topic, raw), at in zip(messages, received_at, strict=True):
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
    first = {arrival.key: arrival for arrival in reversed(arrivals)}
    new_keys = await store.first_seen(tx, list(first.values()))
    hashes = await store.known_hashes(tx, list(first.values()))
    conflicts = [
        Refused(one.topic, one.raw, ["EVENT_ID_CONFLICT: this event_id came with another content"])
        for one in arrivals
        if hashes[one.key] != one.content_hash
    ]
    return [one for key, one in first.items() if key in new_keys], conflicts


async def _known_to_the_outbox(
    tx: db.Connection, fresh: list[Arrival]
) -> tuple[list[Arrival], list[Refused]]:
    """(new, clashes): the outbox remembers longer than the dedupe.

    An id that it holds for the same tenant is an old replay, which has had its effect; an id that
    is another tenant's, there or in this very batch, is a clash (C-18).
    """
    holders = await store.outbox_tenants(tx, fresh) if fresh else {}
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


async def _send_receipts(broker: mqtt.Client, outcome: Outcome) -> None:
    """Receipts speed a device up; one that is lost only means that the device asks again."""
    now = datetime.now(UTC)
    sending = [
        broker.publish(
            topics.receipts(place),
            receipt.write(place, stored=ids_, refused=refused, event_id=ids.new(), now=now),
        )
        for place, (ids_, refused) in by_sender(outcome).items()
    ]
    results = await asyncio.gather(*sending, return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException) and not isinstance(result, mqtt.Disconnected):
            raise result


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
