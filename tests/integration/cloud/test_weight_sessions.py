"""Weigh sessions in the cloud: read off their events, whatever the order and however often."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from farmiq.cloud.identity.accounts import add_company
from farmiq.cloud.weighvision import store
from farmiq.edge.ingress import handlers
from farmiq.farm.sessions import OVERDUE_SQL, Fact, fold, overdue
from farmiq.messages import weighvision as words
from farmiq.messages.bus import BusEvent
from farmiq.plumbing import db, ids
from tests.conftest import Database
from tests.integration.edge.weighvision.conftest import Weighing, stations
from tests.support import databases
from tests.support.properties import drawn
from tests.unit.edge.weighvision.test_rules import facts

__all__ = ["stations"]  # a fixture

START = datetime(2026, 11, 15, 6, 0, tzinfo=UTC)
STATE = """
select status, start_at, end_at, batch_id, initial_weight_kg, final_weight_kg, image_count,
  cancel_reason, media_ids, missing from weight_sessions where session_id = %s
"""


@dataclass
class Told:
    """Events of one session as the edge sends them."""

    session_id: UUID = field(default_factory=ids.new)
    tenant_id: str = "t-001"

    def event(self, fact: Fact) -> BusEvent:
        payloads: dict[str, dict[str, Any]] = {
            words.SESSION_CREATED: {
                "status": "created",
                "batch_id": fact.batch_id,
                "initial_weight_kg": fact.weight_kg,
            },
            words.WEIGHT_RECORDED: {"weight_kg": fact.weight_kg},
            words.IMAGE_CAPTURED: {"media_id": fact.media_id},
            words.SESSION_FINALIZED: {
                "status": "finalized",
                "final_weight_kg": fact.weight_kg,
                "image_count": fact.image_count,
                "inference_result_id": None,
            },
            words.SESSION_CANCELLED: {"status": "cancelled", "reason": fact.reason},
        }
        payload = payloads[fact.event_type]
        return BusEvent(
            event_id=fact.event_id,
            event_type=fact.event_type,
            tenant_id=self.tenant_id,
            farm_id="f-001",
            barn_id="b-001",
            device_id="scale-1",
            session_id=self.session_id,
            occurred_at=fact.occurred_at,
            trace_id="trace-1",
            payload=msgspec.Raw(msgspec.json.encode(payload)),
        )


@pytest.fixture
async def pool(cloud_db: Database) -> AsyncIterator[db.Pool]:
    with databases.connected(cloud_db.admin_url) as connection:
        add_company(connection, "t-001", name="One")
        add_company(connection, "t-002", name="Two")
    async with db.pool(cloud_db.url, name="test") as opened:
        yield opened


async def landed(pool: db.Pool, events: list[BusEvent]) -> int:
    async with db.transaction(pool) as tx:
        return await store.apply_events(tx, events)


async def state(pool: db.Pool, session_id: UUID) -> tuple[Any, ...]:
    async with pool.connection() as connection:
        (row,) = await db.fetch_all(connection, STATE, session_id)
    return row


@pytest.mark.req("SC-05", "RB-28")
@drawn(60)
@given(data=st.data(), told=st.lists(facts(), min_size=1, max_size=7))
async def test_the_session_in_the_cloud_is_what_the_rules_say_for_any_order_and_split(
    pool: db.Pool, data: st.DataObject, told: list[Fact]
) -> None:
    """The bus has no sequence numbers, so at one moment the ids decide, at both sites."""
    bare = [_bare(fact) for fact in told]
    one = Told()
    events = [one.event(fact) for fact in bare]
    mixed = data.draw(
        st.permutations(events + data.draw(st.lists(st.sampled_from(events), max_size=5)))
    )
    cut = data.draw(st.integers(0, len(mixed)))
    for part in (mixed[:cut], mixed[cut:]):
        if part:
            await landed(pool, part)
    found = await state(pool, one.session_id)
    meant = fold(bare, stored=[fact.media_id for fact in bare if fact.media_id])
    assert found[:8] == (
        meant.status, meant.start_at, meant.end_at, meant.batch_id, meant.initial_weight_kg,
        meant.final_weight_kg, meant.image_count, meant.cancel_reason,
    )  # fmt: skip
    assert tuple(found[8]) == meant.announced
    assert tuple(found[9]) == meant.missing


@pytest.mark.req("SC-03")
@drawn(60)
@given(
    told=st.lists(facts(), min_size=1, max_size=7),
    quiet_s=st.sampled_from([0, 599, 600, 601, 900]),
    earlier_s=st.sampled_from([0, 1, 500, 3600]),
)
async def test_overdue_session_is_the_same_by_the_rules_and_in_sql(
    pool: db.Pool, told: list[Fact], quiet_s: float, earlier_s: float
) -> None:
    """The pages choose rows in SQL, the edge decides in Python."""
    bare = [_bare(fact) for fact in told]
    one = Told()
    await landed(pool, [one.event(fact) for fact in bare])
    waited_s = quiet_s + earlier_s
    async with db.transaction(pool) as tx:
        (found,) = await db.fetch_dicts(
            tx,
            f"""
            select ({OVERDUE_SQL}) as overdue from (
                select status, missing, image_count, media_ids,
                  %(now)s - %(quiet_s)s * interval '1 s' as heard_at,
                  %(now)s - %(waited_s)s * interval '1 s' as received_at
                from weight_sessions where session_id = %(session_id)s) w,
              (select %(now)s::timestamptz as now) c
            """,  # noqa: S608
            {
                "now": START, "quiet_s": quiet_s, "waited_s": waited_s, "patience_s": 600,
                "session_id": one.session_id,
            },
        )  # fmt: skip
    session = fold(bare, stored=[fact.media_id for fact in bare if fact.media_id])
    meant = overdue(session, waited_s=waited_s, quiet_s=quiet_s, patience_s=600)
    assert found["overdue"] == bool(meant)


@pytest.mark.req("SC-05", "RB-28")
@drawn(25)
@given(data=st.data())
async def test_any_order_and_repetition_gives_the_same_session_at_both_sites(
    pool: db.Pool, stations: Database, data: st.DataObject
) -> None:
    """Also when the edge derived weights from the weighings that it had so far."""
    weighing = Weighing()
    messages = [
        weighing.created(**data.draw(st.sampled_from([{}, {"initial_weight_kg": 79.0}]))),
        weighing.captured(UUID(int=78)),
        weighing.captured(UUID(int=77)),
        weighing.weight(80.0),
        weighing.weight(79.5),
        weighing.weight(80.5),
        weighing.finalized(2, **data.draw(st.sampled_from([{}, {"final_weight_kg": 81.0}]))),
        weighing.cancelled(),
    ]
    messages = data.draw(st.lists(st.sampled_from(messages), min_size=1, unique=True))
    async with db.pool(stations.url, name="edge") as edge:
        for part in _mixed(data, messages):
            await handlers.commit(edge, part)
        async with edge.connection() as connection:
            (at_the_edge,) = await db.fetch_all(
                connection,
                "select status, start_at, end_at, batch_id, initial_weight_kg, final_weight_kg, "
                "image_count, cancel_reason from weight_sessions where id = %s",
                weighing.session_id,
            )
            sent = await db.fetch_all(
                connection,
                "select id, event_type, 't-001', farm_id, barn_id, device_id, session_id, "
                "occurred_at, trace_id, payload_json::text from sync_outbox where session_id = %s",
                weighing.session_id,
            )
    for part in _mixed(data, [_event(row) for row in sent]):
        await landed(pool, part)
    assert (await state(pool, weighing.session_id))[:8] == at_the_edge


def _mixed(data: st.DataObject, sent: list[Any]) -> list[list[Any]]:
    """All of these in any order, some of them again, in one or two parts."""
    again = data.draw(st.lists(st.sampled_from(range(len(sent))), max_size=5))
    order = data.draw(st.permutations([*range(len(sent)), *again]))
    cut = data.draw(st.integers(0, len(order)))
    parts = ([sent[index] for index in part] for part in (order[:cut], order[cut:]))
    return [part for part in parts if part]


def _event(row: tuple[Any, ...]) -> BusEvent:
    names = ("event_id", "event_type", "tenant_id", "farm_id", "barn_id", "device_id", "session_id",
             "occurred_at", "trace_id")  # fmt: skip
    return BusEvent(**dict(zip(names, row, strict=False)), payload=msgspec.Raw(row[-1].encode()))


def _bare(fact: Fact) -> Fact:
    """As the bus tells it; under an id that no other example has used."""
    return Fact(
        ids.new(), fact.event_type, fact.occurred_at, None, fact.batch_id, fact.weight_kg,
        fact.image_count, fact.media_id, fact.reason,
    )  # fmt: skip


def a_weighing() -> list[Fact]:
    def at(seconds: int) -> datetime:
        return START + timedelta(seconds=seconds)

    return [
        Fact(ids.new(), words.SESSION_CREATED, at(0), batch_id="lot-7"),
        Fact(ids.new(), words.IMAGE_CAPTURED, at(1), media_id=ids.new()),
        Fact(ids.new(), words.WEIGHT_RECORDED, at(2), weight_kg=80.5),
        Fact(ids.new(), words.WEIGHT_RECORDED, at(3), weight_kg=81.0),
        Fact(ids.new(), words.SESSION_FINALIZED, at(4), image_count=1),
    ]


async def test_final_weight_is_the_last_weighing_when_the_device_named_none(pool: db.Pool) -> None:
    """C-29: also when the finalized came first and the weights an outage later."""
    one, told = Told(), a_weighing()
    await landed(pool, [one.event(told[4])])
    assert (await state(pool, one.session_id))[5] is None
    await landed(pool, [one.event(fact) for fact in told[:4]])
    found = await state(pool, one.session_id)
    assert (found[0], found[4], found[5], found[9]) == ("finalized", 80.5, 81.0, [])


async def test_weight_derived_by_the_edge_yields_to_weighings_that_arrive_later(
    pool: db.Pool,
) -> None:
    """The finalized went out with the first weighing, the second came later."""
    one, told = Told(), a_weighing()
    early = one.event(told[4])
    said = {**msgspec.json.decode(early.payload), "final_weight_kg": 80.5, words.DERIVED: True}
    early = msgspec.structs.replace(early, payload=msgspec.Raw(msgspec.json.encode(said)))
    await landed(pool, [early])
    assert (await state(pool, one.session_id))[5] == 80.5
    await landed(pool, [one.event(fact) for fact in told[:4]])
    assert (await state(pool, one.session_id))[5] == 81.0


async def test_session_id_used_by_two_companies_is_two_sessions(pool: db.Pool) -> None:
    ours = Told()
    theirs = Told(ours.session_id, "t-002")
    await landed(pool, [ours.event(a_weighing()[0]), theirs.event(a_weighing()[4])])
    async with pool.connection() as connection:
        rows = await db.fetch_all(
            connection, "select tenant_id, status from weight_sessions order by 1"
        )
    assert rows == [("t-001", "created"), ("t-002", "finalized")]


async def test_weighings_between_the_first_and_the_last_are_counted(pool: db.Pool) -> None:
    """They decide nothing, so they are not loaded; a scale that was left on sends thousands."""
    one = Told()
    weights = [
        Fact(ids.new(), words.WEIGHT_RECORDED, START + timedelta(seconds=n), weight_kg=80.0 + n)
        for n in range(5)
    ]
    await landed(pool, [one.event(fact) for fact in weights])
    async with pool.connection() as connection:
        rows = await db.fetch_all(
            connection, "select weight_count, initial_weight_kg from weight_sessions"
        )
    assert rows == [(5, 80.0)]


async def test_image_without_a_session_creates_no_session(pool: db.Pool) -> None:
    event = msgspec.structs.replace(Told().event(a_weighing()[1]), session_id=None)
    assert await landed(pool, [event]) == 1
    async with pool.connection() as connection:
        assert await db.fetch_value(connection, "select count(*) from weight_sessions") == 0


async def test_incomplete_event_of_an_edge_changes_no_session(pool: db.Pool) -> None:
    """Before the session's own events, between and after them; alone it makes no session."""
    told = Told()
    events = [told.event(fact) for fact in a_weighing()]
    payload = words.SessionIncomplete(
        session_id=told.session_id, missing=["image"], since=START, station_id="st-1"
    )

    def incomplete() -> BusEvent:
        return msgspec.structs.replace(
            events[0],
            event_id=ids.new(),
            event_type=words.SESSION_INCOMPLETE,
            occurred_at=START - timedelta(days=1),
            payload=msgspec.Raw(msgspec.json.encode(payload)),
        )

    whole = """
        select to_jsonb(w), (select count(*) from weighvision_events) from weight_sessions w
    """
    async with pool.connection() as connection:
        assert await landed(pool, [incomplete()]) == 1
        assert await db.fetch_all(connection, whole) == []
        await landed(pool, [*events, incomplete()])
        ((before, _),) = await db.fetch_all(connection, whole)
        await landed(pool, [incomplete()])
        assert await db.fetch_all(connection, whole) == [(before, len(events) + 3)]
        heard = "select max(stored_at) from weighvision_events where event_type <> %s"
        heard_at = await db.fetch_value(connection, heard, words.SESSION_INCOMPLETE)
    assert datetime.fromisoformat(before["heard_at"]) == heard_at
    assert datetime.fromisoformat(before["start_at"]) == START


@pytest.mark.req("RB-28")
async def test_concurrent_consumers_of_one_session_lose_no_event(pool: db.Pool) -> None:
    for _ in range(10):
        one, told = Told(), a_weighing()
        await asyncio.gather(*(landed(pool, [one.event(fact)]) for fact in told))
        found = await state(pool, one.session_id)
        assert (found[0], found[5], found[9]) == ("finalized", 81.0, [])
