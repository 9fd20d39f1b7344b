"""The edge's database with the door's transaction and the feed service's API."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import httpx2
import pytest

from farmiq.edge import api_keys
from farmiq.edge.feed.api import Api
from farmiq.messages import topics
from farmiq.messages.topics import Place
from farmiq.plumbing import db, http, ids
from tests.conftest import Database
from tests.support import databases

PLACE = Place("t-1", "f-1", "b-1", "d-1")


def rows(database: Database, query: str, *args: Any) -> list[tuple[Any, ...]]:
    with databases.connected(database.admin_url) as connection:
        return connection.execute(query.encode(), args or None).fetchall()


def said(
    event_type: str,
    payload: dict[str, Any],
    *,
    place: Place = PLACE,
    event_id: UUID | None = None,
    ts: datetime | None = None,
) -> tuple[str, bytes]:
    """(topic, bytes) as a device sends it."""
    worn = {
        "schema_version": "1.0",
        "event_id": str(event_id or ids.new()),
        "trace_id": "trace-1",
        "tenant_id": place.tenant_id,
        "device_id": place.device_id,
        "event_type": event_type,
        "ts": (ts or datetime.now(UTC)).isoformat(),
        "payload": payload,
    }
    return topics.event(place, event_type), json.dumps(worn).encode()


@pytest.fixture
async def pool(edge_db: Database) -> AsyncIterator[db.Pool]:
    async with db.pool(edge_db.url, name="test") as opened:
        yield opened


@pytest.fixture
def keys(edge_db: Database) -> dict[str, str]:
    """A key of each role."""
    made: dict[str, str] = {role: api_keys.new_key() for role in api_keys.ROLES}
    with databases.connected(edge_db.admin_url) as connection:
        for role, key in made.items():
            connection.execute(
                "insert into api_keys (api_key_id, name, role, key_sha256) values (%s,%s,%s,%s)",
                (ids.new(), f"the {role}", role, api_keys.digest(key)),
            )
    return made


@asynccontextmanager
async def client(pool: db.Pool, key: str) -> AsyncIterator[httpx2.AsyncClient]:
    server = http.HttpServer(title="test", version="0")
    Api(pool).add_to(server.app)
    async with httpx2.AsyncClient(
        transport=httpx2.ASGITransport(app=server.app),
        base_url="http://edge",
        headers={"Authorization": f"Bearer {key}"},
    ) as opened:
        yield opened


@pytest.fixture
async def api(pool: db.Pool, keys: dict[str, str]) -> AsyncIterator[httpx2.AsyncClient]:
    """A client with an operator's key."""
    async with client(pool, keys["operator"]) as opened:
        yield opened
