"""Batches, copies and two writers: whatever the order, every message has exactly one effect."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any
from uuid import UUID

import psycopg
import pytest
from hypothesis import given
from hypothesis import strategies as st

from farmiq.edge import outbox
from farmiq.edge.ingress import handlers, service, source
from farmiq.edge.ingress.receipts import Receipts
from farmiq.edge.ingress.source import MqttSource
from farmiq.edge.ingress.store import Outcome
from farmiq.edge.registry import Registry
from farmiq.messages import envelope, receipt, topics
from farmiq.messages.topics import Place
from farmiq.plumbing import db, ids
from farmiq.plumbing.messaging.mqtt import Message
from tests.conftest import Database
from tests.support import databases
from tests.support.properties import drawn
from tests.support.until import until

AT = datetime.now(UTC)
MANY = outbox.WORTH_A_COPY * 2

TABLES = {
    "telemetry_raw": "id, tenant_id, device_id, occurred_at, metric_type, metric_value, unit",
    "sync_outbox": "id, tenant_id, device_id, event_type, occurred_at, payload_json::text, status",
    "ingress_dedupe": "tenant_id, event_id, content_hash",
    "quarantine": "topic, raw",
}


def sent(number: int, *, tenant_id: str = "t-1", event_id: UUID | None = None) -> tuple[str, bytes]:
    """A reading; the same number gives the same one."""
    place = Place(tenant_id, "f-1", "b-1", f"d-{number % 7}")
    body = {
        "schema_version": "1.0",
        "event_id": str(event_id or UUID(int=(7 << 76) + number)),
        "trace_id": f"trace-{number}",
        "tenant_id": tenant_id,
        "device_id": place.device_id,
        "event_type": "telemetry.reading",
        "ts": (AT + timedelta(seconds=number)).isoformat(),
        "payload": {"metric_type": "co2", "metric_value": number + 0.5, "unit": "ppm"},
    }
    return topics.telemetry(place, "co2"), json.dumps(body).encode()


def contents(database: Database) -> dict[str, list[tuple[Any, ...]]]:
    with databases.connected(database.admin_url) as connection:
        return {
            table: sorted(
                connection.execute(f"select {columns} from {table}".encode()).fetchall()  # noqa: S608
            )
            for table, columns in TABLES.items()
        }


def clear(database: Database) -> None:
    with databases.connected(database.admin_url) as connection:
        connection.execute(f"truncate {', '.join(TABLES)}".encode())


@pytest.fixture
async def pool(edge_db: Database) -> AsyncIterator[db.Pool]:
    async with db.pool(edge_db.url, name="test") as opened:
        yield opened


# --- any order, any duplication, any split

WHOLE = [sent(number) for number in range(MANY)] + [("iot/odd", b"no"), (sent(1)[0], b"{}")]
orders = st.tuples(
    st.permutations(range(len(WHOLE))),
    st.lists(st.integers(0, len(WHOLE) - 1), max_size=60),
    st.lists(st.integers(1, 2 * len(WHOLE)), max_size=6),
    st.randoms(use_true_random=False),
)


@pytest.mark.req("DD-01", "DD-02", "SC-05")
@drawn(25)
@given(orders)
def test_any_order_any_duplication_any_split_gives_the_same_tables(
    edge_db: Database, order: tuple[list[int], list[int], list[int], Any]
) -> None:
    first, again, cuts, chance = order
    stream = [WHOLE[index] for index in (*first, *again)]
    chance.shuffle(stream)
    bounds = sorted({0, len(stream), *(cut % len(stream) for cut in cuts)})
    batches = [stream[a:b] for a, b in pairwise(bounds)]

    clear(edge_db)
    asyncio.run(_keep_all(edge_db, [WHOLE]))
    expected = contents(edge_db)
    clear(edge_db)
    asyncio.run(_keep_all(edge_db, batches))

    assert contents(edge_db) == expected
    assert len(expected["telemetry_raw"]) == len(expected["sync_outbox"]) == MANY
    assert len(expected["quarantine"]) == 2


async def _keep_all(database: Database, batches: Sequence[list[tuple[str, bytes]]]) -> None:
    async with db.pool(database.url, name="test") as pool:
        for batch in batches:
            await handlers.commit(pool, batch)


# --- what proves not to be new although the dedupe does not know it


class TestGoodFaith:
    """Many messages are copied; what the copy stumbles over is looked up."""

    async def test_many_are_stored_once_with_the_time_of_their_transaction(
        self, pool: db.Pool, edge_db: Database
    ) -> None:
        outcome = await handlers.commit(pool, [sent(number) for number in range(MANY)])

        assert (outcome.new_count, len(outcome.stored), outcome.rejected) == (MANY, MANY, ())
        with databases.connected(edge_db.admin_url) as connection:
            times = connection.execute("""
                select distinct r.ingested_at, o.created_at, o.next_attempt_at, d.first_seen_at
                from telemetry_raw r join sync_outbox o on o.id = r.id
                join ingress_dedupe d on d.event_id = r.id
            """).fetchall()
            size = connection.execute(
                "select bool_and(payload_size_bytes > 40 and status = 'pending' and priority = 0) "
                "from sync_outbox"
            ).fetchall()
        assert len(times) == 1
        assert len(set(times[0])) == 1
        assert size == [(True,)]

    async def test_old_replays_among_many_new_ones_are_absorbed(
        self, pool: db.Pool, edge_db: Database
    ) -> None:
        await handlers.commit(pool, [sent(number) for number in range(MANY)])
        with databases.connected(edge_db.admin_url) as connection:
            connection.execute("delete from ingress_dedupe")
        outcome = await handlers.commit(pool, [sent(number) for number in range(MANY + MANY)])

        assert (outcome.new_count, len(outcome.stored), outcome.rejected) == (MANY, 2 * MANY, ())
        found = contents(edge_db)
        assert len(found["telemetry_raw"]) == len(found["sync_outbox"]) == 2 * MANY

    async def test_a_reading_that_only_the_raw_table_remembers_is_left_as_it_is(
        self, pool: db.Pool, edge_db: Database
    ) -> None:
        batch = [sent(number) for number in range(MANY)]
        await handlers.commit(pool, batch)
        with databases.connected(edge_db.admin_url) as connection:
            connection.execute("truncate ingress_dedupe, sync_outbox")
            connection.execute("update telemetry_raw set unit = 'as it was'")
        await handlers.commit(pool, batch)

        found = contents(edge_db)
        assert {row[-1] for row in found["telemetry_raw"]} == {"as it was"}
        assert len(found["telemetry_raw"]) == len(found["sync_outbox"]) == MANY

    async def test_another_tenants_ids_among_many_are_quarantined(
        self, pool: db.Pool, edge_db: Database
    ) -> None:
        await handlers.commit(pool, [sent(number) for number in range(MANY)])
        theirs = [sent(number, tenant_id="t-2") for number in range(MANY - 5, 2 * MANY)]
        outcome = await handlers.commit(pool, theirs)

        assert (outcome.new_count, len(outcome.rejected)) == (MANY, 5)
        assert all("another tenant" in one.reasons[0] for one in outcome.rejected)
        found = contents(edge_db)
        assert len(found["telemetry_raw"]) == len(found["sync_outbox"]) == 2 * MANY

    async def test_an_id_of_two_tenants_in_one_large_batch_stays_with_one(
        self, pool: db.Pool, edge_db: Database
    ) -> None:
        batch = [sent(number) for number in range(MANY)]
        batch.append(sent(3, tenant_id="t-2"))
        outcome = await handlers.commit(pool, batch)

        assert (outcome.new_count, len(outcome.stored), len(outcome.rejected)) == (MANY, MANY, 1)
        assert len(contents(edge_db)["sync_outbox"]) == MANY

    async def test_clocks_of_1970_and_2100_are_copied_too(
        self, pool: db.Pool, edge_db: Database
    ) -> None:
        batch = [sent(number) for number in range(MANY)]
        for year, number in (("1970", 0), ("2100", 1)):
            topic, raw = batch[number]
            body = {**json.loads(raw), "ts": f"{year}-01-01T00:00:00Z"}
            batch[number] = (topic, json.dumps(body).encode())
        await handlers.commit(pool, batch)

        with databases.connected(edge_db.admin_url) as connection:
            flagged = connection.execute(
                "select extract(year from occurred_at)::int from telemetry_raw "
                "where clock_suspect order by 1"
            ).fetchall()
        assert flagged == [(1970,), (2100,)]

    async def test_a_conflict_among_many_is_quarantined_and_the_first_content_stays(
        self, pool: db.Pool, edge_db: Database
    ) -> None:
        batch = [sent(number) for number in range(MANY)]
        topic, raw = batch[7]
        other = raw.replace(b'"metric_value": 7.5', b'"metric_value": 99')
        outcome = await handlers.commit(pool, [*batch, (topic, other)])

        assert (outcome.new_count, len(outcome.rejected)) == (MANY, 1)
        assert "EVENT_ID_CONFLICT" in outcome.rejected[0].reasons[0]
        values = [row[5] for row in contents(edge_db)["telemetry_raw"]]
        assert 7.5 in values
        assert 99 not in values


# --- receipts


class Told:
    """A broker that counts what is published."""

    def __init__(self) -> None:
        self.receipts: list[receipt.Receipt] = []
        self.longest = 0

    async def publish(self, _topic: str, payload: bytes) -> None:
        self.longest = max(self.longest, len(payload))
        self.receipts.append(receipt.read(envelope.read(payload).payload))


async def test_a_device_is_told_of_many_in_few_messages_of_a_size_that_may_be_sent(
    tasks: asyncio.TaskGroup,
) -> None:
    broker, place = Told(), Place("t-1", "f-1", "b-1", "d-1")
    waiting = Receipts(broker.publish)
    tasks.create_task(waiting.run())
    stored = [tuple(ids.new() for _ in range(500)) for _ in range(10)]
    refused = {ids.new(): "x" * 500 for _ in range(500)}
    for some in stored:
        waiting.add({place: (some, {})})
    waiting.add({place: ((), refused)})

    await until(lambda: sum(len(one.event_ids) for one in broker.receipts) == 5_000)
    assert sum(len(one.rejected) for one in broker.receipts) == 500
    assert len(broker.receipts) == 3
    assert broker.longest < topics.MAX_PAYLOAD_BYTES


async def test_receipts_that_pile_up_are_dropped_and_nobody_who_does_not_ask_gets_any() -> None:
    place, other = Place("t-1", "f-1", "b-1", "d-1"), Place("t-1", "f-1", "b-1", "d-2")
    broker = Told()
    waiting = Receipts(broker.publish, wanted=lambda asked: asked == place)
    for _ in range(60):
        waiting.add({place: (tuple(ids.new() for _ in range(500)), {}), other: ((ids.new(),), {})})
    await waiting.send_pending()

    assert sum(len(one.event_ids) for one in broker.receipts) == 20_000


# --- two at once


async def test_two_writers_with_the_same_messages_in_opposite_order_both_end(
    pool: db.Pool, edge_db: Database
) -> None:
    """The broker may deliver twice, to two gateways even: they wait for each other one way only."""
    for start in range(0, 10 * MANY, MANY):
        batch = [sent(number) for number in range(start, start + MANY)]
        outcomes = await asyncio.gather(
            handlers.commit(pool, batch), handlers.commit(pool, list(reversed(batch)))
        )
        assert sum(outcome.new_count for outcome in outcomes) == MANY
    found = contents(edge_db)
    assert len(found["telemetry_raw"]) == len(found["sync_outbox"]) == 10 * MANY
    assert found["quarantine"] == []


class Listener:
    """What the intake needs of a broker: somebody who hears acknowledgements."""

    def __init__(self) -> None:
        self.acknowledged: list[int] = []

    def ack(self, messages: Iterable[Message]) -> None:
        self.acknowledged += [message.packet_id for message in messages]

    async def publish(self, topic: str, payload: bytes) -> None: ...


def intake_of(broker: Listener) -> service.Intake:
    session = MqttSource(broker, writers=2)  # type: ignore[arg-type]
    return service.Intake(None, session, Registry(), writers=2)  # type: ignore[arg-type]


def delivery(number: int, device_id: str) -> Message:
    topic = f"iot/telemetry/t-1/f-1/b-1/{device_id}/co2"
    return Message(topic, b"", False, False, number, 1, 1, 0)


def device_of(writer: int) -> str:
    names = (f"d-{n}" for n in range(99))
    topic = "iot/telemetry/t-1/f-1/b-1/{}/x"
    return next(name for name in names if source.writer_of(topic.format(name), 2) == writer)


class Held:
    """A database in which some devices' transactions take until they are let go."""

    def __init__(self) -> None:
        self.slow = device_of(0)
        self.let_go = asyncio.Event()
        self.kept: list[str] = []

    async def keep(self, _pool: Any, sent: list[tuple[str, bytes]], *_: Any) -> Outcome:
        device_id = sent[0][0].split("/")[5]
        if device_id == self.slow:
            await self.let_go.wait()
        self.kept.append(device_id)
        return Outcome()


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> Held:
    found = Held()
    monkeypatch.setattr(handlers, "commit", found.keep)
    return found


async def test_acknowledgements_keep_the_order_although_a_later_part_is_committed_first(
    held: Held, tasks: asyncio.TaskGroup
) -> None:
    broker = Listener()
    intake = intake_of(broker)
    for lane in intake.queues:
        tasks.create_task(intake.write(lane))
    quick = device_of(1)
    await intake.take([delivery(1, held.slow), delivery(2, quick)])
    await intake.take([delivery(3, quick)])

    await until(lambda: held.kept == [quick, quick])
    assert broker.acknowledged == []
    assert intake.in_flight == 3
    held.let_go.set()
    await until(lambda: broker.acknowledged == [1, 2, 3])
    assert intake.in_flight == 0


async def test_what_is_taken_is_bounded_while_a_writer_stands_still(
    held: Held, tasks: asyncio.TaskGroup
) -> None:
    intake = intake_of(Listener())
    for lane in intake.queues:
        tasks.create_task(intake.write(lane))
    taken = 0

    async def take() -> None:
        nonlocal taken
        for number in range(100):
            await intake.take([delivery(number, held.slow)])
            taken += 1

    taking = tasks.create_task(take())
    await until(lambda: taken == 2)
    for _ in range(20):
        await asyncio.sleep(0)
    assert (taken, intake.in_flight) == (2, 3)
    held.let_go.set()
    await taking
    assert taken == 100


async def test_ids_of_a_broken_batch_are_found_by_halving(
    pool: db.Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One poison among many costs a few transactions, not one for every message (C-81)."""
    keep, transactions = handlers.commit, 0
    poison = ids.new()

    async def allergic(
        source: db.Pool, batch: list[tuple[str, bytes]], registry: Registry, *_: object
    ) -> Outcome:
        nonlocal transactions
        transactions += 1
        if any(str(poison).encode() in raw for _, raw in batch):
            raise psycopg.errors.NumericValueOutOfRange("no such number")
        return await keep(source, batch, registry)

    monkeypatch.setattr(handlers, "commit", allergic)
    batch = [sent(number) for number in range(1000)]
    batch[633] = sent(633, event_id=poison)
    outcome = await handlers.commit_bisecting(pool, batch, Registry())

    assert (outcome.new_count, len(outcome.rejected)) == (999, 1)
    assert "no such number" in outcome.rejected[0].reasons[0]
    assert transactions < 25


@pytest.mark.parametrize("error", [OSError(24, "too many open files"), MemoryError()])
async def test_commit_during_a_database_outage_raises_and_quarantines_nothing(
    pool: db.Pool, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    transactions = 0

    async def short(*_: object) -> Outcome:
        nonlocal transactions
        transactions += 1
        raise error

    monkeypatch.setattr(handlers, "commit", short)
    with pytest.raises(db.PASSING):
        await handlers.commit_bisecting(pool, [sent(1), sent(2)], Registry())
    assert transactions == 1
