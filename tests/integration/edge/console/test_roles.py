"""Every route of the edge's console as a key of each role, and as nobody."""

from fastapi.routing import APIRoute

from farmiq.plumbing import http
from tests.conftest import Database
from tests.integration.edge.console.conftest import SignIn, csrf
from tests.support import edge_day

ROLES = ("viewer", "operator", "admin")
# Neither needs a sign-in, or it ends the one with which the others are asked, or never answers.
NOT_ASKED = {
    "GET /sign-in", "POST /sign-in", "POST /sign-out", "GET /live",
    "GET /static/{digest}/{name:path}", "GET /service-worker.js", "GET /manifest.webmanifest",
    "GET /offline",
}  # fmt: skip
# The lowest role of each route; a new route adds its line.
TABLE = {
    **dict.fromkeys(
        (
            "GET /", "GET /today/parts", "GET /records",
            "GET /weighings", "GET /weighings/rows", "GET /weighings/{session_id}",
            "GET /weighings/{session_id}/parts", "GET /images/{media_id}",
            "GET /images/{media_id}/small",
            "GET /readings", "GET /readings/rows", "GET /readings/{device_id}/{metric_type}",
            "GET /readings/{device_id}/{metric_type}/parts",
            "GET /devices", "GET /devices/rows", "GET /devices/{device_id}",
            "GET /devices/{device_id}/parts",
            "GET /delivery", "GET /delivery/parts", "GET /delivery/dead-letters",
            "GET /delivery/quarantine", "GET /delivery/quarantine/{quarantine_id}",
            "GET /delivery/losses", "POST /company",
        ),
        "viewer",
    ),
    **dict.fromkeys(
        (
            "GET /records/new", "POST /records/new", "GET /feed/intakes/new",
            "POST /feed/intakes/new", "GET /feed/lots/new", "POST /feed/lots/new",
            "POST /alerts/close", "POST /delivery/quarantine/redrive",
            "POST /delivery/quarantine/discard",
        ),
        "operator",
    ),
    **dict.fromkeys(
        (
            "GET /devices/new", "POST /devices/new", "GET /keys", "POST /keys",
            "POST /keys/revoke", "POST /delivery/dead-letters/redrive",
            "POST /delivery/dead-letters/discard",
        ),
        "admin",
    ),
}  # fmt: skip
ID = "0197a000-0000-7000-8000-000000000001"
IDS = {
    "session_id": ID, "media_id": ID, "quarantine_id": ID, "device_id": "climate-1",
    "metric_type": "temperature",
}  # fmt: skip


async def test_every_route_needs_the_role_of_its_line(
    client: SignIn, server: http.HttpServer, edge_db: Database
) -> None:
    routes = {
        f"{method} {route.path}"
        for route in server.app.routes
        if isinstance(route, APIRoute) and not route.include_in_schema
        for method in route.methods or ()
        if not route.path.startswith(("/api/", "/healthz", "/readyz", "/metrics"))
    }
    assert routes - NOT_ASKED == TABLE.keys()
    keys = {
        role: edge_day.add_key(edge_db.admin_url, role, tenant=edge_day.TENANT, role=role)
        for role in ROLES
    }
    wrong = []
    for role in (None, *ROLES):
        async with client(keys[role] if role else None) as browser:
            form = {"csrf": csrf(await browser.get("/"))} if role else {}
            for route, least in sorted(TABLE.items()):
                method, _, path = route.partition(" ")
                answer = await browser.request(
                    method, path.format(**IDS), data=form if method == "POST" else None
                )
                if role is None:
                    is_right = answer.headers.get("location", "").startswith("/sign-in") or (
                        answer.status_code == 401
                    )
                else:
                    is_let_in = answer.status_code not in (401, 403)
                    is_right = is_let_in == (ROLES.index(role) >= ROLES.index(least))
                    is_right = is_right and answer.status_code < 500
                if not is_right:
                    wrong.append((role, route, answer.status_code))
    assert not wrong
