"""The outbox by hand: over HTTP with keys and roles, and at the command line."""

import json
from collections.abc import AsyncIterator
from typing import Any
from uuid import UUID

import httpx2
import pytest

from farmiq.config import EdgeSettings
from farmiq.edge import api_keys
from farmiq.edge.sync import api
from farmiq.edge.sync.monitor import Monitor
from farmiq.plumbing import db, http, ids
from tests.conftest import Database
from tests.integration.edge.sync.owed import event, force, owe, owe_many, rows
from tests.support import databases, typed

ROUTES = {
    ("GET", api.STATUS): "viewer",
    ("GET", api.OUTBOX): "viewer",
    ("POST", api.REDRIVE): "admin",
    ("POST", api.RELEASE): "admin",
}
Ask = Any


@pytest.fixture
def keys(edge_db: Database) -> dict[str, str]:
    found: dict[str, str] = {role: api_keys.new_key() for role in api_keys.ROLES}
    with databases.connected(edge_db.admin_url) as connection:
        for role, key in found.items():
            connection.execute(
                "insert into api_keys (api_key_id, name, role, key_sha256) values (%s, %s, %s, %s)",
                (ids.new(), f"the-{role}", role, api_keys.digest(key)),
            )
    return found


@pytest.fixture
async def ask(pool: db.Pool, settings: EdgeSettings, keys: dict[str, str]) -> AsyncIterator[Ask]:
    server = http.HttpServer(title="edge", version="0")
    api.Api(pool, Monitor(settings, pool, delivered=lambda: 0)).add_to(server.app)
    transport = httpx2.ASGITransport(app=server.app)
    async with httpx2.AsyncClient(transport=transport, base_url="http://edge") as client:

        async def asked(
            method: str, path: str, *, role: str | None = "admin", body: Any = None
        ) -> httpx2.Response:
            headers = {"authorization": f"Bearer {keys[role]}"} if role else {}
            content = body if isinstance(body, bytes | None) else json.dumps(body).encode()
            return await client.request(method, path, content=content, headers=headers)

        yield asked


@pytest.mark.req("OB-17", "OB-21")
@pytest.mark.parametrize(("method", "path"), ROUTES)
@pytest.mark.parametrize("role", [None, *api_keys.ROLES])
async def test_every_role_at_every_route(
    ask: Ask, method: str, path: str, role: str | None
) -> None:
    answer = await ask(method, path, role=role, body={"all": True} if method == "POST" else None)
    needed = ROUTES[method, path]
    if role is None:
        assert answer.status_code == 401
    elif api_keys.ROLES.index(role) < api_keys.ROLES.index(needed):
        assert answer.status_code == 403
    else:
        assert answer.status_code == 200


async def test_key_that_acts_too_often_gets_429_and_others_do_not(
    pool: db.Pool, settings: EdgeSettings, keys: dict[str, str], edge_db: Database
) -> None:
    server = http.HttpServer(title="edge", version="0", actions_per_minute=2)
    api.Api(pool, Monitor(settings, pool, delivered=lambda: 0)).add_to(server.app)
    owe_many(edge_db, 1, status="dlq")
    transport = httpx2.ASGITransport(app=server.app)
    async with httpx2.AsyncClient(transport=transport, base_url="http://edge") as client:

        async def act(role: str, path: str) -> httpx2.Response:
            headers = {"authorization": f"Bearer {keys[role]}"}
            return await client.post(path, content=b'{"all": true}', headers=headers)

        # Who may not act at all uses nothing up, and is told that.
        assert {(await act("viewer", api.REDRIVE)).status_code for _ in range(4)} == {403}
        for path in (api.REDRIVE, api.RELEASE):
            assert (await act("admin", path)).status_code == 200
        force(edge_db, "update sync_outbox set status = 'dlq'")
        refused = await act("admin", api.REDRIVE)
        assert refused.status_code == 429
        assert refused.json()["error"]["code"] == "TOO_MANY_REQUESTS"
        assert 1 <= int(refused.headers["retry-after"]) <= 30
        assert rows(edge_db, "select status from sync_outbox") == [("dlq",)]
        headers = {"authorization": f"Bearer {keys['admin']}"}
        assert (await client.get(api.STATUS, headers=headers)).status_code == 200


@pytest.mark.req("OB-17")
async def test_redrive_resets_the_chosen_rows_to_pending(ask: Ask, edge_db: Database) -> None:
    owe_many(edge_db, 3, status="dlq", attempts=10, code="HTTP_500")
    owe_many(edge_db, 2, status="dlq", attempts=1, code="HTTP_400")
    owe_many(edge_db, 2, status="acked")
    force(edge_db, "update sync_outbox set dlq_reason = 'max_attempts_exceeded', "
          "failed_at = now(), last_error_message = 'oops' where status = 'dlq'")  # fmt: skip
    chosen = {"last_error_code": "HTTP_500", "limit": 2}
    dry = await ask("POST", api.REDRIVE, body={**chosen, "dry_run": True})
    assert (dry.json()["count"], dry.json()["dry_run"]) == (2, True)
    assert rows(edge_db, "select count(*) from sync_outbox where status = 'pending'") == [(0,)]
    done = await ask("POST", api.REDRIVE, body=chosen)
    assert done.json() == {**dry.json(), "dry_run": False}
    found = rows(
        edge_db,
        """select id::text, attempt_count, last_error_code, last_error_message, failed_at,
           dlq_reason, claimed_by, lease_expires_at, next_attempt_at <= now()
           from sync_outbox where status = 'pending'""",
    )
    assert {row[0] for row in found} == set(done.json()["ids"])
    assert {row[1:] for row in found} == {(0, None, None, None, None, None, None, True)}
    audited = rows(edge_db, "select actor, action, detail->'count', detail->'asked' from audit_log")
    assert audited == [("the-admin", "outbox.redrive", 2, {"last_error_code": "HTTP_500"})]
    acked = rows(edge_db, "select id::text from sync_outbox where status = 'acked'")
    again = await ask("POST", api.REDRIVE, body={"ids": [row[0] for row in acked]})
    assert again.json()["count"] == 0


@pytest.mark.req("OB-21")
async def test_unclaim_frees_expired_leases_of_both_kinds_and_leaves_live_ones(
    ask: Ask, edge_db: Database
) -> None:
    for status in ("claimed", "sending"):
        for lease in ("-1 s", "1 min"):
            owe_many(edge_db, 2)
            force(edge_db, "update sync_outbox set status = %s, claimed_by = 'x', "
                  "claimed_at = now(), lease_expires_at = now() + %s::interval "
                  "where status = 'pending'",
                  (status, lease))  # fmt: skip
    answer = await ask("POST", api.RELEASE, body={"all": True})
    assert answer.json()["count"] == 4
    found = rows(edge_db, "select status, claimed_by, attempt_count, count(*) from sync_outbox "
                 "group by 1, 2, 3 order by 1")  # fmt: skip
    assert found == [("claimed", "x", 0, 2), ("pending", None, 0, 4), ("sending", "x", 0, 2)]


@pytest.mark.parametrize(
    "body",
    [
        {},
        b"",
        b"{",
        b"[]",
        b"\xff",
        {"ids": []},
        {"ids": ["x"]},
        {"all": "yes"},
        {"all": True, "limit": 0},
        {"all": True, "limit": 10_001},
        {"tenant_id": "a\u0000b"},
        {"tenant_id": ""},
        {"tenant_id": "x" * 300},
        {"created_after": "2025-01-01T00:00:00"},
        {"created_before": "0001-01-01T00:00:00+19:00"},
        {"all": True, "surprise": 1},
        b'{"tenant_id": "\\ud800"}',
        b"[" * 100_000,
    ],
)
async def test_a_request_that_is_not_valid_gets_400_and_moves_nothing(
    ask: Ask, edge_db: Database, body: Any
) -> None:
    owe_many(edge_db, 1, status="dlq")
    for path in (api.REDRIVE, api.RELEASE):
        answer = await ask("POST", path, body=body)
        assert answer.status_code == 400, answer.text
        assert answer.json()["error"]["code"] == "VALIDATION_ERROR"
    assert rows(edge_db, "select status from sync_outbox") == [("dlq",)]


async def test_body_that_is_too_large_gets_413(ask: Ask) -> None:
    answer = await ask("POST", api.REDRIVE, body=b" " * 2_000_000)
    assert answer.status_code == 413


async def test_the_listing_goes_page_by_page_and_shows_no_payload(
    ask: Ask, pool: db.Pool, edge_db: Database
) -> None:
    events = [event(minutes=n) for n in range(5)]
    await owe(pool, *events)
    owe_many(edge_db, 2, status="acked", tenant_id="other")
    seen: list[str] = []
    path = f"{api.OUTBOX}?status=pending&limit=2"
    after = ""
    while True:
        page = (await ask("GET", path + after, role="viewer")).json()
        seen += [row["id"] for row in page["rows"]]
        assert all("payload_json" not in row for row in page["rows"])
        if page["next"] is None:
            break
        after = f"&after={page['next']}"
    assert seen == sorted((str(one.event_id) for one in events), reverse=True)
    others = (await ask("GET", f"{api.OUTBOX}?tenant_id=other", role="viewer")).json()
    assert len(others["rows"]) == 2


@pytest.mark.parametrize(
    "query", ["limit=x", "limit=0", "status=lost", "after=1", "tenant_id=%00", "odd=1"]
)
async def test_an_odd_query_gets_400(ask: Ask, query: str) -> None:
    assert (await ask("GET", f"{api.OUTBOX}?{query}")).status_code == 400


async def test_the_status_says_how_delivery_goes(
    ask: Ask, pool: db.Pool, edge_db: Database
) -> None:
    await owe(pool, event("t-1"), event("t-1"), event("t-2"))
    owe_many(edge_db, 4, tenant_id="t-3", status="dlq")
    with databases.connected(edge_db.admin_url) as connection:
        connection.execute(
            "insert into sync_state (tenant_id, consecutive_failures, paused_until) "
            "values ('t-2', 3, now() + interval '1 min')"
        )
    found = (await ask("GET", api.STATUS, role="viewer")).json()
    assert (found["waiting"], found["dlq"]) == (3, 4)
    states = {each["tenant_id"]: each["state"] for each in found["tenants"]}
    assert states == {"t-1": "delivering", "t-2": "paused", "t-3": "idle"}


def farmiq(database: Database, *arguments: str) -> typed.Done:
    return typed.farmiq("outbox", *arguments, FARMIQ_EDGE_DB_URL=database.url)


async def test_the_commands_show_and_move(pool: db.Pool, edge_db: Database) -> None:
    (owed,) = await owe(pool, event())
    owe_many(edge_db, 2, status="dlq", code="HTTP_500")
    stats = farmiq(edge_db, "stats", "--json")
    assert stats.returncode == 3, stats.stderr  # something is set aside
    (tenant,) = json.loads(stats.stdout)["tenants"]
    assert (tenant["pending"], tenant["dlq"]) == (1, 2)
    assert "dlq 2" in farmiq(edge_db, "stats").stdout
    listed = json.loads(farmiq(edge_db, "ls", "--status", "dlq", "--json").stdout)
    first, second = (UUID(row["id"]) for row in listed)
    assert str(owed) in farmiq(edge_db, "ls").stdout
    shown = json.loads(farmiq(edge_db, "show", str(owed), "--json").stdout)
    assert shown["payload_json"] == {"metric_type": "m", "metric_value": 1.0, "unit": "C"}
    assert farmiq(edge_db, "show", str(ids.new())).returncode == 1

    assert farmiq(edge_db, "redrive").returncode == 2  # everything has to be asked for
    dry = farmiq(edge_db, "redrive", "--code", "HTTP_500", "--dry-run")
    assert dry.stdout.startswith("2 would be redriven")
    moved = farmiq(edge_db, "redrive", str(first), "--json")
    assert json.loads(moved.stdout) == {"count": 1, "ids": [str(first)], "dry_run": False}
    assert farmiq(edge_db, "discard", str(second)).stdout == "1 discarded\n"
    assert farmiq(edge_db, "unclaim", "--all").stdout == "0 freed\n"
    assert farmiq(edge_db, "ls", "--status", "lost").returncode == 2
    found = rows(edge_db, "select id, status from sync_outbox order by status")
    assert set(found) == {(second, "failed"), (first, "pending"), (owed, "pending")}
    audited = rows(edge_db, "select action from audit_log order by at")
    assert audited == [("outbox.redrive",), ("outbox.discard",)]


def test_outbox_ls_is_newest_first_whatever_ids_the_devices_made(edge_db: Database) -> None:
    """What was written down last stands first; --after goes on behind it."""
    given = {number: str(UUID(int=abs(number - 5))) for number in range(1, 5)}
    with databases.connected(edge_db.admin_url) as owner:
        for number, event_id in given.items():
            owner.execute(
                "insert into sync_outbox (id, tenant_id, event_type, payload_json, created_at) "
                "values (%s, 't-1', 'telemetry.ingested', '{}', now() + %s * interval '1 s')",
                (event_id, number),
            )
    shown = farmiq(edge_db, "ls", "--limit", "2", "--json")
    assert [row["id"] for row in json.loads(shown.stdout)] == [given[4], given[3]]
    assert json.loads(shown.stdout)[0]["created_at"].endswith("Z")
    assert f"and 2 more; --after {given[3]}" in shown.stderr
    rest = farmiq(edge_db, "ls", "--after", given[3]).stdout.splitlines()
    assert [line.split()[0] for line in rest] == [given[2], given[1]]
    assert farmiq(edge_db, "ls", "--status", "dlq").stdout == "nothing\n"
