"""The door of the edge on a real broker and a real database."""

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import psycopg
import pytest

from farmiq.config import EdgeSettings
from farmiq.edge.arrival import accept
from farmiq.edge.ingress import handlers, service
from farmiq.edge.ingress.store import Outcome
from farmiq.edge.telemetry import handlers as telemetry
from farmiq.lab import stack
from farmiq.messages import receipt, topics
from farmiq.messages.bus import BusEvent
from farmiq.messages.envelope import read as read_envelope
from farmiq.messages.topics import Place
from farmiq.plumbing import db, http, ids
from farmiq.plumbing.messaging import mqtt
from tests.conftest import Database
from tests.support import databases
from tests.support.until import until

PLACE = Place("t-1", "f-1", "b-1", "d-1")


def message(event_id: UUID | None = None, **changes: Any) -> bytes:
    envelope = {
        "schema_version": "1.0",
        "event_id": str(event_id or ids.new()),
        "trace_id": "trace-1",
        "tenant_id": "t-1",
        "device_id": "d-1",
        "event_type": "telemetry.reading",
        "ts": datetime.now(UTC).isoformat(),
        "payload": {"metric_type": "temperature", "metric_value": 21.5, "unit": "C"},
    }
    return json.dumps({**envelope, **changes}).encode()


TOPIC = topics.telemetry(PLACE, "temperature")


def rows(database: Database, query: str) -> list[tuple[Any, ...]]:
    with databases.connected(database.admin_url) as connection:
        return connection.execute(query.encode()).fetchall()


@pytest.fixture
async def pool(edge_db: Database) -> AsyncIterator[db.Pool]:
    async with db.pool(edge_db.url, name="test") as opened:
        yield opened


class TestKeep:
    """The transaction itself."""

    @pytest.mark.req("DD-02")
    async def test_reading_is_in_its_table_the_outbox_and_the_dedupe(
        self, pool: db.Pool, edge_db: Database
    ) -> None:
        event_id = ids.new()
        outcome = await handlers.commit(pool, [(TOPIC, message(event_id))])
        assert outcome.new_count == 1
        assert rows(edge_db, "select id, metric_value, clock_suspect from telemetry_raw") == [
            (event_id, 21.5, False)
        ]
        owed = rows(edge_db, "select id, event_type, status, payload_json from sync_outbox")
        payload = {"metric_type": "temperature", "metric_value": 21.5, "unit": "C"}
        assert owed == [(event_id, "telemetry.ingested", "pending", payload)]
        assert rows(edge_db, "select event_id from ingress_dedupe") == [(event_id,)]

    @pytest.mark.req("DD-01", "DD-02", "SC-05")
    async def test_the_same_message_any_number_of_times_has_one_effect(
        self, pool: db.Pool, edge_db: Database
    ) -> None:
        raw = message()
        await handlers.commit(pool, [(TOPIC, raw), (TOPIC, raw)])
        outcome = await handlers.commit(pool, [(TOPIC, raw)] * 3)
        assert (outcome.new_count, len(outcome.stored)) == (0, 3)
        for table in ("telemetry_raw", "sync_outbox", "ingress_dedupe"):
            assert rows(edge_db, f"select count(*) from {table}") == [(1,)]  # noqa: S608
        assert rows(edge_db, "select count(*) from quarantine") == [(0,)]

    @pytest.mark.req("DB-17")
    async def test_what_a_device_tells_beside_its_reading_is_in_no_table_and_no_log(
        self, pool: db.Pool, edge_db: Database, capfd: pytest.CaptureFixture[str]
    ) -> None:
        """Tables have the documented columns. Keys of the payload stay in the event (C-109)."""
        person = "Somchai, 081 555 0199"
        beside = message(operator=person)
        inside = message(payload={"value": 20, "unit": "C", "by": {"name": person}})
        outcome = await handlers.commit(pool, [(TOPIC, beside), (TOPIC, inside)])
        assert outcome.new_count == 2
        tables = rows(edge_db, "select tablename from pg_tables where schemaname = 'public'")
        telling = {
            table: text.count(person)
            for (table,) in tables
            for (text,) in rows(edge_db, f"select t::text from {table} t")  # noqa: S608
            if person in text
        }
        assert telling == {"sync_outbox": 1}
        assert person not in "".join(capfd.readouterr())

    async def test_an_id_with_another_content_is_quarantined_not_dropped(
        self, pool: db.Pool, edge_db: Database
    ) -> None:
        event_id = ids.new()
        other = message(event_id, payload={"value": 99, "unit": "C"})
        await handlers.commit(pool, [(TOPIC, message(event_id)), (TOPIC, other)])
        outcome = await handlers.commit(pool, [(TOPIC, other)])
        assert len(outcome.rejected) == 1
        found = rows(edge_db, "select reasons[1], received_count from quarantine")
        assert [(reason.partition(":")[0], count) for reason, count in found] == [
            ("EVENT_ID_CONFLICT", 2)
        ]
        assert rows(edge_db, "select metric_value from telemetry_raw") == [(21.5,)]

    async def test_the_same_words_of_another_device_are_a_conflict_not_a_repeat(
        self, pool: db.Pool, edge_db: Database
    ) -> None:
        """Cloned firmware may make the same ids; nothing of the second may vanish."""
        event_id = ids.new()
        twin = topics.telemetry(Place("t-1", "f-1", "b-1", "d-2"), "temperature")
        await handlers.commit(pool, [(TOPIC, message(event_id))])
        outcome = await handlers.commit(pool, [(twin, message(event_id, device_id="d-2"))])
        assert len(outcome.rejected) == 1
        found = rows(edge_db, "select reasons[1] from quarantine")
        assert found[0][0].startswith("EVENT_ID_CONFLICT")

    async def test_an_id_of_another_tenant_is_quarantined(
        self, pool: db.Pool, edge_db: Database
    ) -> None:
        event_id = ids.new()
        await handlers.commit(pool, [(TOPIC, message(event_id))])
        foreign = topics.telemetry(Place("t-2", "f-1", "b-1", "d-1"), "temperature")
        await handlers.commit(pool, [(foreign, message(event_id, tenant_id="t-2"))])
        assert "another tenant" in rows(edge_db, "select reasons[1] from quarantine")[0][0]
        assert rows(edge_db, "select count(*) from telemetry_raw") == [(1,)]

    async def test_a_replay_older_than_the_dedupe_is_absorbed_by_the_outbox(
        self, pool: db.Pool, edge_db: Database
    ) -> None:
        raw = message()
        await handlers.commit(pool, [(TOPIC, raw)])
        with databases.connected(edge_db.admin_url) as connection:
            connection.execute("delete from ingress_dedupe")
        outcome = await handlers.commit(pool, [(TOPIC, raw)])
        assert (outcome.new_count, len(outcome.stored), outcome.rejected) == (0, 1, ())
        assert rows(edge_db, "select count(*) from telemetry_raw") == [(1,)]

    async def test_a_wrong_clock_is_kept_and_flagged(
        self, pool: db.Pool, edge_db: Database
    ) -> None:
        for ts in ("1970-01-01T00:00:00Z", "2100-01-01T00:00:00Z"):
            await handlers.commit(pool, [(TOPIC, message(ts=ts))])
        found = rows(edge_db, "select occurred_at, clock_suspect from telemetry_raw order by 1")
        assert [(at.year, suspect) for at, suspect in found] == [(1970, True), (2100, True)]

    @pytest.mark.req("WV-08", "WV-09")
    @pytest.mark.parametrize(
        ("topic", "raw", "reason"),
        [
            (TOPIC, b"not json", "not JSON"),
            (TOPIC, b"", "not JSON"),
            (TOPIC, b"[]", "expected an object"),
            (TOPIC, b"{}", "missing required field `event_id`"),
            (TOPIC, b"[" * 20_000, "nested deeper"),
            (TOPIC, message(schema_version="2.0"), "schema_version '2.0' is not understood"),
            (TOPIC, message(tenant_id="t-2"), "topic says tenant_id 't-1', envelope 't-2'"),
            (TOPIC, message(device_id="d-2"), "topic says device_id 'd-1', envelope 'd-2'"),
            (TOPIC, message(event_type="x"), "topic says event_type 'telemetry.reading'"),
            (TOPIC, message(ts="2025-01-01T00:00:00"), "timezone"),
            (TOPIC, message(payload={"unit": "C"}), "missing required field `metric_value`"),
            (TOPIC, message(payload={"value": "5", "unit": "C"}), "Expected `float`"),
            (TOPIC, message(trace_id="a\x00b"), "NUL"),
            ("iot/telemetry/t-1", message(), "not in the topic map"),
            ("iot/telemetry/t-1/f-1//d-1/temperature", message(), "topic level barnId"),
            (TOPIC.replace("temperature", "humidity"), message(), "topic says metric 'humidity'"),
        ],
    )
    async def test_bad_messages_go_to_quarantine_with_the_reason(
        self, pool: db.Pool, edge_db: Database, topic: str, raw: bytes, reason: str
    ) -> None:
        good = message()
        outcome = await handlers.commit(pool, [(topic, raw), (TOPIC, good)])
        assert (outcome.new_count, len(outcome.rejected)) == (1, 1)
        ((stored_topic, stored_raw, reasons),) = rows(
            edge_db, "select topic, raw, reasons from quarantine"
        )
        assert (stored_topic, bytes(stored_raw)) == (topic, raw)
        assert any(reason in each for each in reasons), reasons

    async def test_an_id_of_two_tenants_in_one_batch_stays_with_the_first(
        self, pool: db.Pool, edge_db: Database
    ) -> None:
        event_id = ids.new()
        foreign = topics.telemetry(Place("t-2", "f-1", "b-1", "d-1"), "temperature")
        outcome = await handlers.commit(
            pool,
            [(TOPIC, message(event_id)), (foreign, message(event_id, tenant_id="t-2"))],
        )
        assert (outcome.new_count, len(outcome.stored), len(outcome.rejected)) == (1, 1, 1)
        (kept,) = rows(edge_db, "select tenant_id from telemetry_raw")
        assert rows(edge_db, "select tenant_id from sync_outbox") == [kept]
        assert "another tenant" in rows(edge_db, "select reasons[1] from quarantine")[0][0]

    async def test_a_topic_longer_than_an_index_row_goes_to_quarantine(
        self, pool: db.Pool, edge_db: Database
    ) -> None:
        topic = "iot/telemetry/" + "".join(chr(97 + n * 7 % 26) for n in range(20_000))
        for _ in range(2):
            await handlers.commit(pool, [(topic, message()), (topic + "x", b"other")])
        found = rows(edge_db, "select length(topic), reasons[1] from quarantine")
        assert {reason for _, reason in found} == {"topic longer than 512 bytes"}

    @pytest.mark.parametrize("shape", [b'{"schema_version":%s}', b"%s", b'{"payload":%s}'])
    async def test_nesting_of_any_depth_is_refused_not_crashed_on(
        self, pool: db.Pool, edge_db: Database, shape: bytes
    ) -> None:
        deep = [shape % (b'{"a":' * n + b"1" + b"}" * n) for n in range(1, 1100, 3)]
        outcome = await handlers.commit(pool, [(TOPIC, raw) for raw in deep])
        assert len(outcome.rejected) == len(deep)
        assert rows(edge_db, "select count(*) from quarantine") == [(len(deep),)]

    async def test_all_problems_of_a_message_are_listed(
        self, pool: db.Pool, edge_db: Database
    ) -> None:
        raw = message(event_id=None, tenant_id="a/b", ts="yesterday", device_id=7)
        await handlers.commit(pool, [(TOPIC, raw)])
        ((reasons,),) = rows(edge_db, "select reasons from quarantine")
        assert len(reasons) == 4


@dataclass
class Gateway:
    settings: EdgeSettings
    broker: stack.Stack
    database: Database
    server: http.HttpServer
    task: "asyncio.Task[None]"

    async def publish(self, *messages: tuple[str, bytes]) -> None:
        url = self.broker.environment["FARMIQ_DEVICES_MQTT_URL"]
        async with mqtt.connected(
            url, client_id=f"d-{ids.new().hex}", persistent_session=False
        ) as link:
            await link.until_up()
            for topic, raw in messages:
                await link.publish(topic, raw)

    async def stored(self, count: int) -> None:
        await until(lambda: rows(self.database, "select count(*) from telemetry_raw") == [(count,)])


@pytest.fixture
async def gateway(
    broker: stack.Stack, edge_db: Database, tasks: asyncio.TaskGroup
) -> AsyncIterator[Gateway]:
    settings = EdgeSettings.load(
        {
            **broker.environment,
            "FARMIQ_EDGE_DB_URL": edge_db.url,
            "FARMIQ_CLOUD_URL": "http://127.0.0.1:9",
            "FARMIQ_EDGE_KEY_FILE": "none",
        }
    )
    server = http.HttpServer(title="test", version="0")
    task = tasks.create_task(service.run(settings, server))
    started = Gateway(settings, broker, edge_db, server, task)
    await until(lambda: "ingress.broker" in server.checks)
    await until(lambda: _ready(server))
    yield started
    task.cancel()


async def _ready(server: http.HttpServer) -> bool:
    return not await server.problems()


class TestService:
    """The loop around the handlers."""

    @pytest.mark.req("SC-04", "FB-17")
    async def test_what_a_device_publishes_is_stored_and_receipted(self, gateway: Gateway) -> None:
        url = gateway.broker.environment["FARMIQ_DEVICES_MQTT_URL"]
        good, bad = ids.new(), ids.new()
        async with mqtt.connected(
            url, client_id="d-1", topics=[topics.receipts(PLACE)], persistent_session=False
        ) as device:
            await device.until_up()
            await device.publish(TOPIC, message(good))
            await device.publish(TOPIC, message(bad, tenant_id="t-9"))
            stored: set[UUID] = set()
            refused: set[UUID] = set()
            while not (stored and refused):
                for arrived in await device.batch(max_messages=10, linger_s=0):
                    told = receipt.read(read_envelope(arrived.payload).payload)
                    stored |= set(told.event_ids)
                    refused |= {one.event_id for one in told.rejected}
        assert (stored, refused) == ({good}, {bad})
        await gateway.stored(1)

    async def test_nothing_is_acknowledged_while_the_database_is_away(
        self, gateway: Gateway, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The database refuses for a while; the message stays with the broker and then arrives."""
        refusals = 3
        keep = handlers.commit

        async def refusing(*args: Any) -> Outcome:
            nonlocal refusals
            if refusals:
                refusals -= 1
                raise psycopg.OperationalError("the database system is starting up")
            return await keep(*args)

        monkeypatch.setattr(handlers, "commit", refusing)
        await gateway.publish((TOPIC, message()))
        await gateway.stored(1)
        assert refusals == 0

    async def test_poison_message_is_quarantined_and_the_rest_is_stored(
        self, gateway: Gateway, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        poison = message(trace_id="poison")
        record = telemetry.record

        async def allergic(tx: db.Connection, arrivals: list[Any]) -> list[BusEvent]:
            if any(arrival.event.trace_id == "poison" for arrival in arrivals):
                await tx.execute("select 1/0")
            return await record(tx, arrivals)

        monkeypatch.setitem(handlers.HANDLERS, "telemetry.reading", (allergic,))
        await gateway.publish((TOPIC, message()), (TOPIC, poison), (TOPIC, message()))
        await gateway.stored(2)
        await until(lambda: rows(gateway.database, "select count(*) from quarantine") == [(1,)])
        ((raw, reasons),) = rows(gateway.database, "select raw, reasons from quarantine")
        assert bytes(raw) == poison
        assert "division by zero" in reasons[0]

    async def test_readiness_names_the_broker_when_it_is_gone_and_recovers(
        self, gateway: Gateway
    ) -> None:
        gateway.broker.kill("mqtt-edge")

        async def said() -> str | None:
            return (await gateway.server.problems()).get("ingress.broker")

        assert "broker" in str(await until(said))
        gateway.broker.restart("mqtt-edge")
        await until(lambda: _ready(gateway.server))
        await gateway.publish((TOPIC, message()))
        await gateway.stored(1)

    async def test_what_arrived_while_the_gateway_was_away_is_taken_when_it_is_back(
        self, gateway: Gateway, tasks: asyncio.TaskGroup
    ) -> None:
        gateway.task.cancel()
        await asyncio.wait([gateway.task])
        await gateway.publish(*[(TOPIC, message()) for _ in range(20)])
        assert rows(gateway.database, "select count(*) from telemetry_raw") == [(0,)]
        server = http.HttpServer(title="test", version="0")
        again = tasks.create_task(service.run(gateway.settings, server))
        await gateway.stored(20)
        again.cancel()


def test_reading_is_suspect_more_than_a_week_late_or_a_day_ahead() -> None:
    now, second = datetime(2025, 5, 5, tzinfo=UTC), timedelta(seconds=1)
    for late, suspect in (
        (timedelta(days=7), False),
        (timedelta(days=7) + second, True),
        (-timedelta(days=1), False),
        (-timedelta(days=1) - second, True),
    ):
        raw = message(ts=(now - late).isoformat())
        assert accept(TOPIC, raw, now=now).clock_suspect is suspect
