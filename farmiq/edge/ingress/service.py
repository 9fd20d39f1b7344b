"""Ingress: stores what devices send, in one transaction with everything that follows from it.

device --iot/…--> [ingress] --ingress_dedupe, telemetry_raw, feed_intakes, …, sync_outbox--> sync

The broker is read as a log: the cursor moves in the transaction that stores the messages, then the
receipt is sent. At a broker without a log it is an MQTT subscriber: commit, then PUBACK, then the
receipt. After a crash between two steps the broker or the device sends again, and the dedupe finds
the duplicates. A few writers share the messages, by device.
"""

import asyncio
import time
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NoReturn
from uuid import UUID

import httpx2
from prometheus_client import Counter, Gauge

from farmiq import crash
from farmiq.config import EdgeSettings
from farmiq.edge import alerts, broker
from farmiq.edge.ingress import api, handlers, jobs, rules, source
from farmiq.edge.ingress.jobs import LogPurge, report_gap
from farmiq.edge.ingress.receipts import Receipts, by_sender
from farmiq.edge.ingress.source import LogSource, MqttSource, Part, Sent, Source
from farmiq.edge.ingress.store import Outcome
from farmiq.edge.registry import Registry
from farmiq.messages import topics
from farmiq.messages.wording import worded
from farmiq.nats_users import subject
from farmiq.plumbing import db, http, log, tracing
from farmiq.plumbing.backoff import Attempts, Backoff, cancelled_so_far, end_if_cancelled
from farmiq.plumbing.messaging import mqtt, nats, stream
from farmiq.plumbing.messaging.cursor import Cursors
from farmiq.plumbing.runtime import lease, schedule
from farmiq.plumbing.runtime.schedule import Job

NAME = "edge-ingress-gateway"

TAKEN = Counter("farmiq_ingress_messages_total", "Messages taken from the broker", ["outcome"])
REJECTED = Counter(
    "farmiq_ingress_refused_total", "Messages put into quarantine, by kind", ["kind"]
)
RETRIED = Counter(
    "farmiq_ingress_retried_total", "Messages whose transaction had to be tried again"
)
WAITING = Gauge("farmiq_ingress_waiting", "Messages received and waiting for a transaction")
WAITING_BYTES = Gauge(
    "farmiq_ingress_waiting_bytes", "Payload bytes received and waiting for a transaction"
)
IN_FLIGHT = Gauge("farmiq_ingress_in_flight", "Messages taken by a writer and not acknowledged yet")
LAG = Gauge(
    "farmiq_ingress_lag_messages", "Messages in the broker's log that no transaction has yet"
)
LAG_S = Gauge("farmiq_ingress_lag_seconds", "How long ago the broker took what is being stored now")
RESUMED = Counter(
    "farmiq_ingress_resumed_total", "Messages that waited in the log when reading began"
)
PAUSED = Gauge(
    "farmiq_ingress_paused", "1 while so much waits that nothing is read from the broker"
)


async def run(settings: EdgeSettings, server: http.HttpServer) -> None:
    async with (
        db.pool(settings.db_url.get_secret_value(), name=NAME, check_after_s=1.0) as pool,
        # Jobs and requests do not wait for intake, nor intake for them.
        db.pool(settings.db_url.get_secret_value(), name=f"{NAME}-desk") as jobs_pool,
        asyncio.TaskGroup() as group,
    ):
        leader = lease.LeaderLease(
            jobs_pool,
            name=settings.mqtt_client_id or NAME,
            holder=lease.holder(settings.http_port),
            lasts_s=settings.ingress_lease_s,
            works_as=NAME,
        )
        server.ready("ingress.database", lambda: db.problem(pool))
        server.ready("ingress.turn", leader.problem)
        server.note("ingress", leader.note)
        api.Api(jobs_pool, handlers.handle).add_to(server.app)
        for job in jobs.jobs_of(jobs_pool, settings, is_active=leader.is_active):
            group.create_task(schedule.run_repeatedly(job))
        url = broker.log_url(settings)
        if url is not None:
            with server.readying({"ingress.log": lambda: "the broker's log is not prepared yet"}):
                await _make_log(settings, url, pool)
                await _store_session(settings, url, pool)
            await leader.run_as_leader(lambda: _read_log(settings, url, server, pool, leader))
        else:
            await leader.run_as_leader(lambda: _hold_session(settings, server, pool, leader))


async def _read_log(
    settings: EdgeSettings,
    url: str,
    server: http.HttpServer,
    pool: db.Pool,
    leader: lease.LeaderLease,
) -> None:
    """As the leader: read the broker's log from the cursor on."""
    async with stream.reader(
        url,
        stream=topics.LOG,
        unlogged=[subject(topic) for topic in topics.UP],
        pull=max(stream.PULL_MESSAGES, settings.ingress_batch * settings.ingress_writers),
        tls=settings.tls,
    ) as reader:
        hold_s = settings.log_hold_minutes * 60
        cursors = Cursors(pool, reader, lanes=settings.ingress_writers, hold_s=hold_s)
        log_source = LogSource(pool, reader, cursors, name=NAME)
        log_purge = LogPurge(pool, cursors)
        registry = Registry()
        LAG.set_function(lambda: cursors.lag)
        LAG_S.set_function(lambda: log_source.lag_s)
        before = cancelled_so_far()
        # A broker that ends each connection at once must not cause a busy loop.
        backoff = Backoff(cap_s=2.0)
        while True:
            end_if_cancelled(beyond=before)
            await leader.confirm()
            try:
                async with asyncio.TaskGroup() as group:
                    intake = Intake(pool, log_source, registry, writers=settings.ingress_writers)
                    with server.readying(intake.checks()):
                        WAITING.set_function(lambda: reader.waiting)
                        WAITING_BYTES.set_function(lambda: reader.waiting_bytes)
                        with intake.attempts:
                            await log_source.start(report_gap)
                        RESUMED.inc(cursors.lag)
                        leader.started()
                        group.create_task(schedule.run_repeatedly(log_purge.job()))
                        await intake.run(group, settings, leader)
            except* source.LostError as lost:
                log.get(NAME).warning("ingress.log_lost", reason=str(lost.exceptions[0]))
            except* source.CursorMovedError as moved:
                log.get(NAME).warning("ingress.cursor_moved", reason=str(moved.exceptions[0]))
            except* db.PASSING as outage:
                log.get(NAME).warning(
                    "ingress.database_away", error=db.first_line(outage.exceptions[0])
                )
            await backoff.wait()


async def _make_log(settings: EdgeSettings, url: str, pool: db.Pool) -> None:
    """Wait until there is a log; without the right to create it, edge-devices-registry does.

    What devices send without a log is acknowledged by the broker and lost.
    """
    backoff = Backoff(cap_s=2.0)
    async with httpx2.AsyncClient(trust_env=False, verify=settings.tls.client()) as web:
        streams = broker.store(settings, pool, web)
        while True:
            if streams is not None and settings.broker_nats_url is not None:
                await streams.look()
            try:
                async with nats.connected(url, tls=settings.tls) as server:
                    await stream.info(server, topics.LOG)
                    return
            except nats.NatsError as error:
                reason = (streams and streams.problem) or str(error)
                log.get(NAME).warning("ingress.no_log_yet", reason=reason)
            await backoff.wait()


async def _store_session(settings: EdgeSettings, url: str, pool: db.Pool) -> None:
    """Store what waits in the MQTT session from before the gateway read the log (D-230).

    This is before the lease: two gateways may do it at once, and each event is stored once.
    """
    registry = Registry()
    while True:
        try:
            batches = source.session_batches(
                url, tls=settings.tls, max_messages=settings.ingress_batch
            )
            async for messages in batches:
                sent = [(message.topic, message.payload) for message in messages]
                await handlers.commit_bisecting(pool, sent, registry)
                log.get(NAME).info("ingress.session_stored", count=len(messages))
        except (*db.PASSING, source.LostError, nats.NatsError) as error:
            log.get(NAME).warning("ingress.session_waits", reason=db.first_line(error))
            await asyncio.sleep(1.0)
            continue
        return


async def _hold_session(
    settings: EdgeSettings, server: http.HttpServer, pool: db.Pool, leader: lease.LeaderLease
) -> None:
    """As the leader: a session at an MQTT broker, with our own client id."""
    url = (settings.ingress_url or settings.mqtt_url).get_secret_value()
    name = settings.mqtt_client_id or NAME
    client_id = await source.client_id(pool, name=name, given=settings.mqtt_client_id)
    async with (
        mqtt.connected(
            url, client_id=client_id, topics=topics.UP, tls=settings.tls, permit=leader.confirm
        ) as client,
        asyncio.TaskGroup() as group,
    ):
        session_source = MqttSource(client, writers=settings.ingress_writers)
        intake = Intake(pool, session_source, Registry(), writers=settings.ingress_writers)
        with server.readying(intake.checks()):
            leader.started()
            WAITING.set_function(lambda: client.waiting)
            WAITING_BYTES.set_function(lambda: client.waiting_bytes)
            PAUSED.set_function(lambda: client.paused)
            session = source.SessionWatch(pool, client, name=name, on_lost=report_lost_session)
            group.create_task(schedule.run_repeatedly(Job("ingress.session", 1.0, session.look)))
            await intake.run(group, settings, leader)


async def report_lost_session(tx: db.Connection) -> None:
    message = worded(
        "the broker had no session for the gateway any more: what devices had "
        "sent and the gateway had not taken is lost, unless they send it "
        "again. To do: if the broker was not set up anew, somebody connected "
        "under the gateway's client id (alert broker.takeover)"
    )
    lost = alerts.Alert("broker.session_lost", NAME, "security", message, whole_edge=True)
    await alerts.raise_(tx, lost)


@dataclass(slots=True)
class InFlight:
    """Messages that were read together, until each writer has committed its part."""

    messages: Sequence[Sent]
    parts_left: int
    outcome: Outcome = field(default_factory=Outcome)


WriterQueue = asyncio.Queue[tuple[InFlight, Part]]


class Intake:
    """Stores the messages of a source: commit, then the source, then the receipt.

    Memory is limited: a writer has one part in its transaction and one waiting, and `take` waits
    for room.
    """

    def __init__(self, pool: db.Pool, origin: Source, registry: Registry, *, writers: int) -> None:
        self._pool, self._source, self._registry = pool, origin, registry
        self.queues = [WriterQueue(maxsize=1) for _ in range(writers)]
        self._in_flight: deque[InFlight] = deque()
        self.receipts = Receipts(origin.publish, wanted=registry.wants_receipts)
        self.attempts = Attempts("nothing is being committed")
        self._log = log.get(NAME)
        IN_FLIGHT.set_function(lambda: self.in_flight)

    @property
    def in_flight(self) -> int:
        return sum(len(batch.messages) for batch in self._in_flight)

    def checks(self) -> dict[str, http.Check]:
        return {
            "ingress.broker": self._source.problem,
            "ingress.intake": lambda: self.attempts.problem,
        }

    async def run(
        self, group: asyncio.TaskGroup, settings: EdgeSettings, leader: lease.LeaderLease
    ) -> NoReturn:
        """Read and store, with tasks in `group`; ends with the error of the source or a writer."""
        group.create_task(self.receipts.run())
        for queue in self.queues:
            group.create_task(self.write(queue))
        while True:
            messages = await self._source.read(
                max_messages=settings.ingress_batch * settings.ingress_writers,
                linger_s=settings.ingress_linger_ms / 1000,
            )
            await leader.confirm()
            await self.take(messages)

    async def take(self, messages: Sequence[Sent]) -> None:
        """Give each writer its part."""
        parts = self._source.share(messages)
        if not parts:
            return
        batch = InFlight(messages, len(parts))
        self._in_flight.append(batch)
        for writer, part in parts.items():
            await self.queues[writer].put((batch, part))

    async def write(self, queue: WriterQueue) -> None:
        """One writer: commits one part after the other."""
        while True:
            batch, part = await queue.get()
            started_ns = time.time_ns()
            outcome = await self._until_committed(part)
            # At once: whoever is interrupted later does not store these again.
            log.events(self._log, "ingress.stored", _named(outcome))
            tracing.record(tracing.INGRESS, NAME, _named(outcome), started_ns=started_ns)
            _count(outcome)
            batch.outcome += outcome
            batch.parts_left -= 1
            crash.here("ingress.after_commit")
            self._finish()

    def _finish(self) -> None:
        """Finish batches in the order in which they came, as MQTT requires."""
        while self._in_flight and not self._in_flight[0].parts_left:
            batch = self._in_flight.popleft()
            self._source.commit(batch.messages)
            crash.here("ingress.before_receipt")
            self.receipts.add(by_sender(batch.outcome, self._registry.at_station))

    async def _until_committed(self, part: Part) -> Outcome:
        """Try until it is committed: the source has the messages until then."""
        backoff = Backoff(cap_s=5.0)
        before = cancelled_so_far()
        sent = [(message.topic, message.payload) for message in part.messages]
        while True:
            end_if_cancelled(beyond=before)
            try:
                with self.attempts:
                    return await handlers.commit_bisecting(
                        self._pool, sent, self._registry, part.progress
                    )
            except db.PASSING as error:
                self._log.warning("ingress.database_away", error=db.first_line(error))
                await backoff.wait()
                RETRIED.inc(len(part.messages))


def _named(outcome: Outcome) -> Iterator[tuple[UUID, str, str]]:
    """The fields of stored events for the log, new and duplicate."""
    for arrival in outcome.stored:
        yield arrival.event.event_id, arrival.event.event_type, arrival.event.trace_id


def _count(outcome: Outcome) -> None:
    TAKEN.labels(outcome="new").inc(outcome.new_count)
    TAKEN.labels(outcome="repeated").inc(len(outcome.stored) - outcome.new_count)
    TAKEN.labels(outcome="quarantined").inc(len(outcome.rejected))
    for message in outcome.rejected:
        REJECTED.labels(kind=rules.kind(message.reasons)).inc()
