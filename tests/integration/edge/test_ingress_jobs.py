"""The door's jobs on a real database: ids, sequence numbers, disks, the diary of chores."""

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from random import Random

import psycopg
import pytest
from hypothesis import given
from hypothesis import strategies as st

from farmiq.config import EdgeSettings, SettingsError
from farmiq.edge import alerts, audit, daily, losses
from farmiq.edge.disk import Usage, read_usage
from farmiq.edge.ingress import handlers, jobs, rules, store
from farmiq.edge.ingress.jobs import DiskGuard, Shed
from farmiq.edge.ingress.rules import Seen
from farmiq.plumbing import db, ids, log, retention
from farmiq.plumbing.retention import Retention
from farmiq.plumbing.runtime import lease, schedule
from farmiq.plumbing.runtime.schedule import Daily
from tests.conftest import Database
from tests.integration.edge.feed.conftest import PLACE, said
from tests.integration.edge.test_ingress import TOPIC, message, rows
from tests.integration.edge.test_quarantine import ahead, settings
from tests.support import databases
from tests.support.properties import drawn
from tests.support.until import until

AT = datetime(2025, 1, 2, tzinfo=UTC)


@pytest.fixture
async def pool(edge_db: Database) -> AsyncIterator[db.Pool]:
    async with db.pool(edge_db.url, name="test") as opened:
        yield opened


# --- ids


@pytest.mark.req("DD-06", "RT-05", "RT-13")
@pytest.mark.parametrize(
    ("given_hours", "ttl"), [({}, 72), ({"INGRESS_DEDUPE_TTL_HOURS": "30"}, 30)]
)
async def test_ids_are_forgotten_after_their_time_and_not_before(
    pool: db.Pool, edge_db: Database, given_hours: dict[str, str], ttl: int
) -> None:
    own = settings(edge_db, **given_hours)
    await handlers.commit(pool, [(TOPIC, message()) for _ in range(3)])
    ahead(edge_db, hours=ttl, minutes=-1)
    assert await jobs.purge_ids(pool, own) == {"count": 0}
    ahead(edge_db, hours=ttl, minutes=1)
    assert await jobs.purge_ids(pool, own) == {"count": 3}
    assert rows(edge_db, "select count(*) from ingress_dedupe") == [(0,)]


@pytest.mark.req("DD-07")
async def test_the_dedupe_is_bounded_by_its_time_however_much_comes(
    pool: db.Pool, edge_db: Database
) -> None:
    """A load without end at a steady rate: the table holds one TTL's worth, in portions."""
    own = settings(edge_db, INGRESS_DEDUPE_TTL_HOURS="1")
    per_round = 3 * retention.BATCH_ROWS
    most = 0
    for hour in range(4):
        ahead(edge_db, hours=hour, minutes=hour)
        with databases.connected(edge_db.admin_url) as owner:
            owner.execute(
                "insert into ingress_dedupe (tenant_id, event_id, first_seen_at, content_hash) "
                "select 't', gen_random_uuid(), fn_now(), '' from generate_series(1, %s)",
                (per_round,),
            )
        await jobs.purge_ids(pool, own)
        most = max(most, rows(edge_db, "select count(*) from ingress_dedupe")[0][0])
    assert most == per_round


@pytest.mark.req("DD-06", "RT-12")
async def test_chores_run_as_often_as_the_documents_ask(pool: db.Pool, edge_db: Database) -> None:
    made = jobs.jobs_of(pool, settings(edge_db), is_active=jobs.always_active)
    schedule = {job.name: job for job in made}
    assert 15 * 60 <= schedule["ingress.dedupe"].every_s <= 60 * 60
    daily = schedule["ingress.retention"].daily
    assert daily is not None
    assert (str(daily.at), str(daily.zone)) == ("02:00:00", "UTC")


@pytest.mark.req("RT-12")
async def test_what_is_over_its_time_goes_by_itself_while_the_upkeep_runs(
    pool: db.Pool, edge_db: Database, tasks: asyncio.TaskGroup
) -> None:
    await handlers.commit(pool, [(TOPIC, message())])
    ahead(edge_db, hours=73)
    for job in jobs.jobs_of(pool, settings(edge_db), is_active=jobs.always_active):
        tasks.create_task(schedule.run_repeatedly(job))
    await until(lambda: rows(edge_db, "select count(*) from ingress_dedupe") == [(0,)])
    done = "select count(*) from chore_runs where chore = 'ingress.retention'"
    await until(lambda: rows(edge_db, done) == [(1,)])


async def test_a_replay_after_the_ids_are_forgotten_still_has_one_effect(
    pool: db.Pool, edge_db: Database
) -> None:
    raw = message()
    await handlers.commit(pool, [(TOPIC, raw)])
    ahead(edge_db, hours=73)
    await jobs.purge_ids(pool, settings(edge_db))
    await handlers.commit(pool, [(TOPIC, raw)])
    assert rows(edge_db, "select count(*) from telemetry_raw") == [(1,)]
    assert rows(edge_db, "select count(*) from sync_outbox") == [(1,)]


@pytest.mark.parametrize(("hours", "level"), [("96", None), ("72", "info"), ("71", "warning")])
def test_short_dedupe_ttl_is_logged_at_the_start(
    edge_db: Database, monkeypatch: pytest.MonkeyPatch, hours: str, level: str | None
) -> None:
    said: list[str] = []

    class Log:
        def info(self, *_: object, **__: object) -> None:
            said.append("info")

        def warning(self, *_: object, **__: object) -> None:
            said.append("warning")

    monkeypatch.setattr(log, "get", lambda _: Log())
    own = settings(edge_db, INGRESS_DEDUPE_TTL_HOURS=hours)
    jobs.log_ttl(own.dedupe_ttl_hours)
    assert said == ([level] if level else [])


# --- sequence numbers


async def note(pool: db.Pool, seqs: list[int], device_id: str, boot_id: str = "b") -> None:
    async with db.transaction(pool) as tx:
        await store.note_seqs(tx, [Seen("t", device_id, boot_id, rules.spans(seqs), AT)])


async def seen(pool: db.Pool, device_id: str) -> store.Boot:
    async with pool.connection() as connection:
        (boot,) = [
            boot for boot in await store.boots(connection) if boot.seen.device_id == device_id
        ]
    return boot


@drawn(40)
@given(
    seqs=st.sets(st.integers(-(2**53) + 1, 2**53 - 1) | st.integers(0, 80), min_size=1),
    rng=st.randoms(use_true_random=False),
)
def test_any_order_and_split_gives_the_same_in_the_database(
    edge_db: Database, seqs: set[int], rng: Random
) -> None:
    async def go() -> None:
        device_id = f"d-{ids.new()}"
        sent = [*seqs, *rng.choices(sorted(seqs), k=5)]
        rng.shuffle(sent)
        async with db.pool(edge_db.url, name="test", max_size=1) as pool:
            while sent:
                cut = rng.randint(1, len(sent))
                await note(pool, sent[:cut], device_id)
                sent = sent[cut:]
            boot = await seen(pool, device_id)
        assert boot.seen.spans == rules.spans(seqs)
        assert boot.forgotten == 0
        assert (boot.missing_since is None) == (len(boot.seen.spans) == 1)

    asyncio.run(go())


async def test_gaps_are_few_however_many_numbers_are_left_out(pool: db.Pool) -> None:
    for start in range(0, 2_000, 100):
        await note(pool, list(range(start, start + 100, 2)), "even")
    boot = await seen(pool, "even")
    assert len(rules.missing([boot.seen])) == rules.MAX_GAPS
    assert boot.forgotten + rules.MAX_GAPS == 999
    assert boot.seen.spans[-1] == (1998, 1998)
    await note(pool, [10**9], "even")
    assert (await seen(pool, "even")).seen.spans[-1] == (10**9, 10**9)


async def test_numbers_that_come_in_any_order_within_a_thousand_leave_no_trace(
    pool: db.Pool,
) -> None:
    rng = Random(7)
    for start in range(0, 10_000, 1_000):
        block = list(range(start, start + 1_000))
        rng.shuffle(block)
        for first in range(0, 1_000, 100):
            await note(pool, block[first : first + 100], "shuffled")
    boot = await seen(pool, "shuffled")
    assert (boot.seen.spans, boot.forgotten, boot.missing_since) == (((0, 9_999),), 0, None)


async def test_old_boots_and_too_many_of_them_are_forgotten(
    pool: db.Pool, edge_db: Database
) -> None:
    for n in range(jobs.MAX_BOOTS + 5):
        ahead(edge_db, minutes=n)
        await note(pool, [n], "reborn", f"boot-{n}")
    assert await jobs.purge_boots(pool) == {"count": 5}
    found = rows(edge_db, "select count(*), min(lower(seen)) from device_seq")
    assert found == [(jobs.MAX_BOOTS, 5)]
    ahead(edge_db, days=91)
    await jobs.purge_boots(pool)
    assert rows(edge_db, "select count(*) from device_seq") == [(0,)]


async def test_numbers_of_refused_messages_are_missing_until_they_are_redriven(
    pool: db.Pool, edge_db: Database
) -> None:
    await handlers.commit(
        pool, [(TOPIC, message(seq=n, tenant_id="t-1" if n != 2 else "t-2")) for n in (1, 2, 3)]
    )
    ((spans,),) = rows(edge_db, "select seen::text from device_seq")
    assert spans == "{[1,2),[3,4)}"


# --- the rest


def delivered(database: Database) -> None:
    """The cloud has everything."""
    with databases.connected(database.admin_url) as owner:
        for status in ("claimed", "acked"):
            owner.execute("update sync_outbox set status = %s", (status,))


@pytest.mark.req("RT-12", "RT-13")
@pytest.mark.parametrize("days", [400, 50])
async def test_what_is_over_its_time_goes_and_what_the_cloud_is_owed_stays(
    pool: db.Pool, edge_db: Database, days: int
) -> None:
    names = ("AUDIT_RETENTION_DAYS", "LOSS_RETENTION_DAYS", "BARN_RETENTION_DAYS")
    own = settings(edge_db, **({} if days == 400 else dict.fromkeys(names, str(days))))
    record = {
        "record_id": "r-1", "record_type": "mortality", "value": 2, "unit": "birds",
        "recorded_by_ref": "u-1", "recorded_at": "2025-01-02T10:00:00Z",
    }  # fmt: skip
    await handlers.commit(pool, [said("barn.record.created", record)])
    async with db.transaction(pool) as tx:
        for kind in ("closed", "open"):
            await alerts.raise_(tx, alerts.Alert(kind, "x", "info", "m"))
        await alerts.close(tx, kind="closed", subject="x")
        await audit.note(tx, actor="a", action="b", subject="c")
        await losses.of_quarantine(tx, [PLACE], reason="r")

    async def left(days: int) -> list[tuple[int, ...]]:
        ahead(edge_db, days=days, minutes=1)
        await retention.purge(pool, *jobs.records(own))
        return rows(
            edge_db,
            "select (select count(*) from alerts), (select count(*) from audit_log), "
            "(select count(*) from loss_ledger), (select count(*) from barn_records)",
        )

    assert await left(min(days, 90) - 1) == [(2, 1, 1, 1)]
    assert await left(days - 1) == [(1 if days == 400 else 2, 1, 1, 1)]
    assert await left(days) == [(1 if days == 400 else 2, 0, 1, 1)]
    delivered(edge_db)
    assert await left(days) == [(1 if days == 400 else 2, 0, 0, 0)]
    assert await left(9_000) == [(1, 0, 0, 0)]


async def test_the_services_cannot_empty_the_audit_log_nor_the_ledger(
    pool: db.Pool, edge_db: Database
) -> None:
    async with db.transaction(pool) as tx:
        await audit.note(tx, actor="a", action="b", subject="c")
        await losses.of_quarantine(tx, [PLACE], reason="r")
    for statement in ("delete from audit_log", "delete from loss_ledger"):
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            async with db.transaction(pool) as tx:
                await tx.execute(statement.encode())
    ahead(edge_db, days=29)
    for table in ("audit", "losses"):
        assert await retention.purge(pool, Retention("", "", 0, function=f"fn_forget_{table}")) == 0


# --- disks


def alert(database: Database) -> list[tuple[str, bool]]:
    found = rows(database, "select severity, closed_at is null from alerts where subject = 'disk'")
    return [(severity, is_open) for severity, is_open in found]


class Disk:
    """A disk that says what we want, and gets a little emptier with each thing removed."""

    def __init__(self, percent: float, gain: float = 0.0) -> None:
        self.percent, self.gain = percent, gain
        self.asked: list[str] = []

    def read(self, _path: str) -> Usage:
        return Usage(10_000, round(10_000 - 100 * self.percent))

    def shedders(self, *names: str, empty: str = "") -> dict[str, Shed]:
        def make(name: str) -> Shed:
            async def do() -> int:
                self.asked.append(name)
                self.percent -= self.gain
                return 0 if name in empty else 7

            return do

        return {name: make(name) for name in names}


async def test_the_disk_is_watched_and_the_alert_closes_by_itself(
    pool: db.Pool, edge_db: Database
) -> None:
    disk = Disk(84)
    guard = DiskGuard(pool, settings(edge_db), read=disk.read, order=disk.shedders("a"))
    for percent, told in (
        (84, []),
        (86, [("warning", True)]),
        (93, [("critical", True)]),
        (50, [("critical", False)]),
    ):
        disk.percent = percent
        await guard.look()
        assert alert(edge_db) == told
    assert disk.asked == ["a"]


async def test_disk_guard_sheds_in_order_and_stops_when_there_is_room(
    pool: db.Pool, edge_db: Database
) -> None:
    disk = Disk(95, gain=2)
    order = disk.shedders("a", "b", "c", "d")
    guard = DiskGuard(pool, settings(edge_db), read=disk.read, order=order)
    for asked in (["a"], ["a", "b"], ["a", "b"]):
        await guard.look()
        assert disk.asked == asked
    ((said, state),) = rows(edge_db, "select message, severity from alerts")
    assert "91 % full" in said
    assert state == "warning"
    # It was enough for a while: the next time begins with the first again.
    disk.percent = 99
    await guard.look()
    assert disk.asked == ["a", "b", "a"]


async def test_room_that_shows_a_moment_later_spares_the_next_step(
    pool: db.Pool, edge_db: Database
) -> None:
    """PostgreSQL gives deleted rows' room back later than it says that they are gone."""
    disk = Disk(95)
    order = disk.shedders("a", "b")
    guard = DiskGuard(pool, settings(edge_db), read=disk.read, order=order)
    assert (await guard.look())["count"] == 7
    disk.percent = 80
    await guard.look()
    assert disk.asked == ["a"]


async def test_a_step_without_effect_costs_no_round_and_the_last_is_followed_by_the_first(
    pool: db.Pool, edge_db: Database
) -> None:
    disk = Disk(99)
    order = disk.shedders("a", "b", "c", empty="b")
    guard = DiskGuard(pool, settings(edge_db), read=disk.read, order=order)
    for asked in ("a", "abc", "abca"):
        await guard.look()
        assert "".join(disk.asked) == asked
    nothing = Disk(99)
    order = nothing.shedders("a", "b", empty="ab")
    assert await DiskGuard(pool, settings(edge_db), read=nothing.read, order=order).look() == {
        "count": 0, "status": "shed",
    }  # fmt: skip
    assert nothing.asked == ["a", "b"]


async def test_what_it_sheds_first_is_half_of_quarantine_and_then_expired_ids(
    pool: db.Pool, edge_db: Database
) -> None:
    own = settings(edge_db, QUARANTINE_MAX_BYTES=str(2**20))
    await handlers.commit(pool, [(TOPIC, message())])
    await handlers.commit(pool, [(TOPIC, bytes([n]) * 100_000) for n in range(9)])
    with databases.connected(edge_db.admin_url) as owner:
        owner.execute("update ingress_dedupe set first_seen_at = now() - interval '4 days'")
    names = list(jobs.shedders(pool, own))
    assert names[:2] == ["quarantine", "dedupe"]
    guard = DiskGuard(pool, own, read=Disk(99).read)
    await guard.look()
    assert rows(edge_db, "select count(*) from ingress_dedupe") == [(1,)]
    await guard.look()
    ((left,),) = rows(edge_db, "select count(*) from quarantine")
    assert left == 5
    assert rows(edge_db, "select sum(count)::int from loss_ledger") == [(4,)]
    assert rows(edge_db, "select count(*) from ingress_dedupe") == [(0,)]
    for table in ("telemetry_raw", "sync_outbox where event_type = 'telemetry.ingested'"):
        assert rows(edge_db, f"select count(*) from {table}") == [(1,)]  # noqa: S608


OPEN = "select subject from alerts where kind = 'edge.disk' and closed_at is null order by 1"


async def test_disk_that_cannot_be_measured_raises_an_alert_and_others_are_measured(
    pool: db.Pool, edge_db: Database
) -> None:
    disk = Disk(99)

    def read(path: str) -> Usage:
        return disk.read(path) if path == "/" else read_usage(path)

    def guard(paths: str) -> DiskGuard:
        own = settings(edge_db, EDGE_DISK_PATHS=paths)
        return DiskGuard(pool, own, read=read, order=disk.shedders("a"))

    await guard("/,/no/such/place,/nor/this").look()
    assert disk.asked == ["a"]
    blind = [("measuring /no/such/place",), ("measuring /nor/this",)]
    assert rows(edge_db, OPEN) == [("disk",), *blind]
    # Nothing can be said of a disk that is not measured: what was open stays.
    assert await guard("/no/such/place,/nor/this").look() == {"count": 0}
    assert rows(edge_db, OPEN) == [("disk",), *blind]
    # Mended and started anew: also what an older version left open closes.
    async with db.transaction(pool) as tx:
        await alerts.raise_(tx, alerts.Alert("edge.disk", "measuring", "warning", "blind"))
    await guard("/,/nor/this").look()
    assert rows(edge_db, OPEN) == [("disk",), ("measuring /nor/this",)]
    disk.percent = 50
    await guard("/").look()
    assert rows(edge_db, OPEN) == []


async def test_a_standby_measures_its_own_disk_and_leaves_the_rest_to_the_active_one(
    pool: db.Pool, edge_db: Database
) -> None:
    ours, theirs = Disk(99), Disk(50)
    mine = True
    own = settings(edge_db)
    active = DiskGuard(
        pool, own, read=ours.read, order=ours.shedders("a", empty="a"), is_active=lambda: mine
    )
    standby = DiskGuard(
        pool, own, read=theirs.read, order=theirs.shedders("a"), is_active=lambda: not mine
    )
    await active.look()
    for percent in (50, 99):
        theirs.percent = percent
        assert await standby.look() == {"count": 0}
        assert jobs.DISK.labels(path="/")._value.get() == percent
    blind = settings(edge_db, EDGE_DISK_PATHS="/no/such/place")
    made = jobs.jobs_of(pool, blind, is_active=lambda: False)
    await next(job for job in made if job.name == "edge.disk").do()
    assert (theirs.asked, alert(edge_db)) == ([], [("critical", True)])
    assert rows(edge_db, OPEN) == [("disk",)]
    mine, theirs.percent = False, 50
    await standby.look()
    assert alert(edge_db) == [("critical", False)]


async def test_leader_is_active_only_while_it_holds_the_lease(
    pool: db.Pool, tasks: asyncio.TaskGroup
) -> None:
    turns = [
        lease.LeaderLease(pool, name="gateway", holder=holder, lasts_s=30)
        for holder in ("one", "two")
    ]
    assert [leader.is_active() for leader in turns] == [False, False]

    async def work() -> None:
        await asyncio.Event().wait()

    working = [tasks.create_task(leader.run_as_leader(work)) for leader in turns]
    await until(lambda: [leader.is_active() for leader in turns].count(True) == 1)
    first = turns.index(next(leader for leader in turns if leader.is_active()))
    working[first].cancel()
    await until(lambda: [leader.is_active() for leader in turns] == [first == 1, first == 0])
    working[1 - first].cancel()


# --- the diary


async def test_when_a_chore_was_done_is_remembered_by_the_database(
    pool: db.Pool, edge_db: Database
) -> None:
    async def nothing() -> dict[str, object]:
        return {}

    def job() -> Daily:
        made = daily.daily_job(pool, settings(edge_db, UPKEEP_AT="03:30"), "test", nothing).daily
        assert made is not None
        return made

    assert await job().last_done() is None
    for at in (AT, datetime(2025, 1, 3, tzinfo=UTC)):
        await job().done(at)
        assert await job().last_done() == at
    assert str(job().at) == "03:30:00"


@pytest.mark.req("RT-13")
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("FARMIQ_EDGE_TIMEZONE", "Mars/Olympus"),
        ("FARMIQ_EDGE_TIMEZONE", "../etc/passwd"),
        ("UPKEEP_AT", "25:00"),
    ],
)
def test_odd_settings_are_refused_by_name(name: str, value: str) -> None:
    with pytest.raises(SettingsError, match=name):
        EdgeSettings.load({name: value})
