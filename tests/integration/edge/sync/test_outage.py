"""Outages of any length, on a clock that is moved: nothing is set aside, everything drains."""

from datetime import UTC, datetime, timedelta
from typing import Any

import httpx2
import psycopg
import pytest

from farmiq.config import EdgeSettings
from farmiq.edge.sync import jobs, rules, store
from farmiq.edge.sync.cloud import Cloud
from farmiq.edge.sync.forwarder import Forwarder
from farmiq.plumbing import db
from tests.conftest import Database
from tests.integration.edge.sync.owed import (
    BORN,
    accept,
    event,
    force,
    forwarder,
    make_due,
    move_clock,
    owe,
    owe_many,
    rows,
    sent,
)
from tests.support import databases

OUTAGE = timedelta(hours=72)


class Weather:
    """A cloud behind a link that a test cuts; it counts probes and keeps what came, in order."""

    def __init__(self) -> None:
        self.up = False
        self.probes = 0
        self.came: list[str] = []

    def __call__(self, request: httpx2.Request) -> httpx2.Response:
        if not self.up:
            self.probes += 1
            raise (httpx2.ConnectError, httpx2.ReadTimeout)[self.probes % 2]("no link")
        self.came += [one["event_id"] for one in sent(request)["events"]]
        return accept(request)


async def wait_out(database: Database, it: Forwarder, *, breaker_s: int) -> None:
    """Every probe that the breaker lets through, one after the other, until 72 hours are over."""
    ahead = timedelta(0)
    with psycopg.connect(database.admin_url, autocommit=True) as owner:
        owner.execute("insert into test_clock (ahead) values (%s)", (ahead,))
        while ahead < OUTAGE:
            assert await it.forward_once() > 0
            row = owner.execute("select max(paused_until) - fn_now() from sync_state").fetchone()
            assert row is not None
            assert timedelta(0) < row[0] <= timedelta(seconds=breaker_s)
            ahead += row[0] + timedelta(milliseconds=1)
            owner.execute("update test_clock set ahead = %s", (ahead,))


@pytest.mark.req("BK-09", "BK-10", "DB-18", "OB-16")
@pytest.mark.parametrize(
    ("count", "breaker_s"),
    [
        # At its default the breaker asks every 30 s, which are 8,640 probes: the long run does all.
        pytest.param(20_000, 600, id="20k"),
        pytest.param(1_000_000, 30, id="1M", marks=[pytest.mark.long, pytest.mark.timeout(3600)]),
    ],
)
async def test_an_outage_of_days_sets_nothing_aside_and_drains_with_live_events_first(
    settings: EdgeSettings, pool: db.Pool, edge_db: Database, count: int, breaker_s: int
) -> None:
    settings = settings.model_copy(update={"sync_breaker_s": breaker_s})
    owe_many(edge_db, count)
    weather = Weather()
    async with forwarder(settings, pool, weather) as it:
        await wait_out(edge_db, it, breaker_s=breaker_s)
        assert weather.probes >= OUTAGE / timedelta(seconds=breaker_s + 1)
        assert rows(edge_db, "select distinct status from sync_outbox") == [("pending",)]
        ((most,),) = rows(edge_db, "select max(attempt_count) from sync_outbox")
        assert 0 < most < settings.sync_max_attempts

        weather.up = True
        while len(weather.came) < 2 * rules.PROBE_EVENTS:
            await it.forward_once()
        assert rows(edge_db, "select consecutive_failures, paused_until from sync_state") == [
            (0, None)
        ]
        # Nobody waits any longer because of the outage, and nothing is held against anyone.
        held = "select count(*) from sync_outbox where attempt_count > 0 and status <> 'acked'"
        assert rows(edge_db, held) == [(0,)]
        await it.forward_once()
        (live,) = await owe(pool, event(minutes=60 * 24 * 365))
        seen = len(weather.came)
        await it.forward_once()
        assert weather.came[seen] == str(live)

        while await it.forward_once():
            pass
        assert len(set(weather.came)) == count + 1
        await owe(pool, event(minutes=60 * 24 * 366))
        await it.forward_once()
    assert rows(edge_db, "select distinct status from sync_outbox") == [("acked",)]
    assert rows(edge_db, "select count(*) from sync_drain") == [(0,)]


async def test_live_events_pass_also_what_came_live_during_an_earlier_drain(
    settings: EdgeSettings, pool: db.Pool, edge_db: Database
) -> None:
    """A forwarder stops in a drain, for long: what was live then is backlog now."""
    owe_many(edge_db, 3 * rules.BACKLOG_ROWS)
    weather = Weather()
    weather.up = True
    async with forwarder(settings, pool, weather) as it:
        await it.forward_once()
        assert rows(edge_db, "select level from sync_drain") == [(1,)]
        await owe(pool, *[event(minutes=n) for n in range(rules.BACKLOG_ROWS + 600)])
        await it.forward_once()
        assert rows(edge_db, "select level from sync_drain") == [(2,)]
        (live,) = await owe(pool, event(minutes=10**6))
        seen = len(weather.came)
        await it.forward_once()
        assert weather.came[seen] == str(live)
        # Each takes at most a batch: the oldest of the outage come when the newer are through.
        while await it.forward_once():
            pass
    assert rows(edge_db, "select count(*) from sync_outbox where status <> 'acked'") == [(0,)]


async def test_events_of_the_last_pause_pass_the_backlog_with_the_new_ones(
    settings: EdgeSettings, pool: db.Pool, edge_db: Database
) -> None:
    """The cloud is back, and the edge has not noticed yet: what comes then is live too."""
    owe_many(edge_db, 3 * rules.BACKLOG_ROWS)
    ago = (datetime.now(UTC) - BORN) / timedelta(minutes=1)
    pause = settings.sync_breaker_s / 60
    old, first, second = await owe(
        pool, *[event(minutes=ago - share * pause) for share in (2.5, 1.5, 0.2)]
    )
    (ahead,) = await owe(pool, event(minutes=ago + 10))
    weather = Weather()
    weather.up = True
    async with forwarder(settings, pool, weather) as it:
        await it.forward_once()
        seen = len(weather.came)
        await it.forward_once()
        assert weather.came[seen : seen + 2] == [str(first), str(second)]
        assert str(old) not in weather.came
        assert str(ahead) not in weather.came
        while await it.forward_once():
            pass
    assert len(set(weather.came)) == len(weather.came) == 3 * rules.BACKLOG_ROWS + 4


async def test_event_written_while_a_drain_begins_passes_the_backlog(
    settings: EdgeSettings, pool: db.Pool, edge_db: Database
) -> None:
    """Its transaction read the priority of new events before the drain set it (D-340)."""
    owe_many(edge_db, 3 * rules.BACKLOG_ROWS)
    weather = Weather()
    weather.up = True
    async with forwarder(settings, pool, weather) as it:
        await it.forward_once()
        ago = (datetime.now(UTC) - BORN) / timedelta(minutes=1)
        late, live = await owe(pool, event(minutes=ago - 0.02), event(minutes=ago - 0.01))
        force(edge_db, "update sync_outbox set priority = 0 where id = %s", [late])
        await it.forward_once()
        seen = len(weather.came)
        await it.forward_once()
        assert weather.came[seen] == str(late)
        assert str(live) in weather.came
        while await it.forward_once():
            pass
    assert len(set(weather.came)) == len(weather.came) == 3 * rules.BACKLOG_ROWS + 2


async def test_event_written_while_a_drain_begins_passes_also_a_busy_last_minute(
    settings: EdgeSettings, pool: db.Pool, edge_db: Database
) -> None:
    """The last minute alone is a backlog, so new events rise above it at once (D-410)."""
    owe_many(edge_db, rules.BACKLOG_ROWS)
    ago = (datetime.now(UTC) - BORN) / timedelta(minutes=1)
    busy = rules.BACKLOG_ROWS + 2 * settings.sync_batch
    await owe(pool, *[event(minutes=ago - 0.3) for _ in range(busy)])
    weather = Weather()
    weather.up = True
    async with forwarder(settings, pool, weather) as it:
        await it.forward_once()
        await it.forward_once()
        assert rows(edge_db, "select level from sync_drain") == [(2,)]
        (late,) = await owe(pool, event(minutes=ago))
        force(edge_db, "update sync_outbox set priority = 0 where id = %s", [late])
        await it.forward_once()
        seen = len(weather.came)
        await it.forward_once()
        assert weather.came[seen] == str(late)
        while await it.forward_once():
            pass
    assert len(set(weather.came)) == len(weather.came) == rules.BACKLOG_ROWS + busy + 1


async def test_an_outage_longer_than_a_lease_with_crashes_in_it_sets_nothing_aside(
    settings: EdgeSettings, pool: db.Pool, edge_db: Database
) -> None:
    """Power cuts between the probes: what a dead forwarder held is freed, and stays healthy."""
    owe_many(edge_db, 50)
    ahead = timedelta(0)
    for _ in range(30):
        async with forwarder(settings, pool, Weather()) as it:
            await it.forward_once()
        async with db.transaction(pool) as tx:
            await store.claim(tx, "t-1", claimed_by="dead", limit=500, lease_s=30)
        ahead += timedelta(minutes=6)
        move_clock(edge_db, ahead)
        await jobs.reap(pool, settings)
    assert rows(edge_db, "select count(*) from sync_outbox where status = 'dlq'") == [(0,)]


@pytest.mark.parametrize(
    ("headers", "wait_s"),
    [
        ({"Retry-After": "7"}, (7, 7)),
        ({"Retry-After": "120"}, (120, 120)),  # longer than the breaker's own pause
        ({"Retry-After": "86400"}, (300, 300)),  # no proxy silences a farm for a day
        ({"Retry-After": "Fri, 31 Dec 9999 23:59:59 -2300"}, (300, 300)),
        ({"Retry-After": "soon"}, (0.5, 0.5)),
        ({}, (0.5, 0.5)),
    ],
)
@pytest.mark.parametrize("status", [429, 503])
async def test_what_the_cloud_asks_for_is_obeyed(  # noqa: PLR0917 - a table
    settings: EdgeSettings,
    pool: db.Pool,
    edge_db: Database,
    headers: dict[str, str],
    wait_s: tuple[float, float],
    status: int,
) -> None:
    await owe(pool, event())

    def busy(_request: httpx2.Request) -> httpx2.Response:
        body = {"error": {"code": "BUSY", "message": "later"}}
        return httpx2.Response(status, json=body, headers=headers)

    move_clock(edge_db, timedelta(0))
    before = rows(edge_db, "select fn_now()")[0][0]
    async with forwarder(settings, pool, busy) as it:
        await it.forward_once()
    ((paused_until,),) = rows(edge_db, "select paused_until from sync_state")
    after: datetime = rows(edge_db, "select fn_now()")[0][0]
    assert before + timedelta(seconds=wait_s[0]) <= paused_until
    assert paused_until <= after + timedelta(seconds=wait_s[1])


@pytest.mark.parametrize("status", [400, 500, 503])
async def test_words_of_an_answer_that_no_table_takes_do_not_end_the_forwarder(
    settings: EdgeSettings, pool: db.Pool, edge_db: Database, status: int
) -> None:
    await owe(pool, event())
    words = b"a NUL \\u0000, half a character \\ud800"
    body = b'{"error": {"message": "%s", "details": [{"index": 0, "reason": "%s"}]}}'

    def odd(_request: httpx2.Request) -> httpx2.Response:
        return httpx2.Response(status, content=body % (words, words))

    async with forwarder(settings, pool, odd) as it:
        assert await it.forward_once() == 1
    ((said,),) = rows(edge_db, "select last_error_message from sync_outbox")
    assert said == "a NUL \ufffd, half a character ?"


@pytest.mark.parametrize("status", [401, 403, 404])
async def test_a_cloud_that_does_not_let_us_in_raises_an_alert_and_costs_nothing(
    settings: EdgeSettings, pool: db.Pool, edge_db: Database, status: int
) -> None:
    await owe(pool, event())

    def refuse(_request: httpx2.Request) -> httpx2.Response:
        return httpx2.Response(status, json={"error": {"code": "NO", "message": "not you"}})

    open_alerts = "select kind, subject, severity from alerts where closed_at is null"
    async with forwarder(settings, pool, refuse) as it:
        for _ in range(12):
            await it.forward_once()
            make_due(edge_db)
    assert rows(edge_db, "select status, attempt_count from sync_outbox") == [("pending", 9)]
    assert rows(edge_db, open_alerts) == [("sync.not_let_in", "t-1", "critical")]
    async with forwarder(settings, pool, accept) as it:
        await it.forward_once()
    assert rows(edge_db, open_alerts) == []


async def test_a_batch_too_large_for_the_link_becomes_smaller_until_it_gets_through(
    settings: EdgeSettings, pool: db.Pool, edge_db: Database
) -> None:
    owe_many(edge_db, 60)
    sizes: list[int] = []

    def crawling(request: httpx2.Request) -> httpx2.Response:
        sizes.append(len(sent(request)["events"]))
        if sizes[-1] > 8:
            raise httpx2.ReadTimeout("too slow")
        return accept(request)

    async with forwarder(settings, pool, crawling) as it:
        while rows(edge_db, "select from sync_outbox where status <> 'acked'"):
            await it.forward_once()
            make_due(edge_db)
    assert sizes[0] == 60
    assert min(sizes) <= 8
    assert rows(edge_db, "select count(*) from sync_outbox where status = 'acked'") == [(60,)]


async def test_too_large_by_bytes_is_cut_before_it_is_sent_and_halved_if_refused(
    settings: EdgeSettings, pool: db.Pool, edge_db: Database
) -> None:
    with databases.connected(edge_db.admin_url) as connection:
        connection.execute(
            """
            insert into sync_outbox (id, tenant_id, event_type, occurred_at, trace_id,
              payload_json, payload_size_bytes)
            select gen_random_uuid(), 't-1', 'telemetry.ingested', now(), 't',
              jsonb_build_object('note', repeat('x', 250000)), 250012 from generate_series(1, 60)
            """
        )
    sizes: list[int] = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        body: Any = sent(request)
        sizes.append(len(body["events"]))
        if sizes[-1] > 15:  # a proxy on the way with a smaller idea of large
            return httpx2.Response(413, text="<html>too large</html>")
        return accept(request)

    async with forwarder(settings, pool, answer) as it:
        await it.forward_once()
    assert max(sizes) == 20  # 5 MiB
    assert rows(edge_db, "select status, count(*) from sync_outbox group by 1") == [("acked", 60)]


async def test_a_cloud_that_cannot_unpack_gets_its_batches_as_they_are(
    settings: EdgeSettings, pool: db.Pool, edge_db: Database
) -> None:
    """An older cloud behind a newer edge: nothing may count against an event."""
    owe_many(edge_db, 40)
    encodings: list[str] = []

    def old(request: httpx2.Request) -> httpx2.Response:
        encodings.append(request.headers.get("content-encoding", "none"))
        if encodings[-1] == "gzip":
            return httpx2.Response(400, json={"error": {"code": "X", "message": "not JSON"}})
        return accept(request)

    async with forwarder(settings, pool, old) as it:
        await it.forward_once()
        owe_many(edge_db, 40)
        await it.forward_once()
    assert encodings == ["gzip", "none", "none"]
    found = rows(edge_db, "select status, max(attempt_count) from sync_outbox group by 1")
    assert found == [("acked", 0)]


async def test_a_connection_that_does_not_get_through_is_made_anew(
    settings: EdgeSettings, pool: db.Pool, edge_db: Database
) -> None:
    await owe(pool, event())
    made = 0

    def connect() -> httpx2.AsyncClient:
        nonlocal made
        made += 1
        number = made

        def answer(request: httpx2.Request) -> httpx2.Response:
            if number == 1:
                raise httpx2.ReadTimeout("half dead")
            return accept(request)

        return httpx2.AsyncClient(transport=httpx2.MockTransport(answer))

    async with Cloud(connect, settings) as cloud:
        it = Forwarder(settings, pool, cloud)
        for _ in range(10):
            await it.forward_once()
            make_due(edge_db)
    assert made == 2
    assert rows(edge_db, "select status from sync_outbox") == [("acked",)]
