"""Ingress reads the broker's log: order, fencing, restored files, a full log, an old session."""

import asyncio
import contextlib
import json
import shutil
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import UUID

import httpx2
import pytest

from farmiq.config import EdgeSettings
from farmiq.edge import broker as edge_broker
from farmiq.edge.ingress import handlers, jobs, service, source
from farmiq.edge.ingress.store import Outcome
from farmiq.lab import stack
from farmiq.messages import topics
from farmiq.messages.topics import Place
from farmiq.plumbing import db, http, ids
from farmiq.plumbing.messaging import cursor, mqtt, nats, stream
from farmiq.plumbing.messaging.cursor import CursorMovedError
from farmiq.plumbing.messaging.stream import Position, Start
from tests.conftest import Database
from tests.support import databases
from tests.support.until import until

PLACES = [Place("t-1", "f-1", "b-1", f"d-{number}") for number in range(6)]


def reading(place: Place, event_id: UUID | None = None, *, value: float = 21.5) -> bytes:
    return json.dumps({
        "schema_version": "1.0", "event_id": str(event_id or ids.new()), "trace_id": "trace-1",
        "tenant_id": place.tenant_id, "device_id": place.device_id,
        "event_type": "telemetry.reading", "ts": datetime.now(UTC).isoformat(),
        "payload": {"metric_type": "temperature", "metric_value": value, "unit": "C"},
    }).encode()  # fmt: skip


def rows(database: Database, query: str) -> list[tuple[Any, ...]]:
    with databases.connected(database.admin_url) as connection:
        return connection.execute(query.encode()).fetchall()


def stored(database: Database) -> int:
    return int(rows(database, "select count(*) from telemetry_raw")[0][0])


def settings_of(broker: stack.Stack, database: Database, **more: str) -> EdgeSettings:
    return EdgeSettings.load({
        **broker.environment,
        "FARMIQ_EDGE_DB_URL": database.url,
        "FARMIQ_CLOUD_URL": "http://127.0.0.1:9",
        "FARMIQ_EDGE_KEY_FILE": "none",
        **more,
    })  # fmt: skip


@asynccontextmanager
async def gateway(settings: EdgeSettings) -> AsyncIterator[http.HttpServer]:
    server = http.HttpServer(title="test", version="0")
    task = asyncio.create_task(service.run(settings, server))

    async def ready() -> bool:
        return not await server.problems()

    try:
        await until(lambda: "ingress.broker" in server.checks)
        await until(ready)
        yield server
    finally:
        task.cancel()
        await asyncio.wait([task])


async def publish(broker: stack.Stack, *messages: tuple[str, bytes]) -> None:
    url = broker.environment["FARMIQ_DEVICES_MQTT_URL"]
    async with mqtt.connected(
        url, client_id=f"d-{ids.new().hex}", persistent_session=False
    ) as link:
        await link.until_up()
        await asyncio.gather(*[link.publish(topic, raw) for topic, raw in messages])


def readings(count: int) -> list[tuple[str, bytes]]:
    places = [PLACES[number % len(PLACES)] for number in range(count)]
    return [(topics.telemetry(place, "temperature"), reading(place)) for place in places]


async def log_info(broker: stack.Stack) -> stream.Info:
    async with nats.connected(broker.environment["FARMIQ_EDGE_INGRESS_URL"]) as server:
        return await stream.info(server, topics.LOG)


async def restart_with(broker: stack.Stack, change: Callable[[], object]) -> None:
    await asyncio.to_thread(broker.kill, "mqtt-edge")
    change()
    await asyncio.to_thread(broker.restart, "mqtt-edge")


def store_of(broker: stack.Stack) -> Path:
    (store,) = broker.root.rglob("jetstream")
    return store


async def test_restored_broker_files_skip_no_message(
    broker: stack.Stack, edge_db: Database, tmp_path: Path
) -> None:
    """Numbers are used again: a cursor that knew the number alone would skip the new messages."""
    copy = tmp_path / "copy"
    async with gateway(settings_of(broker, edge_db)):
        await publish(broker, *readings(10))
        await until(lambda: stored(edge_db) == 10)
    store = store_of(broker)
    await restart_with(broker, lambda: shutil.copytree(store, copy))
    async with gateway(settings_of(broker, edge_db)):
        await publish(broker, *readings(10))
        await until(lambda: stored(edge_db) == 20)

    def restore() -> None:
        shutil.rmtree(store)
        shutil.copytree(copy, store)

    await restart_with(broker, restore)
    assert (await log_info(broker)).last_seq == 10
    await publish(broker, *readings(15))
    async with gateway(settings_of(broker, edge_db)):
        await until(lambda: stored(edge_db) == 35)
    assert rows(edge_db, "select count(*) from quarantine") == [(0,)]


async def test_messages_of_an_mqtt_session_are_stored_when_the_log_is_read_first(
    broker: stack.Stack, edge_db: Database
) -> None:
    """A site that is upgraded: what waited in the old session is not lost, nor stored twice."""
    before = settings_of(
        broker, edge_db, FARMIQ_EDGE_INGRESS_URL=broker.environment["FARMIQ_EDGE_MQTT_URL"]
    )
    async with gateway(before):
        await publish(broker, *readings(5))
        await until(lambda: stored(edge_db) == 5)
    await publish(broker, *readings(20))
    assert stored(edge_db) == 5

    async with gateway(settings_of(broker, edge_db)):
        await until(lambda: stored(edge_db) == 25)
        await publish(broker, *readings(7))
        await until(lambda: stored(edge_db) == 32)
    async with nats.connected(broker.environment["FARMIQ_EDGE_INGRESS_URL"]) as server:
        queue = await stream.request(server, "STREAM.INFO.$MQTT_msgs", {})
    assert queue["state"]["messages"] == 0
    assert rows(edge_db, "select count(*) from quarantine") == [(0,)]


async def test_two_gateways_at_once_store_each_message_once(
    broker: stack.Stack, edge_db: Database, free_port: Callable[[], int]
) -> None:
    """Both believe that it is their turn: only one commits what both have read."""
    ports = [str(free_port()), str(free_port())]
    first, second = (settings_of(broker, edge_db, FARMIQ_EDGE_HTTP_PORT=port) for port in ports)
    sent = 0

    def takeovers() -> int:
        return int(rows(edge_db, "select max(fencing_token) from broker_cursors")[0][0]) - 1

    async with gateway(first), asyncio.TaskGroup() as group:
        standby = group.create_task(service.run(second, http.HttpServer(title="test", version="0")))
        while takeovers() < 3:
            # The lease ends while its holder still works: the other one takes it.
            with databases.connected(edge_db.admin_url) as connection:
                connection.execute("update leases set expires_at = fn_now()")
            await publish(broker, *readings(50))
            sent += 50
        await until(lambda: stored(edge_db) == sent)
        standby.cancel()
    assert rows(edge_db, "select count(*) from sync_outbox") == [(sent,)]
    assert rows(edge_db, "select count(*) from quarantine") == [(0,)]


async def test_stored_messages_are_purged_but_for_the_one_at_the_cursor(
    broker: stack.Stack, edge_db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jobs, "LOG_EVERY_S", 0.1)
    monkeypatch.setattr(source, "IDLE_LANE_S", 0.05)
    settings = settings_of(broker, edge_db, INGRESS_LOG_HOLD_MINUTES="0")
    async with gateway(settings):
        await publish(broker, *readings(50))
        await until(lambda: stored(edge_db) == 50)

        async def purged() -> bool:
            return (await log_info(broker)).messages == 1

        # Also the cursors of lanes that got no message move to the end of the log.
        await until(purged)
    async with gateway(settings):
        await publish(broker, *readings(5))
        await until(lambda: stored(edge_db) == 55)
    assert rows(edge_db, "select count(*) from alerts where kind = 'broker.log_gap'") == [(0,)]


async def test_restored_database_reads_the_log_again_and_tells_of_the_gap(
    broker: stack.Stack, edge_db: Database
) -> None:
    settings = settings_of(broker, edge_db)
    async with gateway(settings):
        await publish(broker, *readings(30))
        await until(lambda: stored(edge_db) == 30)
    async with stream.reader(
        broker.environment["FARMIQ_EDGE_INGRESS_URL"], stream=topics.LOG
    ) as reader:
        await reader.start(None)
        await reader.purge(below_seq=21)
    with databases.connected(edge_db.admin_url) as connection:  # as after a restore of message 10
        connection.execute("update broker_cursors set seq = 10")
        connection.execute("truncate telemetry_raw, sync_outbox, ingress_dedupe cascade")
    async with gateway(settings):
        await until(lambda: stored(edge_db) == 10)
    ((message,),) = rows(edge_db, "select message from alerts where kind = 'broker.log_gap'")
    assert message.startswith("10 messages that the broker took are neither in this database")


async def test_gap_behind_the_slowest_lane_raises_an_alert(
    broker: stack.Stack, edge_db: Database
) -> None:
    """The cursor of one lane is where it was, but the log begins behind that of another."""
    settings = settings_of(broker, edge_db)
    async with gateway(settings):
        await publish(broker, *readings(30))
        await until(lambda: stored(edge_db) == 30)
    async with stream.reader(
        broker.environment["FARMIQ_EDGE_INGRESS_URL"], stream=topics.LOG
    ) as reader:
        await reader.start(None)
        await reader.purge(below_seq=21)
    with databases.connected(edge_db.admin_url) as connection:
        connection.execute("update broker_cursors set seq = 5 where lane = 0")
        moved = connection.execute(
            "update broker_cursors set seq = seq where lane = 1 returning seq"
        )
        assert moved.fetchone() == (30,)
    async with gateway(settings):
        await publish(broker, *readings(1))
        await until(lambda: stored(edge_db) == 31)
    ((message,),) = rows(edge_db, "select message from alerts where kind = 'broker.log_gap'")
    assert message.startswith("15 messages that the broker took are neither in this database")


async def test_frozen_broker_is_named_and_nothing_is_lost_or_stored_twice(
    broker: stack.Stack, edge_db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream, "HEARTBEAT_S", 0.1)
    monkeypatch.setattr(stream, "SILENT_S", 0.5)
    async with gateway(settings_of(broker, edge_db)) as server:

        async def is_named() -> bool:
            return "ingress.broker" in await server.problems()

        await publish(broker, *readings(20))
        await until(lambda: stored(edge_db) == 20)
        broker.freeze("mqtt-edge")
        await until(is_named)
        broker.thaw("mqtt-edge")
        await publish(broker, *readings(20))
        await until(lambda: stored(edge_db) == 40)
    assert rows(edge_db, "select count(*) from sync_outbox") == [(40,)]


async def test_full_log_refuses_senders_until_it_is_stored_and_tells_of_it(
    broker: stack.Stack, edge_db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was acknowledged is stored; the rest is sent again by its sender."""
    monkeypatch.setattr(jobs, "LOG_EVERY_S", 0.1)
    settings = settings_of(broker, edge_db)
    async with gateway(settings):
        await publish(broker, *readings(1))
        await until(lambda: stored(edge_db) == 1)
    async with nats.connected(broker.environment["FARMIQ_EDGE_BROKER_NATS_URL"]) as server:
        config = (await stream.request(server, f"STREAM.INFO.{topics.LOG}", {}))["config"]
        await stream.request(server, f"STREAM.UPDATE.{topics.LOG}", {**config, "max_bytes": 40_000})
    acknowledged = 0
    waiting = readings(200)
    url = broker.environment["FARMIQ_DEVICES_MQTT_URL"]
    async with mqtt.connected(url, client_id="filling", persistent_session=False) as link:
        await link.until_up()
        with contextlib.suppress(mqtt.DisconnectedError):
            for topic, raw in waiting:
                await link.publish(topic, raw)
                acknowledged += 1
    assert 20 < acknowledged < 200

    # The gateway gives the log its room again; without that it purges what it has stored.
    monkeypatch.setattr("farmiq.edge.broker.store", lambda *_: None)
    async with gateway(settings):
        await until(lambda: stored(edge_db) == acknowledged + 1)
        kinds = "select count(*) from alerts where kind = 'broker.log_full'"
        await until(lambda: rows(edge_db, kinds) == [(1,)])
        for message in waiting[acknowledged:]:
            await until_published(broker, message)
        await until(lambda: stored(edge_db) == 201)
        open_ones = f"{kinds} and closed_at is null"
        await until(lambda: rows(edge_db, open_ones) == [(0,)])


async def until_published(broker: stack.Stack, message: tuple[str, bytes]) -> None:
    while True:
        try:
            await publish(broker, message)
        except mqtt.DisconnectedError:
            continue
        return


async def test_readings_of_a_device_are_stored_in_the_order_sent(
    broker: stack.Stack, edge_db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also while the broker is killed: of each device the values only grow."""
    seen: dict[str, list[int]] = {}
    keep = handlers.commit

    async def watched(pool: db.Pool, sent: list[tuple[str, bytes]], *more: Any) -> Outcome:
        outcome = await keep(pool, sent, *more)
        for topic, raw in sent:
            value = int(json.loads(raw)["payload"]["metric_value"])
            seen.setdefault(topic, []).append(value)
        return outcome

    monkeypatch.setattr(handlers, "commit", watched)
    url = broker.environment["FARMIQ_DEVICES_MQTT_URL"]

    async def device(place: Place) -> None:
        topic = topics.telemetry(place, "temperature")
        name = f"d-{place.device_id}"
        async with mqtt.connected(url, client_id=name, persistent_session=False) as link:
            for value in range(60):
                raw = reading(place, value=value)
                while True:
                    await link.until_up()
                    try:
                        await link.publish(topic, raw)
                    except mqtt.DisconnectedError:
                        continue
                    break

    async with gateway(settings_of(broker, edge_db)), asyncio.TaskGroup() as group:
        for place in PLACES:
            group.create_task(device(place))
        await until(lambda: stored(edge_db) > 60)
        await restart_with(broker, lambda: None)
        await until(lambda: stored(edge_db) == 60 * len(PLACES))
    for values in seen.values():
        assert values == sorted(values)


async def test_messages_of_qos_0_are_stored_while_ingress_listens(
    broker: stack.Stack, edge_db: Database
) -> None:
    """As clients that know no QoS 1 send; those beside them with QoS 1 are stored once."""
    url = broker.environment["FARMIQ_DEVICES_MQTT_URL"]
    async with (
        gateway(settings_of(broker, edge_db)),
        mqtt.connected(url, client_id="plain", persistent_session=False) as link,
    ):
        await link.until_up()
        for number, (topic, raw) in enumerate(readings(40)):
            await link.publish(topic, raw, qos=number % 2)
        await until(lambda: stored(edge_db) == 40)
    async with gateway(settings_of(broker, edge_db)):
        await publish(broker, *readings(5))
        await until(lambda: stored(edge_db) == 45)
    assert rows(edge_db, "select sum(received_count) from quarantine") == [(None,)]


@pytest.fixture
async def pool(edge_db: Database) -> AsyncIterator[db.Pool]:
    async with db.pool(edge_db.url, name="test") as opened:
        yield opened


class TestCursor:
    async def test_two_gateways_that_claim_at_once_go_on_where_the_last_one_was(
        self, edge_db: Database, pool: db.Pool
    ) -> None:
        async with db.transaction(pool) as tx:
            lanes = await cursor.claim(tx, "S", lanes=2)
            await cursor.restart(tx, lanes, Start("made", 1000))
        async with db.pool(edge_db.url, name="other") as other:

            async def claim(source: db.Pool) -> list[cursor.Lane]:
                async with db.transaction(source) as tx:
                    return await cursor.claim(tx, "S", lanes=2)

            claimed = await asyncio.gather(*[claim(each) for each in (pool, other) * 3])
        assert {lane.position for lanes in claimed for lane in lanes} == {Position("made", 1000, 0)}
        assert sorted(lanes[0].fencing_token for lanes in claimed) == [2, 3, 4, 5, 6, 7]

    async def test_gateway_that_was_taken_over_from_restarts_nothing(self, pool: db.Pool) -> None:
        async with db.transaction(pool) as tx:
            old = await cursor.claim(tx, "S", lanes=1)
        async with db.transaction(pool) as tx:
            (new,) = await cursor.claim(tx, "S", lanes=1)
            await cursor.advance(tx, new, seq=1000, stored_at_ns=1)
        with pytest.raises(CursorMovedError):
            async with db.transaction(pool) as tx:
                await cursor.restart(tx, old, Start("made", 10))
        assert await _seq(pool) == 1000

    async def test_gateway_that_was_taken_over_from_moves_nothing(self, pool: db.Pool) -> None:
        async with db.transaction(pool) as tx:
            old = await cursor.claim(tx, "S", lanes=1)
        async with db.transaction(pool) as tx:
            (new,) = await cursor.claim(tx, "S", lanes=1)
        with pytest.raises(CursorMovedError):
            async with db.transaction(pool) as tx:
                await cursor.advance(tx, old[0], seq=5, stored_at_ns=1)
        async with db.transaction(pool) as tx:
            await cursor.advance(tx, new, seq=5, stored_at_ns=1)

    async def test_cursor_moves_from_where_it_was_only(self, pool: db.Pool) -> None:
        async with db.transaction(pool) as tx:
            (lane,) = await cursor.claim(tx, "S", lanes=1)
            await cursor.advance(tx, lane, seq=5, stored_at_ns=1)
        with pytest.raises(CursorMovedError):
            async with db.transaction(pool) as tx:
                await cursor.advance(tx, lane, seq=6, stored_at_ns=2)

    async def test_other_number_of_lanes_begins_at_the_slowest(self, pool: db.Pool) -> None:
        async with db.transaction(pool) as tx:
            lanes = await cursor.claim(tx, "S", lanes=2)
            await cursor.restart(tx, lanes, Start("made", 3))
            await cursor.advance(tx, lanes[1], seq=9, stored_at_ns=4)
        async with db.transaction(pool) as tx:
            again = await cursor.claim(tx, "S", lanes=3)
        assert [lane.position for lane in again] == [Position("made", 3, 0)] * 3


async def _seq(pool: db.Pool) -> int:
    async with db.transaction(pool) as tx:
        return await cursor.stored_seq(tx, "S")


async def test_purge_after_the_broker_lost_its_files_removes_nothing_unread(
    broker: stack.Stack, edge_db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was stored of the old stream has greater numbers than the new one."""
    monkeypatch.setattr(jobs, "LOG_EVERY_S", 0.1)
    async with gateway(settings_of(broker, edge_db, INGRESS_LOG_HOLD_MINUTES="0.02")):
        await publish(broker, *readings(60))
        await until(lambda: stored(edge_db) == 60)
        await restart_with(broker, lambda: shutil.rmtree(store_of(broker)))
        # The registry makes the log anew; here ingress alone runs.
        async with (
            db.pool(edge_db.url, name="test") as pool,
            httpx2.AsyncClient(trust_env=False) as web,
        ):
            streams = edge_broker.store(settings_of(broker, edge_db), pool, web)
            assert streams is not None
            await streams.look()
            assert streams.problem is None
        await publish(broker, *readings(4))
        await until(lambda: stored(edge_db) == 64)
        with databases.connected(edge_db.admin_url) as owner:
            owner.execute("lock table telemetry_raw in exclusive mode")
            await publish(broker, *readings(20))
            before = (await log_info(broker)).last_seq
            looked = asyncio.get_running_loop().time()
            await until(lambda: asyncio.get_running_loop().time() > looked + 3)
            info = await log_info(broker)
        assert (info.last_seq, info.first_seq <= before - 19) == (before, True)
        await until(lambda: stored(edge_db) == 84)


async def test_log_that_has_no_room_leaves_the_queue_as_it_was(
    broker: stack.Stack, edge_db: Database
) -> None:
    """An operator's own stream has reserved the room: the site goes on by its session."""
    session = settings_of(
        broker, edge_db, FARMIQ_EDGE_INGRESS_URL=broker.environment["FARMIQ_EDGE_MQTT_URL"]
    )
    async with gateway(session):
        async with nats.connected(broker.environment["FARMIQ_EDGE_BROKER_NATS_URL"]) as server:
            own = {"name": "OWN", "subjects": ["own.>"], "storage": "file", "max_bytes": 2 * 2**30}
            await stream.request(server, "STREAM.CREATE.OWN", own)
        async with (
            db.pool(edge_db.url, name="test") as pool,
            httpx2.AsyncClient(trust_env=False) as web,
        ):
            streams = edge_broker.store(settings_of(broker, edge_db), pool, web)
            assert streams is not None
            await streams.look()
            assert "storage" in str(streams.problem)
            assert not streams.is_bounded.is_set()
        await publish(broker, *readings(5))
        await until(lambda: stored(edge_db) == 5)
