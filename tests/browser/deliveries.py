"""Edges, dead letters and people of a company, written the way the services write them."""

import asyncio
import concurrent.futures
import json
from collections.abc import Coroutine
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import psycopg
from psycopg.types.json import Jsonb

from farmiq.cloud import bus
from farmiq.cloud.edges import registry
from farmiq.cloud.edges.registry import EdgeHeartbeat
from farmiq.cloud.identity import accounts
from farmiq.plumbing import db, ids, tokens
from farmiq.plumbing.bus import amqp, consume
from farmiq.plumbing.bus.delivery import Properties
from tests.browser import barns
from tests.support import databases
from tests.unit.messages import samples

TENANT, OTHER = "tenant-a", "tenant-b"
ROLES = ("viewer", "operator", "technician", "admin")
ROOT = "super@example.com"
QUEUE = bus.FEED.dead_letters
# Text of others that would run or break a page if it were not inert.
MARKUP = "<script>document.title='owned'</script><b>\u202eright to left\u202c</b>"
LONG = f"{MARKUP} {'x' * 4096}"


def email(role: str) -> str:
    return f"{role}@example.com"


def everybody(admin_url: str) -> None:
    """A person of each role, a super admin, and an admin of another company."""
    with databases.connected(admin_url) as connection:
        company_id = _company_id(connection, TENANT)
        for role in ROLES:
            accounts.add_user(
                connection, email(role), company_id=company_id, password=barns.PASSWORD, role=role
            )
        accounts.add_user(
            connection, ROOT, company_id=company_id, password=barns.PASSWORD, super_admin=True
        )
        other = accounts.add_company(connection, OTHER, name="Hill Farm", timezone="UTC")
        accounts.add_user(
            connection, "hill@example.com", company_id=other, password=barns.PASSWORD, role="admin"
        )


def _company_id(connection: psycopg.Connection, tenant_id: str) -> UUID:
    row = connection.execute(
        "select company_id from companies where tenant_id = %s", (tenant_id,)
    ).fetchone()
    assert row
    found: UUID = row[0]
    return found


def wait_for(work: Coroutine[Any, Any, Any]) -> Any:
    """Done in a thread: the browser's own event loop is in this one."""
    with concurrent.futures.ThreadPoolExecutor(1) as threads:
        return threads.submit(asyncio.run, work).result()


def enrolled(url: str, edge_id: str, **said: Any) -> None:
    """An edge of the company with a key; with a heartbeat if something of it is given."""

    async def enrol() -> None:
        async with db.pool(url, name="test") as pool, db.transaction(pool) as tx:
            code, _ = await registry.invite(
                tx, edge_id, [TENANT], lasts=timedelta(hours=1), actor="anna@example.com"
            )
            await registry.enroll(
                tx, code, tokens.PublicKey.read(tokens.public_part(tokens.new_key()))
            )
            if said:
                await registry.store_heartbeat(tx, edge_id, heartbeat(**said))

    wait_for(enrol())


def enrol_with(url: str, code: str) -> None:
    """What `farmiq edge enroll` does with a code."""

    async def enrol() -> None:
        async with db.pool(url, name="test") as pool, db.transaction(pool) as tx:
            public = tokens.PublicKey.read(tokens.public_part(tokens.new_key()))
            await registry.enroll(tx, code, public)

    wait_for(enrol())


def heartbeat(**said: Any) -> EdgeHeartbeat:
    whole: dict[str, Any] = {
        "tenant_id": TENANT,
        "sent_at": datetime.now(UTC),
        "versions": {"farmiq": "0.1.0"},
        "waiting": 0,
        "oldest_s": 0.0,
        "dlq": 0,
        "disk_percent": 40.0,
        "open_alerts": 0,
        "quarantine": 0,
        "losses": 0,
        "farms": ["farm-1"],
    }
    return EdgeHeartbeat(**{**whole, **said})


def three_edges(admin_url: str) -> None:
    """One that is well, one with a list of problems, one that is silent for three hours."""
    url = admin_url
    enrolled(url, "barn-good", waiting=3, oldest_s=2.0)
    enrolled(
        url, "barn-ill", waiting=1200, oldest_s=4000.0, dlq=2, quarantine=7, losses=1,
        disk_percent=91.0, versions={"farmiq": MARKUP[:60]}, farms=["farm-1", "farm-2"],
    )  # fmt: skip
    enrolled(url, "barn-silent", waiting=40, oldest_s=30.0)
    with databases.connected(admin_url) as connection:
        connection.execute(
            "update edge_heartbeats set received_at = now() - interval '3 hours 5 minutes' "
            "where edge_cluster_id = 'barn-silent'"
        )
        connection.execute(
            """
            insert into edge_hours (tenant_id, edge_cluster_id, hour, events, duplicates,
              heartbeats, max_waiting, max_oldest_s)
            select %s, 'barn-good', date_trunc('hour', now()) - n * interval '1 hour', 900 + n,
              n %% 7, 60, (n * 37) %% 200, n
            from generate_series(1, 160) n where n not between 40 and 46
            """,
            (TENANT,),
        )


def letters_on_pages(admin_url: str) -> None:
    """What the dead-letter service writes about letters: of this company and of another."""
    now = datetime.now(UTC)
    with databases.connected(admin_url) as connection:
        for tenant_id, reason, count, body in (
            (TENANT, "value too long for type character varying(…)", 12, json.dumps({"a": 1})),
            (TENANT, MARKUP, 2, LONG),
            (OTHER, "a reason of the others", 5, "secret of the others"),
        ):
            letter = {
                "event_id": str(ids.new()),
                "event_type": "feed.lot.received",
                "failed_at": now.isoformat(),
                "attempts": 5,
                "size_bytes": len(body),
                "reason": reason,
                "body": body[:2000],
            }
            connection.execute(
                """
                insert into dead_letter_groups (tenant_id, queue, reason, is_of_no_company, count,
                  oldest_at, newest_at, event_types, letters, is_whole, looked_at)
                values (%s, %s, %s, false, %s, %s, %s, '{feed.lot.received}', %s, true, %s)
                """,
                (
                    tenant_id, QUEUE, reason[:200], count, now - timedelta(hours=2), now,
                    Jsonb([letter]), now,
                ),
            )  # fmt: skip


def bury(amqp_url: str, *events: dict[str, Any], reason: str) -> None:
    """Put events where the consumer of feed puts those that it cannot take."""

    async def put() -> None:
        headers: dict[str, Any] = {
            "retry-attempts": 5,
            "retry-reason": reason,
            "retry-queue": bus.FEED.queue,
            "retry-exchange": "farmiq.feed.exchange",
            "retry-routing-key": "feed.lot.received",
            "retry-failed-at": datetime.now(UTC).isoformat(),
        }
        async with amqp.connection(amqp_url, name="test") as opened:
            await amqp.ensure(opened, bus.whole())
            outbox = await consume.confirming(opened)
            for event in events:
                body = json.dumps(event).encode()
                await consume.publish(outbox, QUEUE, body, Properties(headers=headers))

    wait_for(put())


def lot(tenant_id: str = TENANT) -> dict[str, Any]:
    """A delivery of feed, as it is on the bus."""
    whole = samples.on_the_bus("feed.lot.received")
    return {**whole, "event_id": str(ids.new()), "tenant_id": tenant_id}
