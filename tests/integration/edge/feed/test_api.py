"""POST /api/v1/feed/lots and the pages of lots and intakes."""

import asyncio
import csv
import io
import json
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx2
import psycopg
import pytest

from farmiq.edge.feed import store
from farmiq.edge.feed.api import FeedIntakes, FeedLot
from farmiq.edge.ingress import handlers
from farmiq.edge.sync import store as sync
from farmiq.messages import bus
from farmiq.messages.topics import Place
from farmiq.plumbing import db, ids, log
from tests.conftest import Database
from tests.integration.edge.feed.conftest import client, rows, said
from tests.support import databases
from tests.unit.messages import samples

EXAMPLES = Path(samples.__file__).parent / "examples"
LOT = {
    "tenant_id": "t-1",
    "farm_id": "f-1",
    "barn_id": "b-1",
    "feed_lot_id": "lot-1",
    "quantity_kg": 5000,
}


@pytest.mark.req("FB-12", "FB-16")
async def test_a_lot_is_stored_owed_and_answered(
    api: httpx2.AsyncClient, pool: db.Pool, edge_db: Database
) -> None:
    documented = json.loads((EXAMPLES / "002.example-2.feed.lot.received.json").read_bytes())
    body = {
        **{name: documented[name] for name in ("event_id", "tenant_id", "farm_id", "barn_id")},
        "occurred_at": documented["occurred_at"],
        **documented["payload"],
    }
    answer = await api.post(
        "/api/v1/feed/lots", json=body, headers={"x-trace-id": documented["trace_id"]}
    )
    assert answer.status_code == 201, answer.text
    assert (
        answer.json().items() >= {**body, "device_id": None, "recorded_by": "the operator"}.items()
    )
    async with db.transaction(pool) as tx:
        claimed = await sync.claim(tx, "t-001", claimed_by="test", limit=5, lease_s=30)
        (owed,) = await sync.start_sending(tx, claimed, claimed_by="test", lease_s=30)
    assert json.loads(bus.write(owed.event())) == documented
    assert FeedLot.model_validate_json(answer.text).quantity_kg == 5000
    assert rows(edge_db, "select actor, action, subject from audit_log") == [
        ("the operator", "feed.lot.add", "t-001/lot-001")
    ]


@pytest.mark.parametrize("by", ["event_id", "Idempotency-Key"])
async def test_the_same_request_again_has_the_same_answer_and_no_second_effect(
    api: httpx2.AsyncClient, edge_db: Database, by: str
) -> None:
    key = str(ids.new())
    extra: dict[str, Any] = {"json": {**LOT, "event_id": key}}
    other: dict[str, Any] = {"json": {**LOT, "event_id": key, "quantity_kg": 1}}
    if by == "Idempotency-Key":
        extra = {"json": LOT, "headers": {by: key}}
        other = {"json": {**LOT, "quantity_kg": 1}, "headers": {by: key}}
    answers = await asyncio.gather(*(api.post("/api/v1/feed/lots", **extra) for _ in range(6)))
    assert [each.status_code for each in answers] == [201] * 6
    assert len({each.text for each in answers}) == 1
    refused = await api.post("/api/v1/feed/lots", **other)
    assert (refused.status_code, refused.json()["error"]["code"]) == (409, "CONFLICT")
    for table in ("feed_lots", "sync_outbox", "audit_log"):
        assert rows(edge_db, f"select count(*) from {table}") == [(1,)]  # noqa: S608


async def test_intake_posted_at_the_edge_is_stored_once_and_waits_for_the_cloud(
    api: httpx2.AsyncClient, pool: db.Pool, edge_db: Database
) -> None:
    with psycopg.connect(edge_db.admin_url) as owner:
        owner.execute(
            "insert into farms (tenant_id, farm_id, timezone) values ('t-1', 'f-1', 'UTC')"
        )
        owner.execute(
            "insert into cloud_batches values ('t-1', 'flock-1', 'f-1', 'b-1', '2026-01-01')"
        )
    body = {
        "tenant_id": "t-1", "farm_id": "f-1", "barn_id": "b-1", "quantity_kg": 12.50,
        "device_id": "d-1", "feed_lot_id": "lot-1",
    }  # fmt: skip

    async def post(key: str, **more: Any) -> httpx2.Response:
        return await api.post(
            "/api/v1/feed/intakes", json=body | more, headers={"Idempotency-Key": key}
        )

    answers = await asyncio.gather(*(post("k") for _ in range(4)))
    assert {(answer.status_code, answer.text) for answer in answers} == {(201, answers[0].text)}
    first = answers[0].json()
    assert (first["source"], first["batch_id"]) == ("MANUAL", "flock-1")
    assert first["recorded_by"] == "the operator"
    assert (await post("k", quantity_kg=1)).status_code == 409
    assert (await post("unknown", tenant_id="nobody")).status_code == 404
    assert (await post("elsewhere", batch_id="flock-1", barn_id="b-2")).status_code == 400
    assert (await post("lost", replaces=str(ids.new()))).status_code == 404
    fixed = await post("fixed", quantity_kg=1.25, replaces=first["intake_id"])
    assert fixed.status_code == 201
    assert (await post("again", replaces=first["intake_id"])).status_code == 409
    async with db.transaction(pool) as tx:
        claimed = await sync.claim(tx, "t-1", claimed_by="test", limit=5, lease_s=30)
        owed = await sync.start_sending(tx, claimed, claimed_by="test", lease_s=30)
    sent = [json.loads(bus.write(each.event()))["payload"] for each in owed]
    assert sorted(payload["quantity_kg"] for payload in sent) == [1.25, 12.5]
    assert {payload["batch_derived"] for payload in sent} == {True}
    assert (
        rows(edge_db, "select actor, action from audit_log")
        == [("the operator", "feed.intake.add")] * 2
    )
    listed = (await api.get("/api/v1/feed/intakes")).json()["intakes"]
    assert first in listed
    # Nobody takes it for feed that the silo's device told of itself.
    async with db.transaction(pool) as tx:
        silo = store.Silo("t-1", "d-1", datetime(2026, 1, 1, tzinfo=UTC), 10.0, 200.0)
        assert (await store.reported(tx, silo)).first_since is None


async def test_an_id_that_is_another_events_is_a_conflict(
    api: httpx2.AsyncClient, pool: db.Pool, edge_db: Database
) -> None:
    event_id = ids.new()
    await handlers.commit(pool, [said("feed.dispensed", {"quantity_kg": 1}, event_id=event_id)])
    for tenant in ("t-1", "t-2"):
        body = {**LOT, "tenant_id": tenant, "event_id": str(event_id)}
        assert (await api.post("/api/v1/feed/lots", json=body)).status_code == 409
    assert rows(edge_db, "select count(*) from feed_lots") == [(0,)]


async def test_without_a_key_two_deliveries_are_two(
    api: httpx2.AsyncClient, edge_db: Database
) -> None:
    for _ in range(2):
        assert (await api.post("/api/v1/feed/lots", json=LOT)).status_code == 201
    assert rows(edge_db, "select count(*) from feed_lots") == [(2,)]


async def test_a_lot_of_a_tenant_that_the_edge_does_not_know_is_refused(
    api: httpx2.AsyncClient, edge_db: Database
) -> None:
    body = {**LOT, "tenant_id": "nobody"}
    answer = await api.post("/api/v1/feed/lots", json=body)
    assert answer.status_code == 400, answer.text
    (detail,) = answer.json()["error"]["details"]
    assert detail["field"] == "$.tenant_id"
    assert "no device or farm of tenant 'nobody'" in detail["reason"]
    assert rows(edge_db, "select count(*) from sync_outbox") == [(0,)]
    with databases.connected(edge_db.admin_url) as owner:
        owner.execute("insert into farms values ('nobody', 'f-1', 'UTC')")
    assert (await api.post("/api/v1/feed/lots", json=body)).status_code == 201


async def test_a_lot_of_the_future_is_refused(api: httpx2.AsyncClient, edge_db: Database) -> None:
    """Its stock would be there before it came; a clock may be a little ahead."""
    now = datetime.now(UTC)
    body = {**LOT, "occurred_at": (now + timedelta(hours=1)).isoformat()}
    answer = await api.post("/api/v1/feed/lots", json=body)
    assert answer.status_code == 400, answer.text
    (detail,) = answer.json()["error"]["details"]
    assert (detail["field"], "in the future" in detail["reason"]) == ("$.occurred_at", True)
    assert rows(edge_db, "select count(*) from sync_outbox") == [(0,)]
    body["occurred_at"] = (now + timedelta(minutes=1)).isoformat()
    assert (await api.post("/api/v1/feed/lots", json=body)).status_code == 201


async def test_a_bad_lot_is_answered_with_everything_that_is_wrong(
    api: httpx2.AsyncClient, edge_db: Database
) -> None:
    body = {"tenant_id": "a/b", "quantity_kg": "much", "occurred_at": "noon", "colour": "red"}
    answer = await api.post("/api/v1/feed/lots", json=body)
    assert answer.status_code == 400
    error = answer.json()["error"]
    assert error.keys() == {"code", "message", "traceId", "details"}
    fields = {each["field"] for each in error["details"]}
    assert {"$.tenant_id", "$.quantity_kg", "$.occurred_at", "$"} <= fields
    missing = "".join(each["reason"] for each in error["details"] if each["field"] == "$")
    for name in ("farm_id", "barn_id", "feed_lot_id", "colour"):
        assert name in missing
    assert rows(edge_db, "select count(*) from feed_lots") == [(0,)]


@pytest.mark.parametrize(
    ("raw", "headers", "status"),
    [
        (b"", {}, 400),
        (b"[1]", {}, 400),
        (b"\xff\xfe", {}, 400),
        (b"[" * 9000, {}, 400),
        (b'{"tenant_id":"t","tenant_id":"u"}', {}, 400),
        (json.dumps({**LOT, "feed_lot_id": "a\x00"}).encode(), {}, 400),
        (json.dumps(LOT).encode().replace(b"5000", b"1e999"), {}, 400),
        (json.dumps({**LOT, "quantity_kg": 1.7e308}).encode(), {}, 400),
        (json.dumps({**LOT, "quantity_kg": 1_000_000_001}).encode(), {}, 400),
        (json.dumps({**LOT, "occurred_at": "0001-01-01T00:00:00+14:00"}).encode(), {}, 400),
        (json.dumps(LOT).encode(), {"Idempotency-Key": ""}, 400),
        (json.dumps(LOT).encode(), {"Idempotency-Key": "x" * 256}, 400),
        (json.dumps(LOT).encode(), {"Content-Type": "text/plain"}, 415),
        (b" " * 70_000, {}, 413),
    ],
)
async def test_odd_requests_are_refused_in_the_standard_body(
    api: httpx2.AsyncClient, raw: bytes, headers: dict[str, str], status: int
) -> None:
    sent = {"Content-Type": "application/json", **headers}
    answer = await api.post("/api/v1/feed/lots", content=raw, headers=sent)
    assert answer.status_code == status, answer.text
    assert answer.json()["error"]["traceId"]


async def test_a_moment_of_a_far_zone_is_kept(api: httpx2.AsyncClient) -> None:
    said = {**LOT, "occurred_at": "2025-01-02T12:00:00+19:23"}
    answer = await api.post("/api/v1/feed/lots", json=said)
    assert answer.status_code == 201, answer.text
    assert answer.json()["occurred_at"] == "2025-01-01T16:37:00Z"
    span = {"from": "2025-01-02T11:59:00+19:23", "to": "2025-01-02T12:01:00+19:23"}
    (found,) = (await api.get("/api/v1/feed/lots", params=span)).json()["lots"]
    assert found == answer.json()
    nowhen = {"from": "0001-01-01T00:00:00+19:23"}
    assert (await api.get("/api/v1/feed/lots", params=nowhen)).status_code == 400


async def test_who_may_do_what(api: httpx2.AsyncClient, keys: dict[str, str]) -> None:
    for headers, post, get in (
        ({"Authorization": ""}, 401, 401),
        ({"Authorization": "Bearer fiq_nobody"}, 401, 401),
        ({"Authorization": f"Bearer {keys['viewer']}"}, 403, 200),
        ({"Authorization": f"Bearer {keys['operator']}"}, 201, 200),
        ({"Authorization": f"Bearer {keys['admin']}"}, 201, 200),
    ):
        answer = await api.post("/api/v1/feed/lots", json=LOT, headers=headers)
        assert answer.status_code == post
        for path in ("lots", "intakes"):
            assert (await api.get(f"/api/v1/feed/{path}", headers=headers)).status_code == get


async def test_pages_follow_each_other_without_gap_or_overlap(
    api: httpx2.AsyncClient, pool: db.Pool
) -> None:
    at = datetime.now(UTC)
    messages = [
        said("feed.dispensed", {"quantity_kg": n}, ts=at - timedelta(seconds=n // 3))
        for n in range(25)
    ]
    await handlers.commit(pool, messages)
    found: list[dict[str, Any]] = []
    query: dict[str, str] | None = {"limit": "4"}
    while query:
        page = (await api.get("/api/v1/feed/intakes", params=query)).json()
        found += page["intakes"]
        cursor = page["next_cursor"]
        query = {"limit": "4", "cursor": cursor} if cursor else None
    assert sorted(each["quantity_kg"] for each in found) == list(range(25))
    FeedIntakes.model_validate(page)
    order = [(each["occurred_at"], each["intake_id"]) for each in found]
    assert order == sorted(order, reverse=True)


async def test_filters_by_barn_device_lot_and_time(api: httpx2.AsyncClient, pool: db.Pool) -> None:
    at = datetime.now(UTC).replace(microsecond=0)
    for n, (place, lot) in enumerate(
        (
            (Place("t-1", "f-1", "b-1", "d-1"), "l-1"),
            (Place("t-001", "f-001", "b-001", "d-010"), "l-2"),
            (Place("t-001", "f-001", "b-001", "d-020"), "l-2"),
        )
    ):
        payload = {"quantity_kg": n, "feed_lot_id": lot}
        sent = said("feed.dispensed", payload, place=place, ts=at + timedelta(minutes=n))
        await handlers.commit(pool, [sent])
    minute = (at + timedelta(minutes=1)).isoformat()
    for query, expected in (
        ({"barn": "b-001"}, {1, 2}),
        ({"device": "d-010"}, {1}),
        ({"device": "d-010", "barn": "b-1"}, set()),
        ({"lot": "l-2"}, {1, 2}),
        ({"tenant": "t-2"}, set()),
        ({"farm": "f-1", "tenant": "t-1"}, {0}),
        ({"from": minute}, {1, 2}),
        ({"to": minute}, {0}),
        ({"from": minute, "to": minute}, set()),
    ):
        answer = await api.get("/api/v1/feed/intakes", params=query)
        assert {each["quantity_kg"] for each in answer.json()["intakes"]} == expected, query
        table = await api.get("/api/v1/feed/intakes", params={**query, "format": "csv"})
        assert len(list(csv.DictReader(io.StringIO(table.text)))) == len(expected)


async def test_lots_can_be_listed(api: httpx2.AsyncClient) -> None:
    for n in range(3):
        await api.post("/api/v1/feed/lots", json={**LOT, "feed_lot_id": f"lot-{n}"})
    page = (await api.get("/api/v1/feed/lots", params={"limit": 2, "barn": "b-1"})).json()
    rest = (await api.get("/api/v1/feed/lots", params={"cursor": page["next_cursor"]})).json()
    names = [each["feed_lot_id"] for each in (*page["lots"], *rest["lots"])]
    assert sorted(names) == ["lot-0", "lot-1", "lot-2"]
    table = await api.get("/api/v1/feed/lots", params={"format": "csv", "limit": 2})
    assert table.headers["content-type"].startswith("text/csv")
    assert len(list(csv.DictReader(io.StringIO(table.text)))) == 2


async def test_the_link_of_a_table_is_the_same_question_one_page_on(
    api: httpx2.AsyncClient,
) -> None:
    for n in range(5):
        lot = "lot-other" if n == 2 else "lot-1"
        await api.post("/api/v1/feed/lots", json={**LOT, "feed_lot_id": lot})
    query = {"format": "csv", "limit": "2", "lot": "lot-1", "from": "2026-01-01T00:00:00+02:00"}
    first = await api.get("/api/v1/feed/lots", params=query)
    where = first.headers["link"].removeprefix("<").removesuffix('>; rel="next"')
    second = await api.get(f"/api/v1/feed/lots{where}")
    assert "link" not in second.headers
    found = [*csv.DictReader(io.StringIO(first.text)), *csv.DictReader(io.StringIO(second.text))]
    assert [row["feed_lot_id"] for row in found] == ["lot-1"] * 4
    assert len({row["event_id"] for row in found}) == 4


@pytest.mark.parametrize("path", ["lots", "intakes"])
async def test_a_table_without_rows_has_its_header(
    api: httpx2.AsyncClient, pool: db.Pool, path: str
) -> None:
    empty = await api.get(f"/api/v1/feed/{path}", params={"format": "csv"})
    await api.post("/api/v1/feed/lots", json=LOT)
    await handlers.commit(pool, [said("feed.dispensed", {"quantity_kg": 1})])
    full = (await api.get(f"/api/v1/feed/{path}")).json()[path][0]
    assert empty.text == ",".join(full) + "\r\n"


async def test_a_quantity_that_is_no_number_is_shown_as_none(
    api: httpx2.AsyncClient, pool: db.Pool, edge_db: Database
) -> None:
    """Such were derived before weights had a bound."""
    await handlers.commit(pool, [said("feed.dispensed", {"quantity_kg": 1})])
    with databases.connected(edge_db.admin_url) as owner:
        owner.execute("update feed_intakes set quantity_kg = 'Infinity'")
    page = await api.get("/api/v1/feed/intakes")
    assert page.status_code == 200
    (row,) = FeedIntakes.model_validate_json(page.content).intakes
    assert row.quantity_kg is None
    table = await api.get("/api/v1/feed/intakes", params={"format": "csv"})
    assert [each["quantity_kg"] for each in csv.DictReader(io.StringIO(table.text))] == [""]


async def test_a_table_holds_no_formula(
    pool: db.Pool, edge_db: Database, keys: dict[str, str]
) -> None:
    with databases.connected(edge_db.admin_url) as owner:
        owner.execute("update api_keys set name = '=1+1' where role = 'operator'")
    async with client(pool, keys["operator"]) as api:
        await api.post("/api/v1/feed/lots", json=LOT)
        table = await api.get("/api/v1/feed/lots", params={"format": "csv"})
    (row,) = csv.DictReader(io.StringIO(table.text))
    assert (row["recorded_by"], row["device_id"]) == ("'=1+1", "")


@pytest.mark.parametrize(
    "query",
    [
        {"limit": "0"}, {"limit": "1001"}, {"limit": "x"}, {"cursor": "x"}, {"cursor": "////"},
        {"from": "noon"}, {"from": "2025-01-01T00:00:00"}, {"format": "xml"}, {"barn_id": "b-1"},
        {"barn": "a\x00b"}, {"barn": "a/b"}, {"cursor": "a" * 300},
        {"cursor": "OTk5OS0xMi0zMVQyMzo1OTo1OS0xNDowMHx4"}, {"from": "1"}, {"to": "1e9"},
        {"from": "2026-01-02T00:00:00Z", "to": "2026-01-01T00:00:00Z"}, {"barn": ["b-1", "b-2"]},
    ],
)  # fmt: skip
@pytest.mark.parametrize("path", ["lots", "intakes"])
async def test_odd_questions_are_answered_with_400(
    api: httpx2.AsyncClient, path: str, query: dict[str, Any]
) -> None:
    answer = await api.get(f"/api/v1/feed/{path}", params=query)
    assert answer.status_code == 400, answer.text
    assert answer.json()["error"]["code"] == "VALIDATION_ERROR"


@pytest.mark.req("FB-15")
async def test_the_log_tells_which_event_and_nothing_of_what_it_says(
    pool: db.Pool, keys: dict[str, str]
) -> None:
    """Canaries in every field that a person or device fills; good and bad requests."""
    out = io.StringIO()
    log.configure("debug", stream=out)
    try:
        async with client(pool, keys["operator"]) as api:
            event_id = await _talk(api, pool)
    finally:
        log.configure("warning")
    lines = [json.loads(line) for line in out.getvalue().splitlines()]
    (told,) = [line for line in lines if line["event"] == "feed.lot_new"]
    assert (told["event_id"], told["event_type"], told["trace_id"]) == (
        event_id,
        "feed.lot.received",
        "trace-9",
    )
    assert "canary" not in out.getvalue()
    assert not re.search(r"7712\d\.25", out.getvalue())


async def _talk(api: httpx2.AsyncClient, pool: db.Pool) -> str:
    event_id = str(ids.new())
    body = {**LOT, "feed_lot_id": "canary-lot", "quantity_kg": 77123.25, "event_id": event_id}
    await api.post("/api/v1/feed/lots", json=body, headers={"x-trace-id": "trace-9"})
    await api.post("/api/v1/feed/lots", json={**body, "quantity_kg": 77124.25})
    await api.post("/api/v1/feed/lots", json={**body, "canary-field": "canary-value"})
    await api.get("/api/v1/feed/lots", params={"lot": "canary-lot"})
    payload = {"quantity_kg": 77125.25, "feed_lot_id": "canary-dispensed"}
    await handlers.commit(pool, [said("feed.dispensed", payload)])
    return event_id


async def test_a_database_that_is_away_is_503_and_not_500(
    api: httpx2.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def away(*_: Any, **__: Any) -> Any:
        raise psycopg.OperationalError("the database system is shutting down")

    monkeypatch.setattr(store, "add_lot", away)
    monkeypatch.setattr(store, "lots", away)
    posted = await api.post("/api/v1/feed/lots", json=LOT)
    listed = await api.get("/api/v1/feed/lots")
    assert (posted.status_code, listed.status_code) == (503, 503)
    assert posted.headers["retry-after"] == "5"
