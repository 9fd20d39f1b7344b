"""Ingress: MQTT in, one transaction, everything owed written down.

device --iot/…--> [ingress] --ingress_dedupe, telemetry_raw, feed_intakes, …, sync_outbox--> sync

The order is the promise: commit, then PUBACK, then the receipt. A crash between any two of them
makes the broker or the device send again, and the dedupe absorbs it. What has arrived is shared
among a few writers by device; acknowledgements still leave in the order in which messages came.
"""

import asyncio
from collections import defaultdict, deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from uuid import UUID

import prometheus_client

from farmiq import crash
from farmiq.config import EdgeSettings
from farmiq.edge import alerts
from farmiq.edge.ingress import api, lanes, refusals, transaction, upkeep
from farmiq.edge.ingress.accept import AtStation, nobody, sender_and_id
from farmiq.edge.ingress.receipts import Receipts
from farmiq.edge.ingress.transaction import Outcome
from farmiq.edge.registry import Registry
from farmiq.messages import topics
from farmiq.messages.topics import Place
from farmiq.plumbing import chores, db, gateway_session, http, lease, log, mqtt
from farmiq.plumbing.attempts import Attempts
from farmiq.plumbing.backoff import Backoff
from farmiq.plumbing.chores import Chore
from farmiq.plumbing.gateway_session import SessionWatch

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


async def run(settings: EdgeSettings, door: http.Door) -> None:
    async with (
        db.pool(settings.db_url.get_secret_value(), name=NAME, check_after_s=1.0) as pool,
        # Chores and questions never wait for intake, nor intake for them.
        db.pool(settings.db_url.get_secret_value(), name=f"{NAME}-desk") as desk,
        asyncio.TaskGroup() as group,
    ):
        turn = lease.Turn(
            pool,
            name=settings.mqtt_client_id or NAME,
            holder=lease.holder(settings.http_port),
            lasts_s=settings.ingress_lease_s,
            works_as=NAME,
        )
        door.ready("ingress.database", lambda: db.problem(pool))
        door.ready("ingress.turn", turn.problem)
        door.note("ingress", turn.note)
        api.Desk(desk, transaction.effect).add_to(door.app)
        for chore in upkeep.chores_of(desk, settings, is_active=turn.is_active):
            group.create_task(chores.keep_doing(chore))
        await turn.take_turns(lambda: _listen(settings, door, pool, turn))


async def _listen(settings: EdgeSettings, door: http.Door, pool: db.Pool, turn: lease.Turn) -> None:
    """While it is this gateway's turn: everything that devices send."""
    name = settings.mqtt_client_id or NAME
    client_id = await gateway_session.client_id(pool, name=name, given=settings.mqtt_client_id)
    async with (
        mqtt.connected(
            settings.mqtt_url.get_secret_value(),
            client_id=client_id,
            topics=topics.UP,
            tls=settings.tls,
            permit=turn.confirm,
        ) as broker,
        asyncio.TaskGroup() as group,
    ):
        intake = Intake(pool, broker, Registry(), writers=settings.ingress_writers)
        with door.readying(
            {"ingress.broker": broker.problem, "ingress.intake": lambda: intake.attempts.problem}
        ):
            turn.begun()
            _show(broker, intake)
            group.create_task(intake.receipts.keep_sending())
            session = SessionWatch(pool, broker, name=name, tell=report_lost_session)
            group.create_task(chores.keep_doing(Chore("ingress.session", 1.0, session.look)))
            for lane in intake.lanes:
                group.create_task(intake.write(lane))
            while True:
                messages = await broker.batch(
                    most=settings.ingress_batch * settings.ingress_writers,
                    linger_s=settings.ingress_linger_ms / 1000,
                )
                await turn.confirm()
                await intake.take(messages)


async def report_lost_session(tx: db.Connection) -> None:
    told = (
        "the broker had no session for the gateway any more: what devices had sent and the gateway "
        "had not taken is lost, unless they send it again. To do: if the broker was not set up "
        "anew, somebody connected under the gateway's client id (alert broker.takeover)"
    )
    await alerts.raise_(tx, alerts.Alert("broker.session_lost", NAME, "security", told))


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
    """Takes messages: commit, PUBACK, receipt.

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
        self.attempts = Attempts("nothing is being committed")
        self._log = log.get(NAME)

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
            log.events(self._log, "ingress.stored", _named(done.outcome))
            _count(done.outcome)
            REDELIVERED.inc(sum(message.repeated for message in done.messages))
            self.receipts.add(by_sender(done.outcome, self._registry.at_station))

    async def _until_committed(self, messages: list[mqtt.Message]) -> Outcome:
        """Nothing is acknowledged before this returns, so it tries for as long as it takes."""
        backoff = Backoff(cap_s=5.0)
        sent = [(one.topic, one.payload) for one in messages]
        while True:
            try:
                with self.attempts:
                    return await transaction.keep_in_halves(self._pool, sent, self._registry)
            except db.PASSING as error:
                self._log.warning("ingress.database_away", error=db.first_line(error))
                await backoff.wait()
                RETRIED.inc(len(messages))


def _named(outcome: Outcome) -> Iterator[tuple[UUID, str, str]]:
    """What the log says of the events that are stored, new and repeated."""
    for arrival in outcome.stored:
        yield arrival.event.event_id, arrival.event.event_type, arrival.event.trace_id


def _count(outcome: Outcome) -> None:
    TAKEN.labels(outcome="new").inc(outcome.new_count)
    TAKEN.labels(outcome="repeated").inc(len(outcome.stored) - outcome.new_count)
    TAKEN.labels(outcome="quarantined").inc(len(outcome.refused))
    for message in outcome.refused:
        REFUSED.labels(kind=refusals.kind(message.reasons)).inc()


def by_sender(
    outcome: Outcome, at_station: AtStation = nobody
) -> dict[Place, tuple[tuple[UUID, ...], dict[UUID, str]]]:
    """For each device: which ids are stored, and which are refused and why."""
    stored: dict[Place, list[UUID]] = defaultdict(list)
    refused: dict[Place, dict[UUID, str]] = defaultdict(dict)
    for arrival in outcome.stored:
        stored[arrival.place].append(arrival.event.event_id)
    for message in outcome.refused:
        sender = sender_and_id(message.topic, message.raw, at_station)
        if sender is not None:
            refused[sender[0]][sender[1]] = "; ".join(message.reasons)[:500]
    return {place: (tuple(stored[place]), refused[place]) for place in {*stored, *refused}}
