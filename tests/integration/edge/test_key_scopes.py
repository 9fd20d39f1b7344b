"""Keys of the edge's HTTP API that reach one tenant, or one part of it."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from fastapi.responses import JSONResponse

from farmiq.config import EdgeSettings
from farmiq.edge import access, api_keys
from farmiq.edge.devices import api as devices
from farmiq.edge.feed.api import Api as Feed
from farmiq.edge.sync import api as sync
from farmiq.edge.sync.monitor import Monitor
from farmiq.edge.telemetry import api as telemetry
from farmiq.edge.weighvision.api import Api as Weighvision
from farmiq.plumbing import db, http, ids
from tests.conftest import Database
from tests.integration.edge.sync.conftest import pool, settings
from tests.integration.edge.sync.owed import event, force, owe
from tests.support import databases

__all__ = ["pool", "settings"]  # the fixtures
OPENAPI = Path(__file__).parents[3] / "docs/openapi-edge.json"
WEIGHING = "0190a1d1-9999-7d3f-b2e4-9e8b5f8e0101"


@pytest.fixture
async def edge(
    edge_db: Database, pool: db.Pool, settings: EdgeSettings
) -> AsyncIterator[httpx2.AsyncClient]:
    """An edge on which two tenants have devices and events set aside, and one a weighing."""
    server = http.HttpServer(title="edge", version="0")
    sync.Api(pool, Monitor(settings, pool, delivered=lambda: 0)).add_to(server.app)
    telemetry.Api(pool).add_to(server.app)
    devices.Api(pool).add_to(server.app)
    Feed(pool).add_to(server.app)
    Weighvision(pool, timezone="UTC").add_to(server.app)
    await owe(pool, event("t-1"), event("t-2"))
    force(edge_db, "update sync_outbox set status = 'dlq', failed_at = now(), dlq_reason = 'x'")
    with databases.connected(edge_db.admin_url) as owner:
        owner.execute(
            "insert into weight_sessions (id, tenant_id, farm_id, barn_id, device_id, station_id, "
            "start_at) values (%s, 't-2', 'f', 'b', 'd-9', 's', now())",
            (WEIGHING,),
        )
        owner.execute(
            "insert into weight_session_events (tenant_id, event_id, session_id, event_type, "
            "occurred_at, weight_kg) values ('t-2', %s, %s, 'weighvision.weight.recorded', now(), "
            "80.5)",
            (WEIGHING, WEIGHING),
        )
    transport = httpx2.ASGITransport(app=server.app)
    async with httpx2.AsyncClient(transport=transport, base_url="http://edge") as client:
        yield client


def key(database: Database, **scope: Any) -> dict[str, str]:
    made = api_keys.new_key()
    with databases.connected(database.admin_url) as owner:
        owner.execute(
            "insert into api_keys (api_key_id, name, role, key_sha256, tenant_id, areas) "
            "values (%s, %s, 'admin', %s, %s, %s)",
            (ids.new(), made[-8:], api_keys.digest(made), scope.get("tenant"), scope.get("areas")),
        )
    return {"Authorization": f"Bearer {made}"}


async def test_a_key_of_one_tenant_sees_and_moves_nothing_of_another(
    edge: httpx2.AsyncClient, edge_db: Database
) -> None:
    mine = key(edge_db, tenant="t-1")

    async def tenants(path: str, name: str) -> set[str]:
        answer = await edge.get(path, headers=mine)
        assert answer.status_code == 200, answer.text
        return {row["tenant_id"] for row in answer.json()[name]}

    assert await tenants(devices.ROUTE, "devices") == {"t-1"}
    assert await tenants(sync.STATUS, "tenants") == {"t-1"}
    assert await tenants(sync.OUTBOX, "rows") == {"t-1"}
    assert await tenants("/api/v1/weighvision/sessions", "sessions") == set()
    moved = await edge.post(sync.REDRIVE, json={"all": True}, headers=mine)
    assert moved.json()["count"] == 1
    place = {"tenant_id": "t-2", "farm_id": "f", "barn_id": "b"}
    lot = {**place, "feed_lot_id": "l", "quantity_kg": 1}
    span = "from=2026-01-01T00:00:00Z&to=2026-01-02T00:00:00Z"
    for method, path, body in (
        ("GET", f"{devices.ROUTE}?tenant_id=t-2", None),
        ("GET", f"{devices.ROUTE}/t-2/d-9", None),
        ("POST", f"{devices.ROUTE}/t-2/d-9/rotate", {}),
        ("POST", f"{devices.ROUTE}/t-2/d-9/revoke", {}),
        ("POST", f"{devices.ROUTE}/t-2/d-9/commands", {"name": "ping"}),
        ("POST", devices.ROUTE, {**place, "device_id": "d-10"}),
        ("GET", f"{sync.OUTBOX}?tenant_id=t-2", None),
        ("POST", sync.REDRIVE, {"tenant_id": "t-2"}),
        ("GET", f"{telemetry.LATEST}?tenant=t-2", None),
        ("GET", f"{telemetry.RANGE}?tenant=t-2&{span}", None),
        ("GET", "/api/v1/feed/lots?tenant=t-2", None),
        ("POST", "/api/v1/feed/lots", lot),
    ):
        answer = await edge.request(method, path, json=body, headers=mine)
        assert answer.status_code == 403, (method, path, answer.text)
    hidden = await edge.get(f"/api/v1/weighvision/sessions/{WEIGHING}", headers=mine)
    assert hidden.status_code == 404
    every = key(edge_db)
    shown = await edge.get(f"/api/v1/weighvision/sessions/{WEIGHING}", headers=every)
    assert shown.status_code == 200
    assert len((await edge.get(devices.ROUTE, headers=every)).json()["devices"]) >= 2


async def test_key_of_one_area_gets_403_in_others(
    edge: httpx2.AsyncClient, edge_db: Database
) -> None:
    feed = key(edge_db, areas=["feed"])
    assert (await edge.get("/api/v1/feed/lots", headers=feed)).status_code == 200
    for path in (devices.ROUTE, sync.STATUS, telemetry.LATEST, "/api/v1/weighvision/sessions"):
        answer = await edge.get(path, headers=feed)
        assert (answer.status_code, "is for feed" in answer.text) == (403, True)


def test_key_may_be_bound_to_any_area_of_the_api() -> None:
    paths = json.loads(OPENAPI.read_text())["paths"]
    served = {path.split("/")[3] for path in paths if path.startswith("/api/v1/")}
    assert served <= set(api_keys.AREAS)


async def test_a_route_about_all_tenants_is_closed_to_a_key_of_one(
    pool: db.Pool, edge_db: Database
) -> None:
    server = http.HttpServer(title="edge", version="0")

    async def all_tenants(request: Any) -> Any:
        await access.require(request, pool, "viewer")
        return JSONResponse({})

    server.app.add_route("/api/v1/alerts", all_tenants, methods=["GET"])
    transport = httpx2.ASGITransport(app=server.app)
    async with httpx2.AsyncClient(transport=transport, base_url="http://edge") as client:
        closed = await client.get("/api/v1/alerts", headers=key(edge_db, tenant="t-1"))
        opened = await client.get("/api/v1/alerts", headers=key(edge_db, areas=["alerts"]))
    assert (closed.status_code, opened.status_code) == (403, 200)
