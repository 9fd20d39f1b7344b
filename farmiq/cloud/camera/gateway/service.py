"""The cameras' gateway: MQTT in, one transaction, answers made from the tables.

camera --device/…, ESP32CAM/…--> [gateway] --camera_transfers, camera_chunks, fn_wake_…-->
camera_transfers --> [gateway] --the cloud's bucket, fn_image_…, …/ack, …/cmd--> camera

Two may run: one has the turn, the other takes over in mid-image under the same client id (C-102).
"""

import asyncio
from collections import Counter

import httpx2
import prometheus_client
from psycopg import conninfo

from farmiq import crash
from farmiq.cloud.camera.gateway import dialects, intake, logins, upkeep
from farmiq.cloud.camera.gateway.chunks import Pace
from farmiq.cloud.camera.gateway.hand import TAKEN, Hand
from farmiq.cloud.camera.gateway.intake import Outcome
from farmiq.cloud.camera.gateway.lag import Lag
from farmiq.cloud.camera.gateway.steps import ENDED, WORKERS, Steps
from farmiq.cloud.camera.gateway.wire import Sent
from farmiq.cloud.camera.waking import Waking
from farmiq.config import CloudSettings
from farmiq.config.settings import secret
from farmiq.plumbing import chores, db, gateway_session, http, lease, log, mqtt, objects
from farmiq.plumbing.attempts import Attempts
from farmiq.plumbing.backoff import Backoff, cancelled_so_far, end_if_cancelled
from farmiq.plumbing.broker_load import Load
from farmiq.plumbing.broker_store import Store
from farmiq.plumbing.gateway_session import SessionWatch

NAME = "cloud-camera-gateway"

# What is held in memory does not grow with the number of cameras (P12); see also hand.py.
MOST_WAITING = 500
MOST_WAITING_BYTES = 2 * 2**20
# A gateway that is frozen in mid-transaction holds locks that the next one waits for.
_IMPATIENT = "-c idle_in_transaction_session_timeout=10s"

LOST = prometheus_client.Counter(
    "farmiq_camera_sessions_lost_total", "Times that the broker had lost the gateway's session"
)
REFUSED = prometheus_client.Counter(
    "farmiq_camera_refused_total", "Messages of cameras put into quarantine, by kind", ["kind"]
)


async def run(settings: CloudSettings, door: http.Door) -> None:
    mqtt_url, s3_url = settings.mqtt_url, settings.s3_url
    if mqtt_url is None or s3_url is None:
        lacks = "FARMIQ_CLOUD_MQTT_URL" if mqtt_url is None else "FARMIQ_CLOUD_S3_URL"
        door.note("camera", lambda: f"takes no cameras: {lacks} is not set")
        await asyncio.Event().wait()
        return
    bucket = objects.Bucket(s3_url.get_secret_value(), tls=settings.tls)
    url = conninfo.make_conninfo(settings.db_url.get_secret_value(), options=_IMPATIENT)
    async with (
        db.pool(url, name=NAME, most=WORKERS + 2) as pool,
        db.pool(url, name=f"{NAME}-desk", most=2) as desk,
        httpx2.AsyncClient(trust_env=False) as web,
        asyncio.TaskGroup() as group,
    ):
        turn = lease.Turn(
            desk,
            name=settings.mqtt_client_id or NAME,
            holder=lease.holder(settings.http_port),
            lasts_s=settings.camera_lease_s,
            works_as=NAME,
        )
        door.ready("camera.database", lambda: db.problem(desk))
        door.ready("camera.store", bucket.problem)
        door.ready("camera.turn", turn.problem)
        door.note("camera", turn.note)
        monitor = settings.broker_monitor_url
        load = Load(web, monitor) if monitor else None
        asked = logins.callout(desk, settings, web)
        if asked is not None:
            group.create_task(asked.answer())
            group.create_task(asked.end_sessions())
        for chore in upkeep.chores_of(
            desk,
            settings,
            door,
            load=load,
            store=store_of(settings, web),
            asked=asked,
            is_active=turn.is_active,
        ):
            group.create_task(chores.keep_doing(chore))
        address = mqtt_url.get_secret_value()
        await turn.take_turns(lambda: _listen(settings, address, door, pool, bucket, turn))


async def _listen(  # noqa: PLR0917 - what it stands on
    settings: CloudSettings,
    url: str,
    door: http.Door,
    pool: db.Pool,
    bucket: objects.Bucket,
    turn: lease.Turn,
) -> None:
    """While it is this gateway's turn: everything that cameras send, and what is due to them."""
    pace = pace_of(settings)
    name = settings.mqtt_client_id or NAME
    client_id = await gateway_session.client_id(pool, name=name, given=settings.mqtt_client_id)
    async with (
        mqtt.connected(
            url,
            client_id=client_id,
            topics=dialects.UP,
            tls=settings.tls,
            permit=turn.confirm,
            most_waiting=MOST_WAITING,
            most_waiting_bytes=MOST_WAITING_BYTES,
        ) as broker,
        asyncio.TaskGroup() as group,
    ):
        door_, hand = Intake(pool, broker, pace), Hand(broker, settle_s=settings.camera_settle_s)
        lag = Lag(
            hindered=lambda: bool(broker.problem() or door_.attempts.problem or hand.lacks_some),
            waiting=lambda: hand.waiting,
            taken=lambda: hand.line.taken,
            lasts_s=pace.round_s,
        )
        steps = Steps(
            pool, broker, bucket, pace, in_hand=hand.topics, is_behind=lag.is_behind,
            waking=Waking(settings.next_wake_min_s, settings.next_wake_spread_s),
        )  # fmt: skip
        checks = {
            "camera.broker": broker.problem,
            "camera.intake": lambda: door_.attempts.problem,
            "camera.steps": lambda: steps.attempts.problem,
        }
        with door.readying(checks):
            turn.begun()
            group.create_task(lag.watch())
            session = SessionWatch(pool, broker, name=name, tell=report_lost_session)
            group.create_task(chores.keep_doing(chores.Chore("camera.session", 1.0, session.look)))
            for _ in range(WORKERS):
                group.create_task(steps.work())
            sending = upkeep.sending(pool, broker, awake_s=settings.camera_awake_s)
            group.create_task(chores.keep_doing(sending))
            before = cancelled_so_far()
            while True:
                end_if_cancelled(beyond=before)
                messages = await hand.next()
                await turn.confirm()
                await door_.take(messages)
                hand.line.settled()
                steps.news.set()


async def report_lost_session(tx: db.Connection) -> None:
    del tx
    LOST.inc()
    told = "the broker had no session for us any more; what waited in it is lost unless sent again"
    log.get(NAME).error("camera.session_lost", reason=told)


def store_of(settings: CloudSettings, web: httpx2.AsyncClient) -> Store | None:
    if settings.broker_monitor_url is None:
        return None
    return Store(
        web,
        nats_url=secret(settings.broker_nats_url),
        monitor_url=settings.broker_monitor_url,
        bounds=logins.BOUNDS,
    )


def pace_of(settings: CloudSettings) -> Pace:
    return Pace(
        round_s=settings.camera_missing_s,
        timeout_s=settings.camera_timeout_s,
        resume_days=settings.camera_resume_days,
    )


class Intake:
    """Takes messages: commit, PUBACK, then whatever is due."""

    def __init__(self, pool: db.Pool, broker: mqtt.Client, pace: Pace) -> None:
        self._pool, self._broker, self._pace = pool, broker, pace
        self.attempts = Attempts("nothing is being committed")

    async def take(self, messages: list[mqtt.Message]) -> None:
        sent = [Sent(one.topic, one.payload, one.repeated) for one in messages]
        outcome = await self._until_committed(sent)
        crash.here("camera.after_commit")
        self._broker.ack(messages)
        crash.here("camera.after_puback")
        for code in outcome.failed:
            ENDED.labels(outcome=code.lower()).inc()
        TAKEN.labels(outcome="taken").inc(outcome.taken)
        TAKEN.labels(outcome="quarantined").inc(len(outcome.refused))
        kinds = Counter(one.kind for one in outcome.refused)
        for kind, count in kinds.items():
            REFUSED.labels(kind=kind).inc(count)
            # Whoever invents addresses must not fill the log: of those watch.py tells.
            if kind != "unknown":
                log.get(NAME).warning("camera.refused", reason=kind, count=count)

    async def _until_committed(self, sent: list[Sent]) -> Outcome:
        """Nothing is acknowledged before this returns, so it tries for as long as it takes."""
        backoff = Backoff(cap_s=5.0)
        before = cancelled_so_far()
        while True:
            try:
                with self.attempts:
                    return await intake.keep_in_halves(self._pool, sent, self._pace)
            except db.PASSING as error:
                log.get(NAME).warning("camera.database_away", error=db.first_line(error))
                end_if_cancelled(beyond=before)
                await backoff.wait()
