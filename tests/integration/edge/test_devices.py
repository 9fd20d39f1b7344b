"""Devices on a real database: who is let in, how they are, what they are told, who may ask."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any
from uuid import UUID

import httpx2
import pytest

from farmiq.config import EdgeSettings
from farmiq.edge import api_keys, registry
from farmiq.edge.arrival import accept
from farmiq.edge.devices import api, handlers, registration, rules, store
from farmiq.edge.devices import service as devices
from farmiq.edge.devices.device import InvalidDeviceError
from farmiq.edge.ingress import handlers as intake
from farmiq.edge.ingress import service
from farmiq.edge.registry import Registry
from farmiq.lab import stack
from farmiq.messages import bus, receipt, topics
from farmiq.messages.envelope import read as read_envelope
from farmiq.messages.topics import Place, SessionTopic
from farmiq.plumbing import db, http, ids
from farmiq.plumbing.messaging import mqtt
from tests.conftest import Database
from tests.support import databases
from tests.support.devices import at
from tests.support.until import until

PLACE = Place("t-1", "f-1", "b-1", "d-1")
NEW = Place("t-1", "f-1", "b-1", "new.1:x")


def rows(database: Database, query: str) -> list[tuple[Any, ...]]:
    with databases.connected(database.admin_url) as connection:
        return connection.execute(query.encode()).fetchall()


def move_clock(database: Database, ahead: timedelta) -> None:
    with databases.connected(database.admin_url) as connection:
        connection.execute(
            "insert into test_clock (ahead) values (%s) "
            "on conflict (only_row) do update set ahead = excluded.ahead",
            (ahead,),
        )


def said(
    kind: str, payload: dict[str, Any], *, place: Place = PLACE, event_id: UUID | None = None
) -> bytes:
    return json.dumps(
        {
            "schema_version": "1.0",
            "event_id": str(event_id or ids.new()),
            "trace_id": "trace-1",
            "tenant_id": place.tenant_id,
            "device_id": place.device_id,
            "event_type": kind,
            "ts": datetime.now(UTC).isoformat(),
            "payload": payload,
        }
    ).encode()


def reading(place: Place = PLACE) -> tuple[str, bytes]:
    raw = said("telemetry.reading", {"value": 21.5, "unit": "C"}, place=place)
    return topics.telemetry(place, "temperature"), raw


def status(state: str, *, place: Place = PLACE, **more: Any) -> tuple[str, bytes]:
    event_id = more.pop("event_id", None)
    payload = {"state": state, "last_seen_at": "2025-01-02T10:00:00Z", **more}
    return topics.status(place), said("device.status", payload, place=place, event_id=event_id)


@pytest.fixture
async def pool(edge_db: Database) -> AsyncIterator[db.Pool]:
    async with db.pool(edge_db.url, name="test") as opened:
        yield opened


async def add(pool: db.Pool, place: Place, **options: Any) -> registration.Credentials:
    async with db.transaction(pool) as tx:
        return await registration.add(tx, at(place, **options), actor="test")


async def revoke(pool: db.Pool, place: Place) -> None:
    async with db.transaction(pool) as tx:
        await registration.revoke(tx, (place.tenant_id, place.device_id), actor="test")


class TestDoor:
    """C-02: the topic against the registry."""

    @pytest.mark.parametrize(
        "place",
        [
            Place("t-1", "f-1", "b-1", "stranger"),
            Place("t-1", "f-1", "b-2", "d-1"),
            Place("t-1", "f-2", "b-1", "d-1"),
            Place("t-9", "f-1", "b-1", "d-1"),
        ],
    )
    async def test_whoever_is_not_where_it_is_registered_is_quarantined_with_an_alert(
        self, pool: db.Pool, edge_db: Database, place: Place
    ) -> None:
        outcome = await intake.commit(pool, [reading(place), reading()])
        assert (outcome.new_count, len(outcome.rejected)) == (1, 1)
        ((why,),) = rows(edge_db, "select reasons[1] from quarantine")
        assert why.startswith("NOT_REGISTERED: ")
        assert rows(edge_db, "select device_id from telemetry_raw") == [("d-1",)]
        assert rows(edge_db, "select severity, seen_count from alerts") == [("security", 1)]

    async def test_a_station_speaks_through_its_own_device_only(self, pool: db.Pool) -> None:
        await add(pool, NEW, kind="station", station_id="s.1")
        where = SessionTopic("t-1", "f-1", "b-1", "s.1", ids.new(), "weighvision.weight.recorded")
        arrivals = [
            accept(
                topics.session(where),
                said(where.event_type, {"weight_kg": 80.5}, place=place),
                now=datetime.now(UTC),
            )
            for place in (PLACE, NEW)
        ]
        async with db.transaction(pool) as tx:
            refused, let_in = await Registry().problems(tx, arrivals)
        assert "does not stand at station 's.1'" in (refused or "")
        assert let_in is None

    async def test_a_device_that_was_just_added_is_let_in_at_once(self, pool: db.Pool) -> None:
        copy = Registry()
        refused = await intake.commit(pool, [reading(NEW)], copy)
        assert refused.new_count == 0
        await add(pool, NEW)
        assert (await intake.commit(pool, [reading(NEW)], copy)).new_count == 1

    async def test_a_revoked_device_is_refused_when_the_copy_is_a_second_old(
        self, pool: db.Pool, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(registry, "REFRESH_S", 3600.0)
        copy = Registry()
        assert (await intake.commit(pool, [reading()], copy)).new_count == 1
        await revoke(pool, PLACE)
        assert (await intake.commit(pool, [reading()], copy)).new_count == 1
        monkeypatch.setattr(registry, "REFRESH_S", 0.0)
        outcome = await intake.commit(pool, [reading()], copy)
        assert "was revoked" in outcome.rejected[0].reasons[0]

    async def test_a_device_that_was_moved_is_let_in_at_its_new_place(self, pool: db.Pool) -> None:
        copy, there = Registry(), Place("t-1", "f-1", "b-7", "d-1")
        assert (await intake.commit(pool, [reading()], copy)).new_count == 1
        await revoke(pool, PLACE)
        await add(pool, there)
        assert (await intake.commit(pool, [reading(there)], copy)).new_count == 1

    async def test_registry_that_was_not_read_yet_rejects_nothing(self, pool: db.Pool) -> None:
        copy = Registry()

        class Away(Exception):  # noqa: N818
            pass

        class Nothing:
            async def execute(self, *_: Any) -> Any:
                raise Away

        arrival = accept(*reading(), now=datetime.now(UTC))
        with pytest.raises(Away):
            await copy.problems(Nothing(), [arrival])  # type: ignore[arg-type]
        assert (await intake.commit(pool, [reading()], copy)).new_count == 1

    async def test_being_heard_is_written_down_seldom(
        self, pool: db.Pool, edge_db: Database
    ) -> None:
        copy = Registry()
        for _ in range(20):
            await intake.commit(pool, [reading(), reading()], copy)
        (state,) = rows(edge_db, "select state, since = last_seen_at from device_state")
        assert state == ("online", True)


class TestStatus:
    """C-103: changes travel, heartbeats do not."""

    async def test_status_change_goes_to_the_outbox_and_a_heartbeat_does_not(
        self, pool: db.Pool, edge_db: Database
    ) -> None:
        copy = Registry()
        for state in ("online", "online", "error", "error", "offline", "online"):
            await intake.commit(pool, [status(state, battery_v=3.9)], copy)
        owed = rows(
            edge_db,
            "select payload_json->>'state' from sync_outbox where event_type = 'device.status' "
            "order by created_at, id",
        )
        assert [state for (state,) in owed] == ["online", "error", "offline", "online"]
        found = rows(edge_db, "select state, said_state, told_state, battery_v from device_state")
        assert found == [("online", "online", "online", 3.9)]

    async def test_status_changes_of_one_batch_go_to_the_outbox_in_order(
        self, pool: db.Pool, edge_db: Database
    ) -> None:
        sent = [status(state) for state in ("online", "offline", "online", "online", "error")]
        await intake.commit(pool, sent)
        owed = [UUID(str(row[0])) for row in rows(edge_db, "select id from sync_outbox")]
        assert len(owed) == 4
        for event in rows(edge_db, "select payload_json from sync_outbox"):
            assert event[0]["state"] in ("online", "offline", "error")

    async def test_a_retained_status_that_comes_again_has_no_second_effect(
        self, pool: db.Pool, edge_db: Database
    ) -> None:
        """Not even when the dedupe has forgotten it: the device may be dead for days."""
        retained = status("online")
        await intake.commit(pool, [retained])
        before = rows(edge_db, "select * from device_state")
        await intake.commit(pool, [retained])
        with databases.connected(edge_db.admin_url) as connection:
            connection.execute("delete from ingress_dedupe")
            connection.execute("truncate sync_outbox")
        move_clock(edge_db, timedelta(days=5))
        await intake.commit(pool, [retained])
        assert rows(edge_db, "select * from device_state") == before
        assert rows(edge_db, "select count(*) from sync_outbox") == [(0,)]

    async def test_dropped_events_are_in_the_loss_ledger_and_the_outbox(
        self, pool: db.Pool, edge_db: Database
    ) -> None:
        payload = {"class": "telemetry", "count": 12, "first_seq": 1, "last_seq": 12, "reason": "x"}
        raw = said("device.buffer.dropped", payload)
        for _ in range(2):
            await intake.commit(pool, [(topics.event(PLACE, "device.buffer.dropped"), raw)])
        assert rows(edge_db, "select device_id, count from loss_ledger") == [("d-1", 12)]
        assert rows(edge_db, "select event_type from sync_outbox") == [("device.buffer.dropped",)]

    async def test_a_device_clock_moves_no_timer(self, pool: db.Pool, edge_db: Database) -> None:
        topic, raw = status("online")
        odd = json.loads(raw) | {"ts": "1970-01-01T00:00:00Z"}
        await intake.commit(pool, [(topic, json.dumps(odd).encode())])
        await devices.check_liveness(pool)
        assert rows(edge_db, "select state from device_state") == [("online",)]


class TestLiveness:
    """What time does."""

    async def test_silence_makes_late_offline_and_any_message_brings_it_back(
        self, pool: db.Pool, edge_db: Database
    ) -> None:
        copy = Registry()
        await intake.commit(pool, [reading()], copy)
        seen = []
        for ahead_s in (0, 60, 121, 240, 301, 302):
            move_clock(edge_db, timedelta(seconds=ahead_s))
            await devices.check_liveness(pool)
            seen += rows(edge_db, "select state from device_state")
        assert [state for (state,) in seen] == [
            "online", "online", "late", "late", "offline", "offline",
        ]  # fmt: skip
        await intake.commit(pool, [reading()], Registry())
        await devices.check_liveness(pool)
        owed = rows(
            edge_db,
            "select tenant_id, farm_id, barn_id, device_id, payload_json, trace_id, occurred_at, "
            "id from sync_outbox where event_type = 'device.status' order by occurred_at",
        )
        assert [row[4]["state"] for row in owed] == ["online", "offline", "online"]
        assert {row[:4] for row in owed} == {("t-1", "f-1", "b-1", "d-1")}
        assert [(row[0]) for row in rows(edge_db, "select state from device_state")] == ["online"]

    async def test_what_the_timer_says_is_a_right_event_of_the_bus(self, pool: db.Pool) -> None:
        await intake.commit(pool, [reading()])
        await devices.check_liveness(pool)
        async with db.transaction(pool) as tx:
            _, ((device, life),) = await store.all_liveness(tx)
        event = handlers.status_event(
            device, "offline", last_seen_at=life.last_seen_at, now=life.since
        )
        assert bus.read(bus.write(event)).event_type == "device.status"

    async def test_second_liveness_check_sends_no_event(
        self, pool: db.Pool, edge_db: Database
    ) -> None:
        await intake.commit(pool, [reading()])
        await devices.check_liveness(pool)
        assert await devices.check_liveness(pool) == {"changes": 0}
        query = "select count(*) from sync_outbox where event_type = 'device.status'"
        assert rows(edge_db, query) == [(1,)]

    async def test_a_last_will_is_offline_at_once_and_life_after_it_is_online(
        self, pool: db.Pool, edge_db: Database
    ) -> None:
        copy = Registry()
        await intake.commit(pool, [status("online"), reading()], copy)
        await intake.commit(pool, [status("offline")], copy)
        await devices.check_liveness(pool)
        assert rows(edge_db, "select state from device_state") == [("offline",)]
        await intake.commit(pool, [reading()], copy)
        await devices.check_liveness(pool)
        assert rows(edge_db, "select state from device_state") == [("online",)]

    async def test_whoever_is_heard_while_we_look_is_left_for_the_next_round(
        self, pool: db.Pool, edge_db: Database
    ) -> None:
        await intake.commit(pool, [reading()])
        async with db.transaction(pool) as tx:
            _, ((device, before),) = await store.all_liveness(tx)
        move_clock(edge_db, timedelta(seconds=500))
        await intake.commit(pool, [reading()], Registry())
        after = rules.after_silence(
            before, heartbeat_s=60, now=before.since + timedelta(seconds=500)
        )
        async with db.transaction(pool) as tx:
            assert not await store.store_silence(tx, device.key, before, after)

    async def test_a_device_that_is_being_written_is_left_for_the_next_round(
        self, pool: db.Pool, edge_db: Database
    ) -> None:
        """Two connections, interleaved: the look neither waits for ingress nor blocks it."""
        await intake.commit(pool, [reading()])
        move_clock(edge_db, timedelta(seconds=500))
        async with db.transaction(pool) as ingress:
            await store.seen(ingress, [("t-1", "d-1")])
            assert await devices.check_liveness(pool) == {"changes": 0}
        assert rows(edge_db, "select state, told_state from device_state") == [("online", None)]
        assert await devices.check_liveness(pool) == {"changes": 1}

    async def test_a_revoked_device_is_not_watched(self, pool: db.Pool, edge_db: Database) -> None:
        await intake.commit(pool, [reading()])
        await devices.check_liveness(pool)
        await revoke(pool, PLACE)
        move_clock(edge_db, timedelta(days=1))
        assert await devices.check_liveness(pool) == {"changes": 0}


class TestRevocations:
    """The cloud hears who was revoked and who was registered again; devices cannot say it."""

    async def test_revocation_and_registration_are_each_told_to_the_cloud_once(
        self, pool: db.Pool, edge_db: Database
    ) -> None:
        told = (
            "select device_id, payload_json->>'state', payload_json->'revoked' from sync_outbox "
            "where event_type = 'device.status' order by occurred_at"
        )
        assert await devices.send_revocations(pool) == {"changes": 0}
        await revoke(pool, PLACE)
        for _ in range(2):
            await devices.send_revocations(pool)
        assert rows(edge_db, told) == [("d-1", "offline", True)]
        await add(pool, PLACE)
        for _ in range(2):
            await devices.send_revocations(pool)
        assert rows(edge_db, told) == [("d-1", "offline", True), ("d-1", "offline", False)]

    async def test_looking_for_revocations_is_no_change_of_the_registry(
        self, pool: db.Pool, edge_db: Database
    ) -> None:
        before = rows(edge_db, "select version from devices_version")
        await devices.send_revocations(pool)
        assert rows(edge_db, "select version from devices_version") == before

    async def test_a_device_that_says_it_is_revoked_is_refused(self, pool: db.Pool) -> None:
        outcome = await intake.commit(pool, [status("offline", revoked=True)])
        assert "`revoked` is for the edge to say" in outcome.rejected[0].reasons[0]


async def test_how_a_device_was_is_forgotten_a_while_after_it_was_revoked(
    pool: db.Pool, edge_db: Database
) -> None:
    await add(pool, NEW)
    await intake.commit(pool, [reading(), reading(NEW)])
    await revoke(pool, NEW)
    for days, left in ((89, 2), (91, 1)):
        move_clock(edge_db, timedelta(days=days))
        await devices.purge_states(pool, days=90)
        assert rows(edge_db, "select count(*) from device_state") == [(left,)]
    assert rows(edge_db, "select device_id from device_state") == [("d-1",)]


class Wire:
    """Stands where the broker's client stands, to look at what happens while it publishes."""

    def __init__(self, then: Callable[[], Awaitable[object]]) -> None:
        self._then = then
        self.sent: list[str] = []

    def problem(self) -> str | None:
        return None

    async def publish(self, topic: str, _payload: bytes) -> None:
        await self._then()
        self.sent.append(topic)


class TestSending:
    """A command reaches the broker at least once, and nobody waits for that."""

    async def command(self, pool: db.Pool) -> UUID:
        async with db.transaction(pool) as tx:
            return await registration.command(
                tx,
                (PLACE.tenant_id, PLACE.device_id),
                name="ping",
                args={},
                ttl_s=600,
                actor="test",
            )

    async def send(self, pool: db.Pool, then: Callable[[], Awaitable[object]]) -> list[str]:
        wire = Wire(then)
        await devices.send_commands(pool, wire)  # type: ignore[arg-type]
        return wire.sent

    async def test_an_answer_need_not_wait_for_the_broker(
        self, pool: db.Pool, edge_db: Database
    ) -> None:
        command_id = await self.command(pool)
        payload = {"command_id": str(command_id), "outcome": "applied"}
        answer = (
            topics.event(PLACE, "device.command.answered"),
            said("device.command.answered", payload),
        )

        async def answered() -> None:
            async with asyncio.timeout(20):
                await intake.commit(pool, [answer])

        assert len(await self.send(pool, answered)) == 1
        assert rows(edge_db, "select state, sent_count from device_commands") == [("applied", 1)]

    async def test_what_the_broker_did_not_take_is_sent_by_the_next_round(
        self, pool: db.Pool
    ) -> None:
        await self.command(pool)

        async def away() -> None:
            raise mqtt.DisconnectedError("gone")

        async def fine() -> None:
            pass

        assert await self.send(pool, away) == []
        assert len(await self.send(pool, fine)) == 1
        assert await self.send(pool, fine) == []

    async def test_what_was_tried_by_somebody_who_died_is_sent_after_a_pause(
        self, pool: db.Pool, edge_db: Database
    ) -> None:
        await self.command(pool)

        async def fine() -> None:
            pass

        async with db.transaction(pool) as tx:
            assert await store.command_to_send(tx, again_s=devices.COMMAND_AGAIN_S)
        assert await self.send(pool, fine) == []
        move_clock(edge_db, timedelta(seconds=devices.COMMAND_AGAIN_S + 1))
        assert len(await self.send(pool, fine)) == 1


@dataclass
class Edge:
    """Gateway and devices service on one broker and one database."""

    broker: stack.Stack
    database: Database
    pool: db.Pool
    server: http.HttpServer

    def device(self, made: registration.Credentials, *, name: str, **options: Any) -> Any:
        url = self.broker.environment["FARMIQ_EDGE_MQTT_URL"]
        host, port = mqtt.address(url)
        user = made.device.broker_user.replace("%", "%25").replace("/", "%2F")
        return mqtt.connected(
            f"mqtt://{user}:{made.password}@{host}:{port}",
            client_id=name,
            persistent_session=False,
            **options,
        )

    async def command(self, place: Place, name: str, *, ttl_s: int = 600) -> UUID:
        async with db.transaction(self.pool) as tx:
            return await registration.command(
                tx, (place.tenant_id, place.device_id), name=name, args={"a": 1}, ttl_s=ttl_s,
                actor="test",
            )  # fmt: skip

    async def is_in(self, command_id: UUID, state: str) -> bool:
        return await self.state(command_id) == state

    async def state(self, command_id: UUID) -> str:
        async with db.transaction(self.pool) as tx:
            found = await store.command(tx, command_id)
        assert found is not None
        return str(found["state"])


@pytest.fixture
async def edge(
    broker: stack.Stack, edge_db: Database, pool: db.Pool, tasks: asyncio.TaskGroup
) -> Edge:
    settings = EdgeSettings.load(
        {
            **broker.environment,
            "FARMIQ_EDGE_DB_URL": edge_db.url,
            "FARMIQ_CLOUD_URL": "http://127.0.0.1:9",
            "FARMIQ_EDGE_KEY_FILE": "none",
        }
    )
    server = http.HttpServer(title="test", version="0")
    tasks.create_task(service.run(settings, server))
    tasks.create_task(devices.run(settings, server))
    await until(lambda: {"ingress.broker", "devices.users"} <= server.checks.keys())
    await until(lambda: _ready(server))
    return Edge(broker, edge_db, pool, server)


async def _ready(server: http.HttpServer) -> bool:
    return not await server.problems()


class TestService:
    """With a broker that knows every device by its own login."""

    async def test_receipts_go_to_those_who_want_them(self, edge: Edge) -> None:
        quiet, keen = Place("t-1", "f-1", "b-1", "quiet"), Place("t-1", "f-1", "b-1", "keen")
        heard: dict[str, list[UUID]] = {"quiet": [], "keen": []}
        made = [
            await add(edge.pool, quiet),
            await add(edge.pool, keen, wants_receipts=True),
        ]
        async with (
            edge.device(made[0], name="quiet", topics=[topics.receipts(quiet)]) as one,
            edge.device(made[1], name="keen", topics=[topics.receipts(keen)]) as two,
        ):
            await one.until_up()
            await two.until_up()
            await one.publish(*reading(quiet))
            await two.publish(*reading(keen))
            for arrived in await two.batch(max_messages=1, linger_s=0):
                told = receipt.read(read_envelope(arrived.payload).payload)
                heard["keen"] += told.event_ids
            assert one.waiting == 0
        assert len(heard["keen"]) == 1

    async def test_a_station_hears_that_a_message_was_refused(self, edge: Edge) -> None:
        """C-91: either word ends the sending, so a refusal must reach its station too."""
        made = await add(edge.pool, NEW, kind="station", station_id="s.1", wants_receipts=True)
        where = SessionTopic("t-1", "f-1", "b-1", "s.1", ids.new(), "weighvision.weight.recorded")
        event_id = ids.new()
        raw = said(where.event_type, {"weight_kg": "heavy"}, place=PLACE, event_id=event_id)
        async with edge.device(made, name="station", topics=[topics.receipts(NEW)]) as station:
            await station.until_up()
            await station.publish(topics.session(where), raw)
            (arrived,) = await station.batch(max_messages=1, linger_s=0)
        told = receipt.read(read_envelope(arrived.payload).payload)
        assert [refusal.event_id for refusal in told.rejected] == [event_id]

    async def test_a_command_is_sent_obeyed_and_answered(self, edge: Edge) -> None:
        made = await add(edge.pool, NEW)
        async with edge.device(made, name="x", topics=[topics.command(NEW, "#")]) as link:
            await link.until_up()
            command_id = await edge.command(NEW, "ping")
            (arrived,) = await link.batch(max_messages=1, linger_s=0)
            worn = read_envelope(arrived.payload)
            payload = json.loads(bytes(worn.payload))
            assert arrived.topic == topics.command(NEW, "ping")
            assert (payload["command_id"], payload["args"]) == (str(command_id), {"a": 1})
            await until(partial(edge.is_in, command_id, "sent"))
            for outcome in ("delivered", "applied", "failed"):
                answer = said(
                    "device.command.answered",
                    {"command_id": str(command_id), "outcome": outcome, "message": "m"},
                    place=NEW,
                )
                await link.publish(topics.event(NEW, "device.command.answered"), answer)

                stays = "applied" if outcome == "failed" else outcome
                await until(partial(edge.is_in, command_id, stays))
        assert rows(edge.database, "select count(*) from quarantine") == [(0,)]
        audited = rows(edge.database, "select action from audit_log where actor = 'test'")
        assert audited == [("device.add",), ("device.command",)]

    async def test_a_command_expires_and_is_not_sent_after_its_time(self, edge: Edge) -> None:
        await add(edge.pool, NEW)
        edge.broker.kill("mqtt-edge")

        async def noticed() -> bool:
            return "devices.broker" in await edge.server.problems()

        await until(noticed)
        command_id = await edge.command(NEW, "ping", ttl_s=1)

        async def expired() -> bool:
            return await edge.state(command_id) == "expired"

        await until(expired)
        edge.broker.restart("mqtt-edge")
        await until(lambda: _ready(edge.server))
        assert rows(edge.database, "select sent_count, state from device_commands") == [
            (0, "expired")
        ]

    async def test_a_command_comes_again_until_the_device_owns_to_it(
        self, edge: Edge, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(devices, "COMMAND_AGAIN_S", 0.3)
        made = await add(edge.pool, NEW)
        command_id = await edge.command(NEW, "ping")

        async def sent() -> bool:
            return await edge.state(command_id) == "sent"

        await until(sent)
        async with edge.device(made, name="late", topics=[topics.command(NEW, "#")]) as link:
            first = await link.batch(max_messages=1, linger_s=0)
            again = await link.batch(max_messages=1, linger_s=0)
        spoken = {json.loads(bytes(read_envelope(each.payload).payload))["command_id"]
                  for each in (*first, *again)}  # fmt: skip
        assert spoken == {str(command_id)}

    async def test_a_device_cannot_answer_for_another(self, edge: Edge) -> None:
        await add(edge.pool, NEW)
        command_id = await edge.command(NEW, "ping")
        payload = {"command_id": str(command_id), "outcome": "applied"}
        for odd in (payload, {**payload, "command_id": "c-1"}):
            raw = said("device.command.answered", odd)
            await intake.commit(edge.pool, [(topics.event(PLACE, "device.command.answered"), raw)])
        assert await edge.state(command_id) in ("queued", "sent")

    async def test_the_will_of_a_device_that_vanishes_makes_it_offline(self, edge: Edge) -> None:
        made = await add(edge.pool, NEW)
        will = mqtt.Will(*status("offline", place=NEW))
        async with edge.device(made, name="x", will=will) as link:
            await link.until_up()
            await link.publish(*status("online", place=NEW), retain=True)
            query = "select state from device_state where device_id = 'new.1:x'"
            await until(lambda: rows(edge.database, query) == [("online",)])
            link._wire.socket.shutdown(2)
            await until(lambda: rows(edge.database, query) == [("offline",)])

    async def test_old_commands_are_forgotten_and_open_ones_are_not(self, edge: Edge) -> None:
        await add(edge.pool, NEW)
        await edge.command(NEW, "ping", ttl_s=1)
        await until(
            lambda: rows(edge.database, "select state from device_commands") == [("expired",)]
        )
        open_ = await edge.command(NEW, "ping", ttl_s=7 * 86_400)
        assert await devices.purge_commands(edge.pool, days=90) == {"forgotten": 0}
        with databases.connected(edge.database.admin_url) as connection:
            connection.execute(
                "update device_commands set expires_at = fn_now() + interval '92 days' "
                "where command_id = %s",
                (open_,),
            )
        move_clock(edge.database, timedelta(days=91))
        assert await devices.purge_commands(edge.pool, days=90) == {"forgotten": 1}


@pytest.fixture
async def client(pool: db.Pool) -> AsyncIterator[httpx2.AsyncClient]:
    server = http.HttpServer(title="test", version="0")
    api.Api(pool).add_to(server.app)
    transport = httpx2.ASGITransport(app=server.app)
    async with httpx2.AsyncClient(transport=transport, base_url="http://edge") as opened:
        yield opened


@pytest.fixture
def keys(edge_db: Database) -> dict[str, dict[str, str]]:
    made = {role: api_keys.new_key() for role in api_keys.ROLES}
    with databases.connected(edge_db.admin_url) as connection:
        for role, key in made.items():
            connection.execute(
                "insert into api_keys (api_key_id, name, role, key_sha256) values (%s, %s, %s, %s)",
                (ids.new(), role, role, api_keys.digest(key)),
            )
    return {role: {"Authorization": f"Bearer {key}"} for role, key in made.items()}


WANTED = {"tenant_id": "t-1", "farm_id": "f-1", "barn_id": "b-1", "device_id": "new.1:x"}
Keys = dict[str, dict[str, str]]


class TestApi:
    async def test_each_role_may_what_it_may(self, client: httpx2.AsyncClient, keys: Keys) -> None:
        one = f"{api.ROUTE}/t-1/d-1"
        calls = [
            ("GET", api.ROUTE, "viewer", None),
            ("GET", one, "viewer", None),
            ("POST", f"{one}/commands", "operator", {"name": "ping"}),
            ("POST", api.ROUTE, "admin", WANTED),
            ("POST", f"{one}/rotate", "admin", None),
            ("POST", f"{one}/revoke", "admin", None),
        ]
        for method, path, needed, body in calls:
            assert (await client.request(method, path, json=body)).status_code == 401
            for role in api_keys.ROLES:
                answer = await client.request(method, path, json=body, headers=keys[role])
                may = api_keys.ROLES.index(role) >= api_keys.ROLES.index(needed)
                assert (answer.status_code == 403) == (not may), (method, path, role)

    async def test_a_device_is_added_shown_listed_rotated_and_revoked(
        self, client: httpx2.AsyncClient, keys: Keys, edge_db: Database
    ) -> None:
        admin = keys["admin"]
        made = await client.post(api.ROUTE, json=WANTED, headers=admin)
        assert made.status_code == 201
        assert made.json()["user"] == "t-1/new.1%3Ax"
        again = await client.post(api.ROUTE, json=WANTED, headers=admin)
        assert again.status_code == 409
        one = f"{api.ROUTE}/t-1/new.1:x"
        shown = (await client.get(one, headers=admin)).json()
        api.OneDevice.model_validate(shown)
        api.DeviceLogin.model_validate(made.json())
        assert (shown["state"], shown["heartbeat_s"], shown["commands"]) == ("never seen", 60, [])
        assert not any("secret" in name or "password" in name for name in shown)
        rotated = (await client.post(f"{one}/rotate", headers=admin)).json()
        assert rotated["password"] != made.json()["password"]
        assert rotated["token"] != made.json()["token"]
        assert "token_sha256" not in shown
        assert (await client.post(f"{one}/revoke", headers=admin)).status_code == 200
        assert (await client.post(f"{one}/revoke", headers=admin)).status_code == 404
        assert (await client.post(f"{one}/rotate", headers=admin)).status_code == 404
        assert (await client.get(one, headers=admin)).json()["state"] == "revoked"
        back = await client.post(api.ROUTE, json={**WANTED, "barn_id": "b-2"}, headers=admin)
        assert back.status_code == 201
        audited = rows(edge_db, "select action from audit_log where actor = 'admin' order by at")
        assert [action for (action,) in audited] == [
            "device.add", "device.rotate", "device.revoke", "device.add",
        ]  # fmt: skip

    async def test_pages_follow_each_other_and_hold_everybody_once(
        self, client: httpx2.AsyncClient, keys: Keys, edge_db: Database
    ) -> None:
        seen: list[str] = []
        after = ""
        while True:
            query = {"limit": "7", "tenant_id": "hillside", **({"after": after} if after else {})}
            answer = await client.get(api.ROUTE, params=query, headers=keys["viewer"])
            api.DevicePage.model_validate(answer.json())
            seen += [each["device_id"] for each in answer.json()["devices"]]
            after = answer.json()["next"] or ""
            if not after:
                break
        ((count,),) = rows(edge_db, "select count(*) from devices where tenant_id = 'hillside'")
        assert (len(seen), seen) == (count, sorted(set(seen)))

    async def test_a_command_is_queued_and_can_be_followed(
        self, client: httpx2.AsyncClient, keys: Keys
    ) -> None:
        route = f"{api.ROUTE}/t-1/d-1/commands"
        body = {"name": "set_interval", "args": {"seconds": 5}, "ttl_s": 30}
        queued = await client.post(route, json=body, headers=keys["operator"])
        assert (queued.status_code, queued.json()["state"]) == (202, "queued")
        follow = f"{route}/{queued.json()['command_id']}"
        shown = (await client.get(follow, headers=keys["viewer"])).json()
        api.QueuedCommand.model_validate(shown)
        assert (shown["name"], shown["args"]) == ("set_interval", {"seconds": 5})
        other = follow.replace("/d-1/", "/d-2/")
        assert (await client.get(other, headers=keys["viewer"])).status_code == 404

    @pytest.mark.parametrize(
        ("method", "path", "body", "status_code", "field"),
        [
            ("POST", "", b"{}", 400, "tenant_id"),
            ("POST", "", b"[]", 400, None),
            ("POST", "", b"nonsense", 400, None),
            ("POST", "", b"[" * 100_000, 400, None),
            ("POST", "", b" " * 200_000, 413, None),
            ("POST", "", json.dumps({**WANTED, "kind": 7}).encode(), 400, "kind"),
            ("POST", "", json.dumps({**WANTED, "place": "\ud800"}).encode(), 400, "place"),
            ("POST", "/t-1/d-1/commands", b'{"name": "a/b"}', 400, "name"),
            ("POST", "/t-1/d-1/commands", b'{"name": "x", "ttl_s": 0}', 400, "ttl_s"),
            ("POST", "/t-1/d-1/commands", b'{"name": "x", "ttl_s": "9"}', 400, "ttl_s"),
            ("POST", "/t-1/d-1/commands", b'{"name": "x", "args": []}', 400, "args"),
            ("POST", "/t-1/d-1/commands", b'{"name": "x", "args": {"a": NaN}}', 400, "args"),
            ("POST", "/t-1/d-1/commands", b'{"name": "x", "args": {"a": "\\u0000"}}', 400, "args"),
            ("POST", "/t-1/nobody/commands", b'{"name": "x"}', 404, None),
            ("POST", "/t-1/nobody/revoke", b"", 404, None),
            ("GET", "?limit=0", b"", 400, "limit"),
            ("GET", "?limit=%C2%B2", b"", 400, "limit"),
            ("GET", "?limit=9999999999999999999999", b"", 400, "limit"),
            ("GET", "?after=nonsense", b"", 400, "after"),
            ("GET", "?state=well", b"", 400, "state"),
            ("GET", "?barn_id=a%00b", b"", 400, "barn_id"),
            ("GET", "?colour=blue", b"", 400, "colour"),
            ("GET", "/t-1/nobody", b"", 404, None),
            ("GET", "/t-1/%00", b"", 404, None),
            ("GET", "/t-1/d-1/commands/7", b"", 404, None),
        ],
    )
    async def test_bad_input_gets_an_answer(  # noqa: PLR0917 - a table of cases
        self,
        client: httpx2.AsyncClient,
        keys: Keys,
        method: str,
        path: str,
        body: bytes,
        status_code: int,
        field: str | None,
    ) -> None:
        headers = {**keys["admin"], "content-type": "application/json"}
        answer = await client.request(method, api.ROUTE + path, content=body, headers=headers)
        assert answer.status_code == status_code, answer.text
        error = answer.json()["error"]
        assert error["message"]
        if field is not None:
            assert field in [each["field"] for each in error["details"]]

    async def test_another_content_type_is_refused(
        self, client: httpx2.AsyncClient, keys: Keys
    ) -> None:
        headers = {**keys["admin"], "content-type": "text/plain"}
        answer = await client.post(api.ROUTE, content=b"{}", headers=headers)
        assert answer.status_code == 415


class TestDesk:
    async def test_a_station_has_one_device_until_it_is_revoked(self, pool: db.Pool) -> None:
        first, second = Place("t-1", "f-1", "b-1", "w-1"), Place("t-1", "f-1", "b-1", "w-2")
        await add(pool, first, kind="station", station_id="s")
        with pytest.raises(registration.DeviceExistsError, match="stands at station 's'"):
            await add(pool, second, kind="station", station_id="s")
        await revoke(pool, first)
        await add(pool, second, kind="station", station_id="s")
        with pytest.raises(registration.DeviceExistsError):
            await add(pool, first, kind="station", station_id="s")

    async def test_a_list_is_registered_whole_or_not_at_all(
        self, pool: db.Pool, edge_db: Database
    ) -> None:
        wanted = [at(Place("t-1", "f", "b", name)) for name in ("l-1", "l-2")] + [at(PLACE)]
        before = rows(edge_db, "select count(*) from devices")
        with pytest.raises(registration.DeviceExistsError):
            async with db.transaction(pool) as tx:
                await registration.add_all(tx, wanted, actor="test")
        assert rows(edge_db, "select count(*) from devices") == before

    async def test_a_command_needs_a_registered_device_and_good_words(self, pool: db.Pool) -> None:
        async with db.transaction(pool) as tx:
            with pytest.raises(registration.UnknownDeviceError):
                await registration.command(tx, ("t", "x"), name="p", args={}, ttl_s=5, actor="test")
            with pytest.raises(InvalidDeviceError):
                await registration.command(
                    tx, ("t-1", "d-1"), name="+", args={}, ttl_s=5, actor="test"
                )
