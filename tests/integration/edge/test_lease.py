"""Whose turn it is: written interleavings of two holders on a real database (C-102)."""

import asyncio
from collections.abc import AsyncIterator

import psycopg
import pytest
from psycopg import conninfo

from farmiq.lab.simulate import link
from farmiq.plumbing import db
from farmiq.plumbing.runtime import lease
from farmiq.plumbing.runtime.lease import LeaderLease
from tests.conftest import Database
from tests.integration.edge.test_ingress import rows
from tests.integration.edge.test_quarantine import ahead
from tests.support import databases
from tests.support.until import until

WAITS_FOR_A_LOCK = """
select count(*) from pg_stat_activity
where datname = current_database() and application_name = 'frozen' and wait_event_type = 'Lock'
"""


@pytest.fixture
async def pool(edge_db: Database) -> AsyncIterator[db.Pool]:
    async with db.pool(edge_db.url, name="test", max_size=8) as opened:
        yield opened


async def take(pool: db.Pool, holder: str, *, heir: bool = False) -> int | None:
    async with db.transaction(pool) as tx:
        return await lease.take(tx, "door", holder, lasts_s=3600, heir=heir)


async def renew(pool: db.Pool, holder: str, fence: int | None) -> bool:
    async with db.transaction(pool) as tx:
        return await lease.renew(tx, "door", holder, fence, lasts_s=3600)


async def test_lease_of_another_is_acquired_when_it_expires(
    pool: db.Pool, edge_db: Database
) -> None:
    assert await take(pool, "a") == 1
    assert await take(pool, "b") is None
    ahead(edge_db, minutes=55)
    assert await take(pool, "b") is None
    ahead(edge_db, minutes=61)
    assert await take(pool, "b") == 2
    assert not await renew(pool, "a", 1)
    assert await renew(pool, "b", 2)


async def test_renewed_late_is_renewed_if_nobody_took_it(pool: db.Pool, edge_db: Database) -> None:
    assert await take(pool, "a") == 1
    ahead(edge_db, hours=5)
    assert await renew(pool, "a", 1)
    assert await take(pool, "b") is None


async def test_released_lease_is_free_at_once_and_only_its_holder_releases(pool: db.Pool) -> None:
    assert await take(pool, "a") == 1
    async with db.transaction(pool) as tx:
        await lease.give_back(tx, "door", "b", 1)
        await lease.give_back(tx, "door", "a", 7)
    assert await take(pool, "b") is None
    async with db.transaction(pool) as tx:
        await lease.give_back(tx, "door", "a", 1)
    assert await take(pool, "b") == 2


async def test_the_next_process_at_the_same_place_need_not_wait_and_fences_the_last(
    pool: db.Pool,
) -> None:
    assert await take(pool, "a") == 1
    assert await take(pool, "a") is None
    assert await take(pool, "a", heir=True) == 2
    assert not await renew(pool, "a", 1)


async def test_many_ask_at_once_and_one_gets_it(pool: db.Pool) -> None:
    found = await asyncio.gather(*(take(pool, f"h-{n}") for n in range(8)))
    assert (found.count(1), found.count(None)) == (1, 7)


class Worker:
    """Somebody with a turn of its own, and whether it works now."""

    def __init__(self, pool: db.Pool, holder: str, *, lasts_s: float = 1) -> None:
        self.leader = LeaderLease(pool, name="door", holder=holder, lasts_s=lasts_s)
        self.working = False

    async def work(self) -> None:
        self.working = True
        self.leader.started()
        try:
            await asyncio.Event().wait()
        finally:
            self.working = False

    def start(self, tasks: asyncio.TaskGroup) -> "asyncio.Task[None]":
        return tasks.create_task(self.leader.run_as_leader(self.work))


async def test_a_standby_takes_over_when_the_first_stops(
    pool: db.Pool, tasks: asyncio.TaskGroup
) -> None:
    first, second = (Worker(pool, name, lasts_s=60) for name in ("a", "b"))
    assert first.leader.problem() is not None
    running = first.start(tasks)
    await until(lambda: first.working)
    second.start(tasks)
    await until(second.leader.note)
    assert (second.leader.problem(), second.working) == (None, False)
    assert "standby: a is active" in str(second.leader.note())
    running.cancel()
    await until(lambda: second.working)
    assert not first.working
    assert second.leader.note() is None


async def test_who_lost_it_stops_and_stands_by(
    pool: db.Pool, edge_db: Database, tasks: asyncio.TaskGroup
) -> None:
    worker = Worker(pool, "a")
    worker.start(tasks)
    await until(lambda: worker.working)
    await asyncio.to_thread(_given_to_another, edge_db)
    await until(lambda: not worker.working)
    await until(worker.leader.note)
    assert rows(edge_db, "select holder from leases") == [("b",)]


def _given_to_another(database: Database) -> None:
    with databases.connected(database.admin_url) as owner:
        owner.execute(
            "update leases set holder = 'b', fence = fence + 1, "
            "expires_at = now() + interval '50 seconds'"
        )


async def test_whoever_slept_through_its_lease_asks_before_it_goes_on(
    pool: db.Pool, edge_db: Database
) -> None:
    leader = LeaderLease(pool, name="door", holder="a", lasts_s=60)
    await leader.acquire()
    await leader.confirm()
    leader._sure_until = 0.0  # as after a long sleep
    await leader.confirm()
    assert leader._sure_until > 0
    with databases.connected(edge_db.admin_url) as owner:
        owner.execute("update leases set holder = 'b', fence = fence + 1")
    leader._sure_until = 0.0
    asking = asyncio.create_task(leader.confirm())
    await until(leader._lost.is_set)
    assert not asking.done()
    asking.cancel()


async def test_a_turn_that_came_is_a_problem_until_its_work_has_begun(
    pool: db.Pool, tasks: asyncio.TaskGroup
) -> None:
    leader, begin = LeaderLease(pool, name="door", holder="a", lasts_s=60), asyncio.Event()

    async def work() -> None:
        await begin.wait()
        leader.started()
        await asyncio.Event().wait()

    tasks.create_task(leader.run_as_leader(work))
    await until(leader.is_active)
    assert leader.problem() == "it has just become the leader"
    begin.set()
    await until(lambda: leader.problem() is None)


async def _work() -> None:
    await asyncio.Event().wait()


async def test_who_has_the_turn_ends_sessions_that_wait_for_a_frozen_client(
    pool: db.Pool, edge_db: Database, tasks: asyncio.TaskGroup, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a pipeline no timeout of PostgreSQL's does: what it has locked would stay so."""
    monkeypatch.setattr(lease, "FROZEN_S", 0.5)
    leader = LeaderLease(pool, name="door", holder="a", lasts_s=1, works_as="worker")
    url = conninfo.make_conninfo(edge_db.url, application_name="worker")
    with psycopg.connect(url, autocommit=True) as idle, psycopg.connect(url) as frozen:
        with pytest.raises(psycopg.OperationalError), frozen.pipeline():  # noqa: PT012
            assert frozen.execute("select pg_advisory_xact_lock(7)").fetchone()
            tasks.create_task(leader.run_as_leader(_work))
            await until(lambda: rows(edge_db, "select pg_try_advisory_lock(7)") == [(True,)])
            frozen.execute("select 1").fetchone()
        assert idle.execute("select 1").fetchone() == (1,)


async def test_a_holder_frozen_while_it_renews_does_not_keep_the_lease(
    edge_db: Database, pool: db.Pool, tasks: asyncio.TaskGroup
) -> None:
    """The server has done what it was sent, and nothing more comes from the holder."""
    parts = conninfo.conninfo_to_dict(edge_db.url)
    async with (
        link.linked(str(parts["host"]), int(str(parts["port"]))) as to_frozen,
        db.pool(
            conninfo.make_conninfo(edge_db.url, host="127.0.0.1", port=to_frozen.port_here),
            name="frozen",
        ) as frozen_pool,
    ):
        frozen = LeaderLease(frozen_pool, name="door", holder="a", lasts_s=60)
        await frozen.acquire()
        with databases.connected(edge_db.admin_url) as owner:
            owner.execute("select from leases for update")
            renewing = asyncio.create_task(frozen.renew())
            await until(lambda: rows(edge_db, WAITS_FOR_A_LOCK) == [(1,)])
            to_frozen.swallowing = True
        ahead(edge_db, hours=1)
        second = Worker(pool, "b", lasts_s=60)
        second.start(tasks)
        await until(lambda: second.working)
        renewing.cancel()


async def test_work_that_fails_fails_the_turn_and_gives_it_back(
    pool: db.Pool, edge_db: Database
) -> None:
    leader = LeaderLease(pool, name="door", holder="a", lasts_s=60)

    async def fail() -> None:
        raise RuntimeError("on purpose")

    with pytest.raises(RuntimeError, match="on purpose"):
        await leader.run_as_leader(fail)
    assert rows(edge_db, "select expires_at <= now() from leases") == [(True,)]
