"""Events of alerts, on a real database: once when one opens, once when it closes (C-110)."""

import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import psycopg
import pytest

from farmiq.edge import alert_events, alerts
from farmiq.edge.alerts import Alert, Filter
from farmiq.edge.ingress import handlers
from farmiq.messages import bus
from farmiq.plumbing import db
from tests.conftest import Database
from tests.unit.messages import examples

EVENTS = """
select event_type, tenant_id, payload_json->>'subject', payload_json->>'severity',
  payload_json->>'count'
from sync_outbox where event_type like 'edge.%' order by tenant_id, created_at, id
"""
OPENED, CLOSED = "edge.alert.opened", "edge.alert.closed"
DISK = Alert("disk.filling", "disk", "warning", "the disk is 85 % full", whole_edge=True)
DEVICE = Alert("media.missing", "t-1/d-1", "warning", "image x is not in the store")


@pytest.fixture
async def pool(edge_db: Database) -> AsyncIterator[db.Pool]:
    """Of an edge that the cloud has accepted for two of its tenants."""
    async with db.pool(edge_db.url, name="test") as opened:
        async with db.transaction(opened) as tx:
            for tenant_id in ("t-1", "t-2"):
                await alert_events.accept(tx, tenant_id, edge_cluster_id="barn-7")
        yield opened


def rows(database: Database, query: str) -> list[tuple[Any, ...]]:
    with psycopg.connect(database.url) as connection:
        return connection.execute(query.encode()).fetchall()


async def raise_(pool: db.Pool, *raised: Alert, count: int = 1) -> None:
    async with db.transaction(pool) as tx:
        for alert in raised:
            await alerts.raise_(tx, alert, count=count)


async def close(pool: db.Pool, alert: Alert) -> None:
    async with db.transaction(pool) as tx:
        assert await alerts.close(tx, kind=alert.kind, subject=alert.subject)


async def test_alert_that_repeats_makes_one_event_when_it_opens_and_one_when_it_closes(
    pool: db.Pool, edge_db: Database
) -> None:
    for _ in range(50):
        await raise_(pool, DEVICE)
    assert rows(edge_db, EVENTS) == [(OPENED, "t-1", "d-1", "warning", "1")]
    await close(pool, DEVICE)
    await raise_(pool, DEVICE, count=3)
    assert rows(edge_db, EVENTS) == [
        (OPENED, "t-1", "d-1", "warning", "1"),
        (CLOSED, "t-1", "d-1", "warning", "50"),
        (OPENED, "t-1", "d-1", "warning", "3"),
    ]
    ids = rows(edge_db, "select distinct payload_json->>'alert_id' from sync_outbox")
    assert len(ids) == 2
    ((stored,),) = rows(
        edge_db,
        "select json_build_object('event_id', id, 'event_type', event_type, 'tenant_id', "
        "tenant_id, 'farm_id', farm_id, 'barn_id', barn_id, 'device_id', device_id, 'occurred_at', "
        "occurred_at at time zone 'utc' || 'Z', 'trace_id', trace_id, 'payload', payload_json) "
        "from sync_outbox where event_type = 'edge.alert.closed'",
    )
    event = bus.read(msgspec.json.encode(stored))
    assert (event.farm_id, event.barn_id, event.device_id) == ("f-1", "b-1", "d-1")
    assert stored["payload"]["edge_cluster_id"] == "barn-7"
    assert stored["payload"]["closed_by"] == "edge"


async def test_alert_of_the_whole_edge_reaches_each_tenant_and_one_of_a_device_its_own(
    pool: db.Pool, edge_db: Database
) -> None:
    stranger = Alert("broker.login", "10.0.0.7", "security", "no such login 't-2/d-1'")
    unaccepted = Alert("sync.not_let_in", "t-001", "critical", "HTTP_403")
    await raise_(pool, DISK, DEVICE, stranger, unaccepted)
    (digest,) = {
        row[2] for row in rows(edge_db, EVENTS) if str(row[2]).startswith("unknown sender")
    }
    both = [(OPENED, tenant, "disk", "warning", "1") for tenant in ("t-1", "t-2")]
    assert sorted(rows(edge_db, EVENTS)) == sorted([
        *both, (OPENED, "t-1", "d-1", "warning", "1"),
        (OPENED, "t-1", digest, "security", "1"), (OPENED, "t-2", digest, "security", "1"),
    ])  # fmt: skip
    for tenant, foreign in (("t-1", "t-2"), ("t-2", "t-1"), ("t-2", "d-1"), ("t-2", "image x")):
        assert rows(
            edge_db,
            f"select from sync_outbox where tenant_id = '{tenant}' "
            f"and payload_json::text like '%{foreign}%'",
        ) == []  # fmt: skip
    async with db.transaction(pool) as tx:
        assert await alert_events.open_counts(tx) == {"t-1": 3, "t-2": 2}
        assert await alerts.close_chosen(tx, Filter(), by="key night") == 4
        assert await alert_events.open_counts(tx) == {}
    closed = [row for row in rows(edge_db, EVENTS) if row[0] == CLOSED]
    assert sorted(row[1:3] for row in closed) == sorted([
        ("t-1", "disk"), ("t-2", "disk"), ("t-1", "d-1"), ("t-1", digest), ("t-2", digest)
    ])  # fmt: skip


async def test_alert_that_becomes_more_urgent_is_reported_once_more(
    pool: db.Pool, edge_db: Database
) -> None:
    full = Alert(DISK.kind, DISK.subject, "critical", "99 %", whole_edge=True)
    await raise_(pool, DISK, full, DISK, full, DISK)
    severities = [row[3] for row in rows(edge_db, EVENTS) if row[1] == "t-1"]
    assert severities == ["warning", "critical"]


async def test_open_alert_is_reported_to_a_tenant_that_the_cloud_accepts_later(
    pool: db.Pool, edge_db: Database
) -> None:
    own = Alert("media.missing", "t-001/d-010", "warning", "image y")
    await raise_(pool, DISK, own)
    async with db.transaction(pool) as tx:
        assert await alert_events.report_pending(tx) == 0
        await alert_events.accept(tx, "t-001", edge_cluster_id="barn-7")
        assert await alert_events.report_pending(tx) == 2
        assert await alert_events.report_pending(tx) == 0
    told = [row[2] for row in rows(edge_db, EVENTS) if row[1] == "t-001"]
    assert sorted(told) == ["d-010", "disk"]
    assert len(rows(edge_db, EVENTS)) == 4


async def test_strangers_beyond_the_limit_make_no_events(pool: db.Pool, edge_db: Database) -> None:
    count = alert_events.MAX_OPEN_OF_KIND
    with psycopg.connect(edge_db.admin_url) as owner:
        owner.execute(
            "insert into alerts (alert_id, kind, subject, severity, message, reported_to, "
            "reported_severity) select gen_random_uuid(), 'broker.login', n::text, 'security', "
            "'who?', '{t-1,t-2}', 'security' from generate_series(1, %s) n",
            (count,),
        )
    stranger = Alert("broker.login", "10.0.0.7", "security", "no such login")
    await raise_(pool, stranger)
    async with db.transaction(pool) as tx:
        assert await alert_events.report_pending(tx) == 0
    assert rows(edge_db, EVENTS) == []
    await close(pool, Alert("broker.login", "1", "security", ""))
    async with db.transaction(pool) as tx:
        assert await alert_events.report_pending(tx) == 1


async def test_message_in_the_name_of_another_device_becomes_an_event(
    pool: db.Pool, edge_db: Database
) -> None:
    """From the gateway's own transaction, with what it rejects."""
    topic = "iot/telemetry/t-1/f-1/b-1/d-1/temperature"
    body = examples.envelope(tenant_id="t-2", device_id="d-9")
    await handlers.commit(pool, [(topic, body)] * 3)
    assert rows(edge_db, EVENTS) == [(OPENED, "t-1", "f-1/b-1/d-1", "security", "3")]


_PROGRAM = """
import asyncio, sys
from farmiq import crash
from farmiq.edge import alerts
from farmiq.plumbing import db

async def main():
    async with db.pool(sys.argv[1], name="victim") as pool, db.transaction(pool) as tx:
        if sys.argv[3] == "open":
            alert = alerts.Alert("media.missing", "t-1/d-1", "warning", "image x")
            await alerts.raise_(tx, alert)
        else:
            await alerts.close(tx, kind="media.missing", subject="t-1/d-1")

crash.arm(sys.argv[2])
asyncio.run(main())
"""


@pytest.mark.parametrize("point", ["alert.before_event", "alert.after_event"])
async def test_death_around_the_event_leaves_both_or_neither(
    pool: db.Pool, edge_db: Database, point: str
) -> None:
    def die(what: str) -> None:
        died = subprocess.run(
            [sys.executable, "-c", _PROGRAM, edge_db.url, point, what],
            check=False,
            env={**os.environ},
        )
        assert died.returncode == -signal.SIGKILL

    open_ = "select count(*) from alerts where closed_at is null"
    die("open")
    assert (rows(edge_db, open_), rows(edge_db, EVENTS)) == ([(0,)], [])
    await raise_(pool, DEVICE)
    die("close")
    assert [row[0] for row in rows(edge_db, EVENTS)] == [OPENED]
    assert rows(edge_db, open_) == [(1,)]
    await close(pool, DEVICE)
    assert [row[0] for row in rows(edge_db, EVENTS)] == [OPENED, CLOSED]
