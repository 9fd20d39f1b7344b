"""Leases of several forwarders on one outbox, as written interleavings on real connections."""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import httpx2
import pytest

from farmiq.config import EdgeSettings
from farmiq.edge.sync import jobs, rules, store
from farmiq.edge.sync.rules import Failure
from farmiq.plumbing import db
from tests.conftest import Database
from tests.integration.edge.sync.owed import (
    accept,
    event,
    force,
    forwarder,
    move_clock,
    owe,
    owe_many,
    rows,
    sent,
)
from tests.support.until import until

LEASE_S = 30


@pytest.fixture
async def one(pool: db.Pool) -> AsyncIterator[db.Connection]:
    async with pool.connection() as connection:
        yield connection


@pytest.fixture
async def two(pool: db.Pool) -> AsyncIterator[db.Connection]:
    async with pool.connection() as connection:
        yield connection


async def claim(tx: db.Connection, who: str, *, limit: int = 10) -> list[rules.Claimed]:
    return await store.claim(tx, "t-1", claimed_by=who, limit=limit, lease_s=LEASE_S)


@pytest.mark.req("OB-18")
async def test_two_claims_at_once_share_nothing_and_wait_for_nothing(
    pool: db.Pool, one: db.Connection, two: db.Connection
) -> None:
    """A claims and does not commit; B claims the rest at once; A rolls back, B gets A's rows."""
    await owe(pool, *[event(minutes=n) for n in range(4)])
    of_a = await claim(one, "a", limit=3)
    of_b = await claim(two, "b")
    assert (len(of_a), len(of_b)) == (3, 1)
    assert not {row.id for row in of_a} & {row.id for row in of_b}
    await two.commit()
    await one.rollback()
    assert {row.id for row in await claim(two, "b")} == {row.id for row in of_a}


@pytest.mark.req("OB-21")
async def test_forwarder_whose_lease_ended_settles_nothing(
    pool: db.Pool, edge_db: Database, settings: EdgeSettings
) -> None:
    """A sends; its lease ends; the reaper frees; B claims, sends and acks; A comes back."""
    await owe(pool, event())
    async with db.transaction(pool) as tx:
        of_a = await claim(tx, "a")
    async with db.transaction(pool) as tx:
        sending = await store.start_sending(tx, of_a, claimed_by="a", lease_s=LEASE_S)
    assert len(sending) == 1
    async with db.transaction(pool) as tx:
        assert await claim(tx, "b") == []  # a row being sent is nobody else's, expired or not
    move_clock(edge_db, timedelta(seconds=LEASE_S + 1))
    async with db.transaction(pool) as tx:
        assert await claim(tx, "b") == []
    assert await jobs.reap(pool, settings) == {"freed": 1, "set_aside": 0}
    move_clock(edge_db, timedelta(seconds=LEASE_S + 5))
    async with db.transaction(pool) as tx:
        (of_b,) = await claim(tx, "b")
    async with db.transaction(pool) as tx:
        assert await store.renew(tx, of_a, claimed_by="a", lease_s=LEASE_S) == 0
        assert await store.acked(tx, sending, claimed_by="a") == 0
        for reason in (None, "x"):
            failure = {sending[0]: Failure(1, "x", "x", 0, reason)}
            assert await store.settle_failed(tx, failure, claimed_by="a") == []
    assert rows(edge_db, "select status, claimed_by from sync_outbox") == [("claimed", "b")]
    async with db.transaction(pool) as tx:
        assert await store.acked(tx, [of_b], claimed_by="b") == 1


async def test_the_same_forwarder_does_not_settle_what_it_claimed_before(
    pool: db.Pool, edge_db: Database
) -> None:
    """The fence is the claim, not the name: A claims, loses, claims again; the old one is dead."""
    await owe(pool, event())
    async with db.transaction(pool) as tx:
        first = await claim(tx, "a")
    move_clock(edge_db, timedelta(seconds=LEASE_S + 1))
    async with db.transaction(pool) as tx:
        (second,) = await claim(tx, "a")
    assert second.reclaimed
    async with db.transaction(pool) as tx:
        assert await store.acked(tx, first, claimed_by="a") == 0
        assert await store.start_sending(tx, first, claimed_by="a", lease_s=LEASE_S) == []


async def test_reclaimed_rows_are_marked_as_sending_before_they_are_sent(
    pool: db.Pool, edge_db: Database, settings: EdgeSettings
) -> None:
    """A fresh row goes out as it is claimed; one that was held by a dead forwarder does not."""
    await owe(pool, event(minutes=1), event(minutes=2))
    force(edge_db, "update sync_outbox set status = 'claimed', claimed_by = 'gone', "
          "claimed_at = now(), lease_expires_at = now() - interval '1 s' where id = "
          "(select id from sync_outbox order by occurred_at limit 1)")  # fmt: skip
    seen: list[list[tuple[object, ...]]] = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        seen.append(rows(edge_db, "select status from sync_outbox order by occurred_at"))
        return accept(request)

    async with forwarder(settings, pool, answer) as it:
        assert await it.forward_once() == 2
    assert seen == [[("claimed",), ("claimed",)], [("sending",), ("acked",)]]


async def test_what_was_lost_before_it_was_sent_is_not_sent(
    pool: db.Pool, edge_db: Database, settings: EdgeSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between claim and mark another one took a row: the batch goes without it."""
    await owe(pool, event(minutes=1), event(minutes=2))
    # Held by one that died: what is claimed from it is marked before it is sent.
    force(edge_db, "update sync_outbox set status = 'claimed', claimed_by = 'gone', "
          "claimed_at = now(), lease_expires_at = now() - interval '1 s'")  # fmt: skip
    seen: list[int] = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        seen.append(len(sent(request)["events"]))
        return accept(request)

    async with forwarder(settings, pool, answer) as it:
        original, taken = it.send_all, False

        async def steal_then_send(*args: Any) -> bool:
            nonlocal taken
            if not taken:
                force(edge_db, "update sync_outbox set claimed_by = 'thief' where id = "
                      "(select id from sync_outbox order by occurred_at limit 1)")  # fmt: skip
                taken = True
            return await original(*args)

        monkeypatch.setattr(it, "send_all", steal_then_send)
        await it.forward_once()
    assert seen == [1]
    found = rows(edge_db, "select status, claimed_by from sync_outbox order by occurred_at")
    assert found == [("claimed", "thief"), ("acked", None)]


@pytest.mark.req("OB-19")
async def test_a_lease_ends_so_many_seconds_after_the_claim(
    pool: db.Pool, edge_db: Database
) -> None:
    await owe(pool, event())
    async with db.transaction(pool) as tx:
        (claimed,) = await claim(tx, "a")
    ((at, ends),) = rows(edge_db, "select claimed_at, lease_expires_at from sync_outbox")
    assert (at, ends - at) == (claimed.claimed_at, timedelta(seconds=LEASE_S))


@pytest.mark.req("OB-20")
async def test_a_batch_that_takes_long_keeps_its_lease(
    pool: db.Pool, edge_db: Database, settings: EdgeSettings, tasks: asyncio.TaskGroup
) -> None:
    """The answer takes three leases; meanwhile nobody else gets the rows."""
    await owe(pool, event())
    may_answer = asyncio.Event()

    async def answer(request: httpx2.Request) -> httpx2.Response:
        await may_answer.wait()
        return accept(request)

    short = settings.model_copy(update={"sync_lease_s": 0.4})
    async with forwarder(short, pool, answer) as it:  # type: ignore[arg-type]
        sending = tasks.create_task(it.forward_once())
        ends = "select lease_expires_at from sync_outbox where status = 'claimed'"
        seen = set(await until(lambda: rows(edge_db, ends)))

        async def renewed_three_times() -> bool:
            seen.update(rows(edge_db, ends))
            assert await jobs.reap(pool, short) == {"freed": 0, "set_aside": 0}
            async with db.transaction(pool) as tx:
                assert await claim(tx, "other") == []
            return len(seen) > 3

        await until(renewed_three_times)
        may_answer.set()
        assert await sending == 1
    assert rows(edge_db, "select status from sync_outbox") == [("acked",)]


@pytest.mark.parametrize("status", ["claimed", "sending"])
async def test_the_reaper_frees_what_is_held_beyond_its_lease_and_counts_it(
    pool: db.Pool, edge_db: Database, settings: EdgeSettings, status: str
) -> None:
    await owe(pool, event(minutes=9))
    async with db.transaction(pool) as tx:
        assert len(await claim(tx, "alive")) == 1
    owe_many(edge_db, 3)
    force(
        edge_db,
        "update sync_outbox set status = %s, claimed_by = 'gone', claimed_at = now(), "
        "lease_expires_at = now() - interval '1 s' where status = 'pending'",
        (status,),
    )
    assert await jobs.reap(pool, settings) == {"freed": 3, "set_aside": 0}
    found = rows(
        edge_db,
        """select status, attempt_count, last_error_code, claimed_by, lease_expires_at,
           next_attempt_at - last_attempt_at between interval '2 s' and interval '3 s'
           from sync_outbox where attempt_count > 0""",
    )
    assert found == [("pending", 1, "LEASE_EXPIRED", None, None, True)] * 3
    alive = rows(edge_db, "select status, attempt_count from sync_outbox where attempt_count = 0")
    assert alive == [("claimed", 0)]


@pytest.mark.parametrize(
    ("attempts", "code", "after"),
    [
        (8, "LEASE_EXPIRED", ("pending", 9, None)),
        (9, "LEASE_EXPIRED", ("dlq", 10, "max_attempts_exceeded")),
        (9, "HTTP_500", ("dlq", 10, "max_attempts_exceeded")),
        (9, "NETWORK_ERROR", ("pending", 1, None)),  # an outage is not held against an event
    ],
)
async def test_an_event_that_kills_its_forwarders_ends_in_the_dlq(  # noqa: PLR0917 - a table
    pool: db.Pool,
    edge_db: Database,
    settings: EdgeSettings,
    attempts: int,
    code: str,
    after: tuple[object, ...],
) -> None:
    owe_many(edge_db, 1, attempts=attempts, code=code)
    force(edge_db, "update sync_outbox set status = 'sending', claimed_by = 'gone', "
          "claimed_at = now(), lease_expires_at = now() - interval '1 s'")  # fmt: skip
    await jobs.reap(pool, settings)
    found = rows(edge_db, "select status, attempt_count, dlq_reason from sync_outbox")
    assert found == [after]
    alerts = rows(edge_db, "select kind, subject from alerts")
    assert alerts == ([("sync.dlq", "t-1")] if after[0] == "dlq" else [])


@pytest.mark.req("OB-03")
async def test_the_sweep_takes_what_has_failed_too_often_but_no_victim_of_an_outage(
    pool: db.Pool, edge_db: Database, settings: EdgeSettings
) -> None:
    """The limit was lowered; a row that only met outages is not to blame."""
    owe_many(edge_db, 2, attempts=5, code="HTTP_500", due=timedelta(hours=1))
    owe_many(edge_db, 2, attempts=5, code="HTTP_503", due=timedelta(hours=1))
    owe_many(edge_db, 2, attempts=4, code="HTTP_500", due=timedelta(hours=1))
    lower = settings.model_copy(update={"sync_max_attempts": 5})
    assert await jobs.sweep(pool, lower) == {"set_aside": 2}
    found = rows(edge_db, "select attempt_count, last_error_code, dlq_reason from sync_outbox "
                 "where status = 'dlq'")  # fmt: skip
    assert found == [(5, "HTTP_500", "max_attempts_exceeded")] * 2


async def test_event_that_crashes_forwarders_ends_alone_in_the_dlq(
    pool: db.Pool, edge_db: Database, settings: EdgeSettings
) -> None:
    """A forwarder dies over a batch again and again; at the end only the killer is set aside."""
    events = [event(minutes=n) for n in range(40)]
    await owe(pool, *events)
    killer = str(events[17].event_id)
    ahead = timedelta(0)

    class DeadError(Exception):
        pass

    def answer(request: httpx2.Request) -> httpx2.Response:
        if any(one["event_id"] == killer for one in sent(request)["events"]):
            raise DeadError
        return accept(request)

    for _ in range(400):
        async with forwarder(settings, pool, answer) as it:
            try:
                await it.forward_once()
            except DeadError:
                ahead += timedelta(seconds=LEASE_S + 1)
        ahead += timedelta(seconds=300)
        move_clock(edge_db, ahead)
        await jobs.reap(pool, settings)
        if not rows(edge_db, "select from sync_outbox where status not in ('acked', 'dlq')"):
            break
    assert rows(edge_db, "select id::text from sync_outbox where status = 'dlq'") == [(killer,)]
    assert rows(edge_db, "select count(*) from sync_outbox where status = 'acked'") == [(39,)]
