"""Weigh sessions in the cloud: read off their events, whatever the order and however often."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import msgspec
import psycopg
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from farmiq.cloud.identity.accounts import add_company
from farmiq.cloud.weighvision import store
from farmiq.edge.weighvision.rules import Fact, fold
from farmiq.messages import weighvision as words
from farmiq.messages.bus import BusEvent
from farmiq.plumbing import db, ids
from tests.conftest import Database
from tests.unit.edge.weighvision.test_rules import facts

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
    with psycopg.connect(cloud_db.admin_url) as connection:
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
@settings(max_examples=60)
@given(data=st.data(), told=st.lists(facts(), min_size=1, max_size=7))
async def test_the_cloud_reads_off_what_the_edge_does(
    pool: db.Pool, data: st.DataObject, told: list[Fact]
) -> None:
    """The pure machine of the edge and the cloud's statement agree, in any order and split.

    The bus has no sequence numbers, so at one moment the ids decide, at both.
    """
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
        meant.final_weight_kg, meant.image_count, meant.reason,
    )  # fmt: skip
    assert set(found[8]) == meant.announced
    assert tuple(found[9]) == meant.missing


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


async def test_a_final_weight_that_nobody_named_is_the_last_weighing(pool: db.Pool) -> None:
    """C-29: also when the finalized came first and the weights an outage later."""
    one, told = Told(), a_weighing()
    await landed(pool, [one.event(told[4])])
    assert (await state(pool, one.session_id))[5] is None
    await landed(pool, [one.event(fact) for fact in told[:4]])
    found = await state(pool, one.session_id)
    assert (found[0], found[4], found[5], found[9]) == ("finalized", 80.5, 81.0, [])


async def test_what_the_edge_took_from_the_weighings_it_had_gives_way_to_all_of_them(
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


async def test_the_same_session_id_of_two_companies_is_two_sessions(pool: db.Pool) -> None:
    ours = Told()
    theirs = Told(ours.session_id, "t-002")
    await landed(pool, [ours.event(a_weighing()[0]), theirs.event(a_weighing()[4])])
    async with pool.connection() as connection:
        rows = await db.fetch_all(
            connection, "select tenant_id, status from weight_sessions order by 1"
        )
    assert rows == [("t-001", "created"), ("t-002", "finalized")]


async def test_an_image_outside_of_a_session_makes_none(pool: db.Pool) -> None:
    event = msgspec.structs.replace(Told().event(a_weighing()[1]), session_id=None)
    assert await landed(pool, [event]) == 1
    async with pool.connection() as connection:
        assert await db.fetch_value(connection, "select count(*) from weight_sessions") == 0


@pytest.mark.req("RB-28")
async def test_consumers_at_the_same_time_lose_nothing(pool: db.Pool) -> None:
    for _ in range(10):
        one, told = Told(), a_weighing()
        await asyncio.gather(*(landed(pool, [one.event(fact)]) for fact in told))
        found = await state(pool, one.session_id)
        assert (found[0], found[5], found[9]) == ("finalized", 81.0, [])
