"""What tests of the forwarder share: events that are owed, a cloud that answers as they want."""

import gzip
import json
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import httpx2
import msgspec

from farmiq.config import EdgeSettings
from farmiq.edge import outbox
from farmiq.edge.sync.cloud import Cloud
from farmiq.edge.sync.forwarder import Forwarder
from farmiq.messages.bus import BusEvent
from farmiq.plumbing import db, ids
from tests.conftest import Database
from tests.support import databases

Answer = Callable[[httpx2.Request], httpx2.Response]
BORN = datetime(2025, 1, 1, tzinfo=UTC)


def event(tenant_id: str = "t-1", *, minutes: float = 0) -> BusEvent:
    return BusEvent(
        event_id=ids.new(),
        event_type="telemetry.ingested",
        tenant_id=tenant_id,
        farm_id="f",
        barn_id="b",
        device_id="d",
        session_id=None,
        occurred_at=BORN + timedelta(minutes=minutes),
        trace_id="trace",
        payload=msgspec.Raw(b'{"metric_type":"m","metric_value":1.0,"unit":"C"}'),
    )


async def owe(pool: db.Pool, *events: BusEvent) -> list[UUID]:
    async with db.transaction(pool) as tx:
        await outbox.append(tx, events)
    return [each.event_id for each in events]


def owe_many(
    database: Database,
    count: int,
    *,
    tenant_id: str = "t-1",
    status: str = "pending",
    attempts: int = 0,
    due: timedelta = timedelta(0),
    code: str | None = None,
) -> None:
    """Rows made inside the database, quickly, oldest first."""
    with databases.connected(database.admin_url) as connection:
        connection.execute(
            """
            insert into sync_outbox (id, tenant_id, farm_id, barn_id, device_id, event_type,
              occurred_at, trace_id, payload_json, payload_size_bytes, status, attempt_count,
              next_attempt_at, last_error_code, created_at)
            select gen_random_uuid(), %s, 'f', 'b', 'd', 'telemetry.ingested',
              %s::timestamptz + n * interval '1 second', 'trace',
              '{"metric_type":"m","metric_value":1.0,"unit":"C"}', 48, %s, %s,
              fn_now() + %s, %s, fn_now()
            from generate_series(1, %s) n
            """,
            (tenant_id, BORN, status, attempts, due, code, count),
        )


@asynccontextmanager
async def forwarder(
    settings: EdgeSettings, pool: db.Pool, answer: Answer
) -> AsyncIterator[Forwarder]:
    transport = httpx2.MockTransport(answer)
    async with Cloud(lambda: httpx2.AsyncClient(transport=transport), settings) as cloud:
        yield Forwarder(settings, pool, cloud)


def accept(request: httpx2.Request) -> httpx2.Response:
    return httpx2.Response(202, json={"accepted": True, "batchId": sent(request)["batchId"]})


def sent(request: httpx2.Request) -> dict[str, Any]:
    packed = request.headers.get("content-encoding") == "gzip"
    body: dict[str, Any] = json.loads(
        gzip.decompress(request.content) if packed else request.content
    )
    return body


def rows(database: Database, query: str, *args: Any) -> list[tuple[Any, ...]]:
    with databases.connected(database.admin_url) as connection:
        return connection.execute(query.encode(), args or None).fetchall()


def force(database: Database, change: str, args: Sequence[Any] = ()) -> None:
    """Change rows past the guard, as only their owner can.

    Without a change of the catalogue: the next test can have this database (support/databases.py).
    """
    with databases.connected(database.admin_url) as connection:
        connection.execute("set local session_replication_role = replica")
        connection.execute(change.encode(), args or None)


def move_clock(database: Database, ahead: timedelta) -> None:
    with databases.connected(database.admin_url) as owner:
        owner.execute(
            "insert into test_clock (ahead) values (%s) on conflict on constraint "
            "test_clock_pkey do update set ahead = excluded.ahead",
            (ahead,),
        )


def make_due(database: Database) -> None:
    with databases.connected(database.admin_url) as connection:
        connection.execute(
            "update sync_outbox set next_attempt_at = now() where status = 'pending'"
        )
        connection.execute("update sync_state set paused_until = null")
