"""The cameras' gateway: the broker's log in, one transaction, answers made from the tables.

camera --device/…, ESP32CAM/…--> FARMIQ_CAMERAS (a stream of NATS)
FARMIQ_CAMERAS --> [gateway] --broker_cursors, camera_transfers, camera_chunks, fn_wake_…-->
camera_transfers --> [gateway] --the cloud's bucket, fn_image_…, …/ack, …/cmd--> camera

The cursor advances by compare-and-set in the transaction that stores the messages: of two gateways
only one can store a message, and after a crash the next one continues after the last commit. The
lease only decides which of them is active. A camera relies on ACK_OK; the broker's PUBACK does not
mean that a message is on disk.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import httpx2
import prometheus_client
from psycopg import conninfo

from farmiq import crash
from farmiq.cloud.camera.gateway import batches, jobs, logins
from farmiq.cloud.camera.gateway.answers import ENDED, Answers, LogPosition
from farmiq.cloud.camera.gateway.batches import Outcome
from farmiq.cloud.camera.gateway.chunks import Timing
from farmiq.cloud.camera.protocol import wire
from farmiq.cloud.camera.protocol.wire import RawMessage
from farmiq.cloud.camera.waking import Waking
from farmiq.config import CloudSettings
from farmiq.config.settings import secret
from farmiq.plumbing import db, http, log
from farmiq.plumbing.backoff import Attempts, Backoff, cancelled_so_far, end_if_cancelled
from farmiq.plumbing.broker.load import Load
from farmiq.plumbing.broker.store import Store
from farmiq.plumbing.messaging import mqtt, nats, stream
from farmiq.plumbing.messaging.cursor import CursorMovedError, Cursors, Lane
from farmiq.plumbing.messaging.stream import Message, Reader
from farmiq.plumbing.runtime import lease, schedule
from farmiq.plumbing.runtime.schedule import Job
from farmiq.plumbing.storage import objects

NAME = "cloud-camera-gateway"

# Memory does not grow with the number of cameras (P12).
BATCH = 500
BATCH_BYTES = 2 * 2**20
LINGER_S = 0.02
# An announcement costs as much as many chunks; a transaction must not become too long.
MAX_EXPENSIVE = 60
# Stored messages stay in the log for so long, for a database that is restored from a backup; less
# when the log fills up.
PURGE_AFTER_S = 900.0
PURGE_EVERY_S = 30.0
_NO_STREAM = (
    f"nobody makes the stream {logins.LOG.name}: FARMIQ_CLOUD_BROKER_NATS_URL or "
    "FARMIQ_CLOUD_BROKER_MONITOR_URL is not set"
)
# A gateway that is frozen in a transaction holds locks that the next one waits for. Without the
# second option its statements are planned anew for each length of their arrays (D-820).
_DB_OPTIONS = "-c idle_in_transaction_session_timeout=10s -c plan_cache_mode=force_generic_plan"

TAKEN = prometheus_client.Counter(
    "farmiq_camera_messages_total", "Messages taken from cameras", ["outcome"]
)
REWOUND = prometheus_client.Counter(
    "farmiq_camera_log_rewound_total",
    "Times that the log was read again because the broker's files were restored or lost",
)
LOG_LAG = prometheus_client.Gauge(
    "farmiq_camera_log_lag_messages", "Messages in the cameras' log that are not stored yet"
)
LOG_LAG_S = prometheus_client.Gauge(
    "farmiq_camera_log_lag_seconds", "How long the last stored message had been in the log"
)
LOG_SHARE = prometheus_client.Gauge(
    "farmiq_camera_log_ratio", "How full the cameras' log is at the broker, 0 to 1"
)
REJECTED = prometheus_client.Counter(
    "farmiq_camera_refused_total", "Messages of cameras put into quarantine, by kind", ["kind"]
)


async def run(settings: CloudSettings, server: http.HttpServer) -> None:
    url, s3_url = settings.camera_url, settings.s3_url
    if url is None or s3_url is None:
        name = "FARMIQ_CLOUD_CAMERA_URL" if url is None else "FARMIQ_CLOUD_S3_URL"
        server.note("camera", lambda: f"takes no cameras: {name} is not set")
        await asyncio.Event().wait()
        return
    bucket = objects.Bucket(s3_url.get_secret_value(), tls=settings.tls)
    db_url = conninfo.make_conninfo(settings.db_url.get_secret_value(), options=_DB_OPTIONS)
    async with (
        # One connection, so that the plans of its statements and functions are made once.
        db.pool(db_url, name=NAME, max_size=1, check_after_s=10.0) as intake_pool,
        db.pool(db_url, name=NAME, max_size=5, check_after_s=10.0) as pool,
        db.pool(db_url, name=f"{NAME}-jobs", max_size=2) as jobs_pool,
        httpx2.AsyncClient(trust_env=False, verify=settings.tls.client()) as web,
        asyncio.TaskGroup() as group,
    ):
        leader = lease.LeaderLease(
            jobs_pool,
            name=NAME,
            holder=lease.holder(settings.http_port),
            lasts_s=settings.camera_lease_s,
            works_as=NAME,
        )
        server.ready("camera.database", lambda: db.problem(jobs_pool))
        server.ready("camera.store", bucket.problem)
        server.ready("camera.turn", leader.problem)
        server.note("camera", leader.note)
        monitor = settings.broker_monitor_url
        load = Load(web, monitor) if monitor else None
        callout = logins.callout(jobs_pool, settings, web)
        if callout is not None:
            group.create_task(callout.answer())
            group.create_task(callout.end_sessions())
        store = (
            Store(
                jobs_pool,
                web,
                nats_url=secret(settings.broker_nats_url),
                monitor_url=monitor,
                bounds=replace(logins.BOUNDS, replicas=settings.broker_replicas),
                tls=settings.tls,
            )
            if monitor
            else None
        )
        if store is None or settings.broker_nats_url is None:
            server.note("camera.log", lambda: _NO_STREAM)
        for job in jobs.periodic_jobs(
            jobs_pool,
            settings,
            server,
            load=load,
            store=store,
            callout=callout,
            is_active=leader.is_active,
        ):
            group.create_task(schedule.run_repeatedly(job))
        await leader.run_as_leader(
            lambda: _listen(settings, server, intake_pool, pool, bucket, leader, store)
        )


async def _listen(  # noqa: PLR0917 - its dependencies
    settings: CloudSettings,
    server: http.HttpServer,
    intake_pool: db.Pool,
    pool: db.Pool,
    bucket: objects.Bucket,
    leader: lease.LeaderLease,
    store: Store | None,
) -> None:
    """As the leader: store what cameras send, and answer."""
    timing = Timing(
        round_s=settings.camera_missing_s,
        timeout_s=settings.camera_timeout_s,
        resume_days=settings.camera_resume_days,
    )
    if store is not None:
        # Creates the log if it is missing.
        await store.look()
    async with (
        stream.reader(
            secret(settings.camera_url) or "", stream=logins.LOG.name, tls=settings.tls
        ) as reader,
        asyncio.TaskGroup() as group,
    ):
        writing = asyncio.Lock()
        cursors = Cursors(intake_pool, reader, lanes=1, hold_s=PURGE_AFTER_S)
        position = LogPosition(cursors, reader)
        wakes = Waking(settings.next_wake_min_s, settings.next_wake_spread_s)
        answers = Answers(
            pool, reader, bucket, timing, position=position, writing=writing, wakes=wakes
        )
        ingest = Ingest(
            intake_pool, reader, timing, cursors, leader=leader, position=position, writing=writing
        )
        checks = {
            "camera.broker": reader.problem,
            "camera.intake": lambda: ingest.attempts.problem,
            "camera.steps": lambda: answers.attempts.problem,
        }
        with server.readying(checks):
            leader.started()
            group.create_task(position.watch())
            for work in answers.workers():
                group.create_task(work)
            leader_jobs = [
                *jobs.command_jobs(
                    pool, reader, position, writing, awake_s=settings.camera_awake_s
                ),
                Job("camera.log", PURGE_EVERY_S, ingest.purge),
                Job("camera.old_session", 60.0, partial(end_old_session, pool, settings)),
            ]
            for job in leader_jobs:
                group.create_task(schedule.run_repeatedly(job))
            await ingest.run(answers)


class Ingest:
    """Reads the log and stores it, batch by batch."""

    def __init__(
        self,
        pool: db.Pool,
        reader: Reader,
        timing: Timing,
        cursors: Cursors,
        *,
        leader: lease.LeaderLease,
        position: LogPosition,
        writing: asyncio.Lock,
    ) -> None:
        self._pool, self._reader, self._timing, self._leader = pool, reader, timing, leader
        self._cursors, self._position, self._writing = cursors, position, writing
        self.attempts = Attempts("nothing is being committed")
        LOG_LAG.set_function(lambda: self._cursors.lag)

    async def run(self, answers: Answers) -> None:
        """Run forever; after each interruption from the cursor in the database."""
        before = cancelled_so_far()
        backoff = Backoff(cap_s=2.0)
        while True:
            end_if_cancelled(beyond=before)
            await self._leader.confirm()
            try:
                with self.attempts:
                    lane = await self._begin()
                while True:
                    end_if_cancelled(beyond=before)
                    messages = await self._reader.batch(
                        max_messages=BATCH, max_bytes=BATCH_BYTES, linger_s=LINGER_S
                    )
                    await self._leader.confirm()
                    for part in _parts(messages):
                        answers.wake(await self._store(lane, part))
            except (stream.LostError, CursorMovedError) as error:
                log.get(NAME).warning("camera.reading_again", reason=str(error))
                await backoff.wait()
            except db.PASSING as error:
                log.get(NAME).warning("camera.database_away", error=db.first_line(error))
                end_if_cancelled(beyond=before)
                await backoff.wait()

    async def _begin(self) -> Lane:
        await self._cursors.start(_report_rewind)
        self._position.moved()
        return self._cursors.lanes[0]

    async def _store(self, lane: Lane, messages: Sequence[Message]) -> Outcome:
        raw_messages = [
            RawMessage(
                stream.topic(message.subject), message.payload, message.stored_at_ns, message.seq
            )
            for message in messages
        ]
        async with self._writing:
            with self.attempts:
                outcome = await batches.commit_bisecting(
                    self._pool, raw_messages, self._timing, lane=lane
                )
        crash.here("camera.after_commit")
        self._cursors.read_seq = lane.position.seq
        self._position.moved()
        self._report(outcome, messages[-1])
        return outcome

    def _report(self, outcome: Outcome, last: Message) -> None:
        LOG_LAG_S.set(max(0.0, time.time() - last.stored_at_ns / 1e9))
        for code in outcome.failed:
            ENDED.labels(outcome=code.lower()).inc()
        TAKEN.labels(outcome="taken").inc(outcome.stored)
        TAKEN.labels(outcome="quarantined").inc(len(outcome.rejected))
        kinds = Counter(message.kind for message in outcome.rejected)
        for kind, count in kinds.items():
            REJECTED.labels(kind=kind).inc(count)
            # Not unknown cameras, whose number has no limit: a job reports them.
            if kind != "unknown":
                log.get(NAME).warning("camera.refused", reason=kind, count=count)

    async def purge(self) -> dict[str, object]:
        """Remove old messages from the log; more when the log fills up."""
        try:
            info, purged = await self._cursors.purge()
        except nats.NatsError as error:
            log.get(NAME).warning("camera.not_purged", reason=str(error))
            return {}
        LOG_SHARE.set(info.share)
        return {"purged": purged} if purged else {}


async def _report_rewind(_tx: db.Connection, start: stream.Start) -> None:
    if start.rewound:
        REWOUND.inc()
        log.get(NAME).error("camera.log_rewound", reason=start.rewound, count=start.lost)


def _parts(messages: Sequence[Message]) -> list[Sequence[Message]]:
    """Split, so that a part has at most MAX_EXPENSIVE messages that are no chunks."""
    parts: list[Sequence[Message]] = []
    start = expensive = 0
    for end, message in enumerate(messages, 1):
        expensive += not wire.is_chunk(message.payload)
        if expensive >= MAX_EXPENSIVE:
            parts.append(messages[start:end])
            start, expensive = end, 0
    if start < len(messages):
        parts.append(messages[start:])
    return parts


async def end_old_session(pool: db.Pool, settings: CloudSettings) -> dict[str, object]:
    """End the broker session of old gateways, which would fill up.

    Its messages are not lost: a camera stores an image until its ACK_OK.
    """
    url = secret(settings.mqtt_url)
    if url is None:
        return {}
    async with db.transaction(pool) as tx:
        client_id = await db.fetch_value(
            tx,
            "select coalesce(%s, client_id) from leases "
            "where name = %s and session_began_at is not null",
            settings.mqtt_client_id,
            NAME,
        )
    if client_id is None or not await mqtt.end_session(url, client_id, tls=settings.tls):
        return {}
    async with db.transaction(pool) as tx:
        await tx.execute(
            "update leases set client_id = null, session_began_at = null where name = %s",
            (NAME,),
        )
    return {"ended": 1}
