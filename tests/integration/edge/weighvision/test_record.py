"""Weigh sessions in the one transaction of ingress."""

import asyncio
import json
from random import Random
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from farmiq.edge.ingress import handlers
from farmiq.edge.ingress.quarantine import Quarantine
from farmiq.messages import bus
from farmiq.messages import weighvision as words
from farmiq.plumbing import db, deadletters, ids
from tests.conftest import Database
from tests.integration.edge.feed.conftest import said as said_as_event
from tests.integration.edge.weighvision.conftest import (
    NEIGHBOUR,
    PLACE,
    STRANGER,
    Message,
    Weighing,
    rows,
    upload,
)
from tests.support.properties import drawn

STATE = """
select status, batch_id, start_at, end_at, initial_weight_kg, final_weight_kg, image_count,
  cancel_reason from weight_sessions where id = %s
"""
OWED = "select event_type, payload_json from sync_outbox order by occurred_at, id"


def state(database: Database, weighing: Weighing) -> tuple[Any, ...]:
    ((*found,),) = rows(database, STATE, weighing.session_id)
    return tuple(found)


@pytest.mark.req("SC-04", "WV-11", "WV-12", "WV-13", "WV-14", "DB-06")
async def test_events_of_a_weighing_become_one_session(pool: db.Pool, stations: Database) -> None:
    one = Weighing()
    image = upload(stations, one)
    messages = [
        one.created(initial_weight_kg=80.0),
        one.captured(image),
        one.weight(80.5),
        one.weight(81.0),
        one.finalized(1, final_weight_kg=81.0),
    ]
    outcome = await handlers.commit(pool, messages)
    assert (outcome.new_count, outcome.rejected) == (5, ())
    assert rows(
        stations,
        "select id, tenant_id, farm_id, barn_id, device_id, station_id, batch_id, status, "
        "initial_weight_kg, final_weight_kg, image_count from weight_sessions",
    ) == [
        (
            one.session_id,
            "t-1",
            "f-1",
            "b-1",
            "scale-1",
            "st-1",
            "lot-7",
            "finalized",
            80.0,
            81.0,
            1,
        )
    ]
    weights = "select weight_kg from weight_session_events where event_type = %s order by seq"
    assert rows(stations, weights, words.WEIGHT_RECORDED) == [(80.5,), (81.0,)]


@pytest.mark.req("RB-17")
async def test_outbox_has_the_events_of_a_session_as_documented(
    pool: db.Pool, stations: Database
) -> None:
    """001, C-96, C-109: every key of the device, and what the edge adds; farm, barn, session."""
    one = Weighing()
    await handlers.commit(
        pool,
        [
            one.created(initial_weight_kg=120.5, probe="left"),
            one.weight(120.75),
            one.finalized(3, final_weight_kg=121.0, inference_result_id="made up"),
        ],
    )
    assert rows(stations, OWED) == [
        (
            words.SESSION_CREATED,
            {
                "status": "created",
                "batch_id": "lot-7",
                "initial_weight_kg": 120.5,
                "probe": "left",
                "station_id": "st-1",
            },
        ),
        (words.WEIGHT_RECORDED, {"weight_kg": 120.75, "station_id": "st-1"}),
        (
            words.SESSION_FINALIZED,
            {
                "status": "finalized",
                "final_weight_kg": 121.0,
                "image_count": 3,
                "inference_result_id": None,
                "station_id": "st-1",
            },
        ),
    ]
    for place in rows(
        stations, "select tenant_id, farm_id, barn_id, device_id, session_id from sync_outbox"
    ):
        assert place == ("t-1", "f-1", "b-1", "scale-1", one.session_id)


async def test_events_in_the_outbox_are_valid_on_the_bus(pool: db.Pool, stations: Database) -> None:
    one, two = Weighing(), Weighing()
    await handlers.commit(
        pool,
        [one.finalized(0), one.created(), one.captured(ids.new()), two.cancelled(), two.weight()],
    )
    found = rows(
        stations,
        "select jsonb_build_object('event_id', id, 'event_type', event_type, 'tenant_id', "
        "tenant_id, 'farm_id', farm_id, 'barn_id', barn_id, 'device_id', device_id, 'session_id', "
        "session_id, 'occurred_at', occurred_at, 'trace_id', trace_id, 'payload', payload_json) "
        "from sync_outbox",
    )
    assert len(found) == 5
    for (event,) in found:
        bus.read(json.dumps(event).encode())


async def test_weights_not_named_by_the_device_are_its_weighings(
    pool: db.Pool, stations: Database
) -> None:
    """C-29: a finalized that goes out before its weights keeps null; a later one has them."""
    early, late = Weighing(), Weighing()
    created, weight, end = early.created(), early.weight(80.5), early.finalized()
    await handlers.commit(pool, [end])
    await handlers.commit(pool, [created, weight])
    await handlers.commit(pool, [late.created(), late.weight(70.0), late.weight(71.0)])
    await handlers.commit(pool, [late.finalized()])
    owed = {
        (session_id, kind): payload.get("final_weight_kg", payload.get("initial_weight_kg"))
        for session_id, kind, payload in rows(
            stations, "select session_id, event_type, payload_json from sync_outbox"
        )
    }
    derived = "select count(*) from sync_outbox where payload_json -> 'weight_derived' = 'true'"
    assert rows(stations, derived) == [(3,)]
    assert owed[early.session_id, words.SESSION_FINALIZED] is None
    assert owed[early.session_id, words.SESSION_CREATED] == 80.5
    assert owed[late.session_id, words.SESSION_FINALIZED] == 71.0
    assert state(stations, early)[4:6] == (80.5, 80.5)
    assert state(stations, late)[4:6] == (70.0, 71.0)


@pytest.mark.req("SC-05")
async def test_events_sent_three_times_give_the_same_session(
    pool: db.Pool, stations: Database
) -> None:
    one, two = Weighing(), Weighing()

    def told(by: Weighing) -> list[Message]:
        return [by.created(), by.weight(), by.captured(UUID(int=5)), by.weight(90), by.finalized()]

    once, thrice = told(one), told(two)
    await handlers.commit(pool, once)
    for _ in range(3):
        await handlers.commit(pool, thrice)
    assert state(stations, one) == state(stations, two)
    counts = "select count(*) from weight_session_events group by session_id"
    assert rows(stations, counts) == [(5,), (5,)]
    assert rows(stations, "select count(*) from sync_outbox") == [(10,)]


@pytest.mark.req("SC-05", "MD-06")
@drawn(25)
@given(data=st.data())
async def test_any_order_repetition_and_split_gives_the_same_session(
    pool: db.Pool, stations: Database, data: st.DataObject
) -> None:
    one = Weighing()
    told = [
        one.created(initial_weight_kg=79.0),
        one.captured(UUID(int=77)),
        one.weight(80.0),
        one.weight(80.5),
        one.finalized(),
        *([one.cancelled()] if data.draw(st.booleans()) else []),
    ]
    mixed = data.draw(
        st.permutations(told + data.draw(st.lists(st.sampled_from(told), max_size=6)))
    )
    cuts = sorted(data.draw(st.sets(st.integers(1, len(mixed) - 1), max_size=4)))
    for begin, end in zip([0, *cuts], [*cuts, len(mixed)], strict=True):
        await handlers.commit(pool, mixed[begin:end])
    status, batch_id, _, _, initial, final, count, reason = state(stations, one)
    assert (status, batch_id, initial, final, count, reason) == (
        "finalized", "lot-7", 79.0, 80.5, 1, None,
    )  # fmt: skip


@pytest.mark.req("MD-06")
@pytest.mark.parametrize("kind", ["weight", "captured", "finalized", "cancelled"])
async def test_any_event_creates_the_session_and_a_late_created_undoes_nothing(
    pool: db.Pool, stations: Database, kind: str
) -> None:
    """C-28, C-108: a stub for whatever comes first."""
    one = Weighing()
    created = one.created()
    first = {
        "weight": one.weight,
        "captured": lambda: one.captured(UUID(int=7)),
        "finalized": one.finalized,
        "cancelled": one.cancelled,
    }[kind]()
    await handlers.commit(pool, [first])
    before = state(stations, one)
    await handlers.commit(pool, [created])
    after = state(stations, one)
    assert before[0] == after[0] == (kind if kind in ("finalized", "cancelled") else "created")
    assert (before[1], after[1]) == (None, "lot-7")
    assert after[2] < before[2]


async def test_earlier_of_two_finalized_counts_and_both_are_sent(
    pool: db.Pool, stations: Database
) -> None:
    one = Weighing()
    first, again = one.finalized(1), one.finalized(9)
    await handlers.commit(pool, [again])
    await handlers.commit(pool, [first, first])
    assert state(stations, one)[6] == 1
    assert rows(stations, "select count(*) from sync_outbox") == [(2,)]


@pytest.mark.req("WV-15")
async def test_image_without_a_session_is_sent_and_creates_none(
    pool: db.Pool, stations: Database
) -> None:
    message = said_as_event(words.IMAGE_CAPTURED, {"media_id": str(ids.new())}, place=PLACE)
    outcome = await handlers.commit(pool, [message])
    assert outcome.rejected == ()
    assert rows(stations, "select count(*) from weight_sessions") == [(0,)]
    assert rows(stations, "select event_type, session_id from sync_outbox") == [
        (words.IMAGE_CAPTURED, None)
    ]


@pytest.mark.req("SC-02")
@pytest.mark.parametrize("other", [NEIGHBOUR, STRANGER], ids=["same company", "another company"])
@pytest.mark.parametrize("together", [True, False])
async def test_event_on_another_devices_session_is_rejected(
    pool: db.Pool, stations: Database, other: Any, *, together: bool
) -> None:
    mine = Weighing()
    theirs = Weighing(place=other, session_id=mine.session_id)
    right, wrong = [mine.created(), mine.weight(80.0)], [theirs.weight(999.0), theirs.finalized()]
    for batch in [[*right, *wrong]] if together else [right, wrong]:
        outcome = await handlers.commit(pool, batch)
    assert len(outcome.rejected) == 2
    assert state(stations, mine)[0] == "created"
    assert rows(stations, "select count(*) from weight_session_events") == [(2,)]
    assert rows(stations, "select count(*) from sync_outbox") == [(2,)]
    ((reason, kind),) = rows(stations, "select distinct reasons[1], kind from quarantine")
    assert reason == f"FOREIGN_SESSION: session {mine.session_id} belongs to another device"
    assert kind == "security"
    assert rows(stations, "select kind, severity, subject, seen_count from alerts") == [
        (
            "ingress.foreign_session",
            "security",
            f"{other.tenant_id}/f-1/b-1/{theirs.place.device_id.replace('scale', 'st')}",
            2,
        )
    ]


@pytest.mark.req("SC-02")
async def test_rejected_event_is_stored_when_it_is_redriven(
    pool: db.Pool, stations: Database
) -> None:
    """It is refused again, not taken for a repeat; with the other session gone it is taken."""
    mine = Weighing()
    theirs = Weighing(place=NEIGHBOUR, session_id=mine.session_id)
    await handlers.commit(pool, [mine.created()])
    await handlers.commit(pool, [theirs.weight()])
    by = Quarantine(handlers.handle, "tester")
    assert (await deadletters.redrive(pool, by, {}, limit=10)).refused == 1
    async with db.transaction(pool) as tx:
        await tx.execute("delete from weight_sessions")
    assert (await deadletters.redrive(pool, by, {}, limit=10)).accepted == 1
    assert rows(stations, "select device_id from weight_sessions") == [("scale-2",)]


@pytest.mark.req("SC-02")
async def test_session_begun_by_two_writers_at_once_has_one_owner(
    pool: db.Pool, stations: Database
) -> None:
    async def kept(message: Message) -> int:
        while True:
            try:
                return len((await handlers.commit(pool, [message])).rejected)
            except db.UNAVAILABLE:  # as the gateway does: the batch is tried again
                continue

    for _ in range(10):
        mine = Weighing()
        theirs = Weighing(place=NEIGHBOUR, session_id=mine.session_id)
        assert sum(await asyncio.gather(kept(mine.created()), kept(theirs.created()))) == 1
    assert rows(stations, "select count(*) from weight_sessions") == [(10,)]


@pytest.mark.req("SC-05")
async def test_two_writers_of_one_session_at_once_lose_no_event(
    pool: db.Pool, stations: Database
) -> None:
    """As a redrive beside the gateway: whoever is second sees what the first wrote."""
    for seed in range(10):
        one = Weighing()
        told = [one.created(), one.weight(70.0), one.weight(71.0), one.finalized()]
        Random(seed).shuffle(told)
        await asyncio.gather(*(handlers.commit(pool, [each]) for each in told))
        status, batch_id, _, _, initial, final, count, _ = state(stations, one)
        assert (status, batch_id, initial, final, count) == ("finalized", "lot-7", 70.0, 71.0, 1)


@pytest.mark.req("DB-06", "DB-07")
async def test_sessions_of_one_batch_do_not_mix(pool: db.Pool, stations: Database) -> None:
    many = [Weighing() for _ in range(50)]
    messages = [each.weight(80.0 + step) for step in range(20) for each in many]
    outcome = await handlers.commit(pool, messages)
    assert outcome.new_count == 1000
    assert rows(
        stations,
        "select count(*), min(initial_weight_kg), max(initial_weight_kg) from weight_sessions",
    ) == [(50, 80.0, 80.0)]
