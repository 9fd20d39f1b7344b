"""The forwarder on a real outbox, against a cloud that answers as each test wants."""

import asyncio
import json
from datetime import timedelta
from typing import Any
from uuid import UUID

import httpx2
import pytest

from farmiq.config import EdgeSettings
from farmiq.edge.sync import rules, store
from farmiq.edge.sync.rules import Failure
from farmiq.messages import contract
from farmiq.plumbing import db
from tests.conftest import Database
from tests.integration.edge.sync.owed import (
    Answer,
    accept,
    event,
    force,
    forwarder,
    make_due,
    move_clock,
    owe,
    rows,
    sent,
)
from tests.support import databases


@pytest.mark.req("OB-01", "OB-05", "FB-04")
async def test_what_is_owed_is_posted_and_acked(
    settings: EdgeSettings, pool: db.Pool, edge_db: Database
) -> None:
    (event_id,) = await owe(pool, event())
    seen: list[httpx2.Request] = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        seen.append(request)
        return accept(request)

    async with forwarder(settings, pool, answer) as it:
        assert await it.forward_once() == 1
        assert await it.forward_once() == 0
    body = sent(seen[0])
    assert seen[0].url.path == "/api/v1/ingestion/batch"
    assert seen[0].headers["authorization"].startswith("Bearer ")
    assert body["events"] == [
        {
            "event_id": str(event_id),
            "event_type": "telemetry.ingested",
            "tenant_id": "t-1",
            "farm_id": "f",
            "barn_id": "b",
            "device_id": "d",
            "session_id": None,
            "occurred_at": "2025-01-01T00:00:00Z",
            "trace_id": "trace",
            "payload": {"metric_type": "m", "metric_value": 1.0, "unit": "C"},
        }
    ]
    assert rows(edge_db, "select status, claimed_by, lease_expires_at from sync_outbox") == [
        ("acked", None, None)
    ]
    assert rows(edge_db, "select tenant_id, last_acked_event_id from sync_state") == [
        ("t-1", event_id)
    ]


async def test_a_batch_never_mixes_tenants(settings: EdgeSettings, pool: db.Pool) -> None:
    await owe(pool, event("t-1"), event("t-2"), event("t-1"))
    batches: list[set[str]] = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        batches.append({each["tenant_id"] for each in sent(request)["events"]})
        return accept(request)

    async with forwarder(settings, pool, answer) as it:
        await it.forward_once()
    assert sorted(map(sorted, batches)) == [["t-1"], ["t-2"]]


@pytest.mark.req("OB-15", "OB-22")
async def test_a_cloud_that_is_away_costs_no_event(
    settings: EdgeSettings, pool: db.Pool, edge_db: Database
) -> None:
    """However often it fails: pending again, never the dlq; the first success clears the score."""
    await owe(pool, event())

    def gone(_request: httpx2.Request) -> httpx2.Response:
        raise httpx2.ConnectError("no route")

    async with forwarder(settings, pool, gone) as it:
        for _ in range(15):
            assert await it.forward_once() == 1
            make_due(edge_db)
    found = rows(
        edge_db, "select status, attempt_count, last_error_code, claimed_by from sync_outbox"
    )
    assert found == [("pending", 9, "NETWORK_ERROR", None)]
    await owe(pool, event())
    async with forwarder(settings, pool, accept) as it:
        await it.forward_once()
    assert set(rows(edge_db, "select status from sync_outbox")) == {("acked",)}


async def test_a_tenant_whose_cloud_is_away_pauses_and_others_go_on(
    settings: EdgeSettings, pool: db.Pool, edge_db: Database
) -> None:
    await owe(pool, event("away"), event("here"))

    def answer(request: httpx2.Request) -> httpx2.Response:
        if sent(request)["events"][0]["tenant_id"] == "away":
            return httpx2.Response(503, json={"error": {"code": "UNAVAILABLE", "message": "later"}})
        return accept(request)

    async with forwarder(settings, pool, answer) as it:
        await it.forward_once()
        await owe(pool, event("away"))
        assert await it.forward_once() == 0
    found = dict(rows(edge_db, "select tenant_id, paused_until is not null from sync_state"))
    assert found == {"away": True, "here": False}


@pytest.mark.req("OB-14")
async def test_a_failure_is_written_down_with_its_reason_and_the_next_try(
    settings: EdgeSettings, pool: db.Pool, edge_db: Database
) -> None:
    await owe(pool, event())

    def broken(_request: httpx2.Request) -> httpx2.Response:
        return httpx2.Response(500, json={"error": {"code": "INTERNAL", "message": "no disk"}})

    async with forwarder(settings, pool, broken) as it:
        for attempt in (1, 2):
            make_due(edge_db)
            await it.forward_once()
            ((count, code, message, tried, again),) = rows(
                edge_db,
                "select attempt_count, last_error_code, last_error_message, last_attempt_at, "
                "next_attempt_at from sync_outbox",
            )
            assert count == attempt
            assert code
            assert "no disk" in message
            assert tried < again


@pytest.mark.req("DB-15")
async def test_a_tenants_state_names_the_batch_sent_and_the_event_acked_last(
    settings: EdgeSettings, pool: db.Pool, edge_db: Database
) -> None:
    batches: list[str] = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        batches.append(sent(request)["batchId"])
        return accept(request)

    async with forwarder(settings, pool, answer) as it:
        for minutes in (1, 2):
            (event_id,) = await owe(pool, event(minutes=minutes))
            await it.forward_once()
            ((batch, acked, acked_at, failures, paused),) = rows(
                edge_db,
                "select last_sent_batch_id, last_acked_event_id, last_acked_at, "
                "consecutive_failures, paused_until from sync_state",
            )
            assert (batch, acked, failures, paused) == (batches[-1], event_id, 0, None)
            assert acked_at is not None
    assert len(set(batches)) == 2


@pytest.mark.req("BK-10")
async def test_a_forwarder_delivers_within_a_minute_of_its_clouds_return(
    settings: EdgeSettings, pool: db.Pool, edge_db: Database
) -> None:
    """Measured on the edge's clock, after an outage long enough for the longest pause.

    The farm has sent nothing since: nothing new brings along what waits.
    """
    await owe(pool, event())
    away = True

    def answer(request: httpx2.Request) -> httpx2.Response:
        if away:
            raise httpx2.ConnectError("no route")
        return accept(request)

    async with forwarder(settings, pool, answer) as it:
        for minutes in range(30):
            move_clock(edge_db, timedelta(minutes=minutes))
            await it.forward_once()
        away = False
        move_clock(edge_db, timedelta(minutes=29, seconds=59))
        await it.forward_once()
    assert rows(edge_db, "select status from sync_outbox") == [("acked",)]


@pytest.mark.req("OB-16")
async def test_ten_failures_of_its_own_set_an_event_aside(
    settings: EdgeSettings, pool: db.Pool, edge_db: Database
) -> None:
    await owe(pool, event())

    def broken(_request: httpx2.Request) -> httpx2.Response:
        return httpx2.Response(500, json={"error": {"message": "oops"}})

    async with forwarder(settings, pool, broken) as it:
        for _ in range(10):
            await it.forward_once()
            make_due(edge_db)
        assert await it.forward_once() == 0
    assert rows(
        edge_db,
        """select status, attempt_count, dlq_reason, last_error_code, failed_at is not null,
           claimed_by, claimed_at, lease_expires_at from sync_outbox""",
    ) == [("dlq", 10, "max_attempts_exceeded", "HTTP_500", True, None, None, None)]


async def test_a_failure_after_a_long_outage_is_the_first_and_not_the_last(
    settings: EdgeSettings, pool: db.Pool, edge_db: Database
) -> None:
    await owe(pool, event())

    def portal(_request: httpx2.Request) -> httpx2.Response:
        return httpx2.Response(200, text="<html>please sign in to the guest network</html>")

    async with forwarder(settings, pool, portal) as it:
        for _ in range(15):
            await it.forward_once()
            make_due(edge_db)
    found = rows(edge_db, "select status, attempt_count, last_error_code from sync_outbox")
    assert found == [("pending", 9, "NOT_OUR_CLOUD")]

    def broken(_request: httpx2.Request) -> httpx2.Response:
        return httpx2.Response(500, json={"error": {"code": "ERROR", "message": "oops"}})

    async with forwarder(settings, pool, broken) as it:
        await it.forward_once()
    found = rows(edge_db, "select status, attempt_count, last_error_code from sync_outbox")
    assert found == [("pending", 1, "HTTP_500")]


async def test_one_poisonous_event_is_found_and_the_rest_is_delivered(
    settings: EdgeSettings, pool: db.Pool, edge_db: Database
) -> None:
    events = [event(minutes=n) for n in range(20)]
    await owe(pool, *events)
    poison = str(events[7].event_id)

    def answer(request: httpx2.Request) -> httpx2.Response:
        if poison in json.dumps(sent(request)):
            return httpx2.Response(500, json={"error": {"code": "ERROR", "message": "oops"}})
        return accept(request)

    async with forwarder(settings, pool, answer) as it:
        await it.forward_once()
    found = dict(rows(edge_db, "select status, count(*) from sync_outbox group by 1"))
    assert found == {"acked": 19, "pending": 1}
    assert rows(edge_db, "select id from sync_outbox where attempt_count = 1") == [
        (events[7].event_id,)
    ]


def failing_on(poison: set[str], seen: list[int]) -> Answer:
    """A cloud that fails on batches with one of these in it, on every batch if there are none."""

    def answer(request: httpx2.Request) -> httpx2.Response:
        batch = {each["event_id"] for each in sent(request)["events"]}
        seen.append(len(batch))
        if not poison or poison & batch:
            return httpx2.Response(500, json={"error": {"code": "ERROR", "message": "oops"}})
        return accept(request)

    return answer


async def test_a_cloud_that_fails_on_everything_is_asked_a_dozen_times_and_then_pauses(
    settings: EdgeSettings, pool: db.Pool, edge_db: Database
) -> None:
    await owe(pool, *[event(minutes=n) for n in range(200)])
    seen: list[int] = []
    async with forwarder(settings, pool, failing_on(set(), seen)) as it:
        await it.forward_once()
        assert len(seen) <= 12
        assert await it.forward_once() == 0, "the tenant pauses"
        # Fewer than an event's ten attempts: all are due, so the same may be tried each time.
        for _ in range(8):
            make_due(edge_db)
            await it.forward_once()
    assert len(seen) <= 27
    paused = "select consecutive_failures, paused_until > now() from sync_state"
    assert rows(edge_db, paused) == [(9, True)]
    # A failure of a batch counts against no event, one alone does (C-12).
    counted = "select count(*) from sync_outbox where last_error_code = 'HTTP_500'"
    assert 2 <= rows(edge_db, counted)[0][0] <= seen.count(1)
    async with forwarder(settings, pool, accept) as it:
        for _ in range(5):
            make_due(edge_db)
            await it.forward_once()
    assert rows(edge_db, "select distinct status from sync_outbox") == [("acked",)]


@pytest.mark.parametrize("bad", [[0, 1, 2, 3], [196, 197, 198, 199], [0, 199], [*range(90, 110)]])
async def test_poisonous_neighbours_do_not_hold_the_others_up(
    settings: EdgeSettings, pool: db.Pool, edge_db: Database, bad: list[int]
) -> None:
    events = [event(minutes=n) for n in range(200)]
    await owe(pool, *events)
    poison = {str(events[n].event_id) for n in bad}
    async with forwarder(settings, pool, failing_on(poison, [])) as it:
        for _ in range(20):
            make_due(edge_db)
            await it.forward_once()
    left = {
        str(each) for (each,) in rows(edge_db, "select id from sync_outbox where status <> 'acked'")
    }
    assert left == poison


@pytest.mark.req("UP-04")
async def test_event_that_met_a_slow_cloud_alone_says_that_the_cloud_is_older(
    settings: EdgeSettings, pool: db.Pool, edge_db: Database
) -> None:
    """What the cloud says of an event itself is newer than what was supposed of it before."""
    events = [event(minutes=n) for n in range(2)]
    await owe(pool, *events)
    is_slow = True

    def answer(request: httpx2.Request) -> httpx2.Response:
        ids_sent = [one["event_id"] for one in sent(request)["events"]]
        if str(events[1].event_id) not in ids_sent:
            return accept(request)
        if is_slow:
            raise httpx2.ReadTimeout("slow", request=request)
        index = ids_sent.index(str(events[1].event_id))
        body = {"error": {"message": "no", "details": [{"index": index, "reason": "new"}]}}
        return httpx2.Response(400, json=body)

    codes = "select status, last_error_code from sync_outbox where status <> 'acked'"
    async with forwarder(settings, pool, answer) as it:
        await it.forward_once()
        assert rows(edge_db, codes) == [("pending", "ALONE_NETWORK_ERROR")]
        is_slow = False
        make_due(edge_db)
        await it.forward_once()
    assert rows(edge_db, codes) == [("pending", "CLOUD_OLDER")]


@pytest.mark.req("UP-04")
@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        (
            {contract.HEADER: str(contract.CONTRACT)},
            ("dlq", "rejected:VALIDATION_ERROR", "bad unit"),
        ),
        ({}, ("pending", None, "bad unit")),
        ({contract.HEADER: "1"}, ("pending", None, "bad unit")),
        ({contract.HEADER: "odd"}, ("pending", None, "bad unit")),
    ],
)
async def test_refused_events_go_aside_and_the_rest_goes_again_at_once(
    settings: EdgeSettings,
    pool: db.Pool,
    edge_db: Database,
    headers: dict[str, str],
    expected: tuple[Any, ...],
) -> None:
    """A cloud of an earlier version may know them when it is upgraded: they wait."""
    events = [event(minutes=n) for n in range(3)]
    await owe(pool, *events)

    def answer(request: httpx2.Request) -> httpx2.Response:
        events_sent = sent(request)["events"]
        if len(events_sent) == 3:
            details = [{"index": 1, "event_id": events_sent[1]["event_id"], "reason": "bad unit"}]
            body = {"error": {"message": "no", "details": details}}
            return httpx2.Response(400, json=body, headers=headers)
        return accept(request)

    async with forwarder(settings, pool, answer) as it:
        await it.forward_once()
    found = rows(
        edge_db, "select status, dlq_reason, last_error_message from sync_outbox order by id"
    )
    assert found == [
        ("acked", None, None),
        expected,
        ("acked", None, None),
    ]


@pytest.mark.req("OB-10")
@pytest.mark.parametrize("status", ["pending", "claimed", "sending", "acked", "dlq", "failed"])
@pytest.mark.parametrize("due", [True, False])
@pytest.mark.parametrize("lease", ["none", "expired", "valid"])
@pytest.mark.parametrize("attempts", [0, 3])
async def test_eligible_is_exactly_what_the_document_says(
    pool: db.Pool, edge_db: Database, status: str, *, due: bool, lease: str, attempts: int
) -> None:
    await owe(pool, event())
    ends = {"none": None, "expired": "-1 second", "valid": "1 minute"}[lease]
    force(
        edge_db,
        """
        update sync_outbox set status = %s, next_attempt_at = now() + %s::interval,
          attempt_count = %s,
          claimed_by = case when %s::text is null then null else 'other' end,
          lease_expires_at = now() + %s::interval
        """,
        (status, "-1 second" if due else "1 minute", attempts, ends, ends),
    )
    async with db.transaction(pool) as tx:
        claimed = await store.claim(tx, "t-1", claimed_by="me", limit=10, lease_s=30)
    expected = status in ("pending", "claimed") and due and lease != "valid"
    assert bool(claimed) is expected


@pytest.mark.req("OB-11", "OB-12")
async def test_higher_priority_first_then_the_oldest(pool: db.Pool, edge_db: Database) -> None:
    events = [event(minutes=n) for n in (3, 1, 2)]
    await owe(pool, *events)
    with databases.connected(edge_db.admin_url) as connection:
        connection.execute(
            "update sync_outbox set priority = 5 where id = %s", (events[0].event_id,)
        )
    order = []
    for _ in events:
        async with db.transaction(pool) as tx:
            order += [
                row.id for row in await store.claim(tx, "t-1", claimed_by="x", limit=1, lease_s=30)
            ]
    assert order == [events[0].event_id, events[1].event_id, events[2].event_id]


@pytest.mark.req("OB-18")
async def test_many_claimers_never_share_a_row(pool: db.Pool) -> None:
    await owe(pool, *[event(minutes=n % 50) for n in range(10_000)])

    async def claim_all(name: str) -> list[UUID]:
        mine: list[UUID] = []
        while True:
            async with db.transaction(pool) as tx:
                taken = await store.claim(tx, "t-1", claimed_by=name, limit=100, lease_s=60)
            if not taken:
                return mine
            mine += [row.id for row in taken]

    shares = await asyncio.gather(*(claim_all(f"claimer-{n}") for n in range(8)))
    everything = [event_id for share in shares for event_id in share]
    assert len(everything) == len(set(everything)) == 10_000


async def test_a_forwarder_that_lost_its_lease_settles_nothing(
    pool: db.Pool, edge_db: Database
) -> None:
    """Written interleaving: A claims, its lease ends, B claims, A comes back and acks."""
    await owe(pool, event())
    async with db.transaction(pool) as tx:
        of_a = await store.claim(tx, "t-1", claimed_by="a", limit=1, lease_s=30)
    with databases.connected(edge_db.admin_url) as connection:
        connection.execute("update sync_outbox set lease_expires_at = now() - interval '1 s'")
    async with db.transaction(pool) as tx:
        of_b = await store.claim(tx, "t-1", claimed_by="b", limit=1, lease_s=30)
    async with db.transaction(pool) as tx:
        await store.acked(tx, of_a, claimed_by="a")
    assert rows(edge_db, "select status, claimed_by from sync_outbox") == [("claimed", "b")]
    async with db.transaction(pool) as tx:
        await store.acked(tx, of_b, claimed_by="b")
    assert rows(edge_db, "select status from sync_outbox") == [("acked",)]


async def test_leases_and_retries_end_by_the_clock_that_tests_move(
    pool: db.Pool, edge_db: Database
) -> None:
    """Both ways: what is owed on a clock that runs behind is due on that clock (C-101)."""

    def move(hours: int) -> None:
        move_clock(edge_db, timedelta(hours=hours))

    async def claim() -> list[rules.Claimed]:
        async with db.transaction(pool) as tx:
            return await store.claim(tx, "t-1", claimed_by="one", limit=10, lease_s=3600)

    move(-30)
    await owe(pool, event())
    assert len(await claim()) == 1
    assert await claim() == []  # the lease holds
    move(-28)
    (again,) = await claim()
    assert again.reclaimed
    async with db.transaction(pool) as tx:
        await store.settle_failed(tx, {again: Failure(1, "x", "x", 7_200)}, claimed_by="one")
    move(-27)
    assert await claim() == []
    move(-25)
    assert len(await claim()) == 1
