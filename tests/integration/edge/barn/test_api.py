"""POST /api/v1/barn/records at the edge, and the pages of records."""

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx2
import psycopg
import pytest

from farmiq.edge.barn.api import Api
from farmiq.edge.sync import store as sync
from farmiq.messages import bus
from farmiq.plumbing import db, http, ids
from tests.conftest import Database
from tests.integration.edge.feed.conftest import keys, pool, rows

__all__ = ["keys", "pool"]  # fixtures

RECORDS = "/api/v1/barn/records"
DEAD = {
    "tenant_id": "t-1", "farm_id": "f-1", "barn_id": "b-1", "record_type": "mortality", "value": 3,
}  # fmt: skip


@pytest.fixture
async def api(
    pool: db.Pool, edge_db: Database, keys: dict[str, str]
) -> AsyncIterator[httpx2.AsyncClient]:
    with psycopg.connect(edge_db.admin_url) as owner:
        owner.execute("insert into farms (tenant_id, farm_id, timezone) values ('t-1','f-1','UTC')")
    server = http.HttpServer(title="edge", version="0", actions_per_minute=100_000)
    Api(pool).add_to(server.app)
    async with httpx2.AsyncClient(
        transport=httpx2.ASGITransport(app=server.app),
        base_url="http://edge.test",
        headers={"Authorization": f"Bearer {keys['operator']}"},
    ) as client:
        yield client


async def post(
    api: httpx2.AsyncClient, body: dict[str, Any], *, key: str | None = None
) -> httpx2.Response:
    return await api.post(RECORDS, json=body, headers={"Idempotency-Key": key or str(ids.new())})


@pytest.mark.req("FB-13")
async def test_record_posted_at_the_edge_is_stored_and_waits_for_the_cloud(
    api: httpx2.AsyncClient, pool: db.Pool, edge_db: Database
) -> None:
    cure = DEAD | {
        "record_type": "treatment", "product": "amoxicillin", "dose": 2.50, "dose_unit": "ml",
        "withdrawal_days": 14, "occurred_at": "2026-02-01T10:00:00Z",
    }  # fmt: skip
    answer = await post(api, cure)

    assert answer.status_code == 201, answer.text
    async with db.transaction(pool) as tx:
        claimed = await sync.claim(tx, "t-1", claimed_by="test", limit=5, lease_s=30)
        (waiting,) = await sync.start_sending(tx, claimed, claimed_by="test", lease_s=30)
    event = bus.read(bus.write(waiting.event()))
    assert event.event_type == "barn.record.created"
    assert str(event.event_id) == answer.json()["event_id"]
    stored = rows(
        edge_db,
        "select record_id, device_id, value_number, product, withdrawal_days, recorded_by_ref "
        "from barn_records",
    )
    assert stored == [(answer.json()["record_id"], None, 3, "amoxicillin", 14, "the operator")]
    assert rows(edge_db, "select actor, action from audit_log") == [
        ("the operator", "barn.record.add")
    ]
    assert (await api.get(RECORDS)).json()["records"] == [answer.json()]


async def test_same_key_is_the_same_record_and_other_content_a_conflict(
    api: httpx2.AsyncClient, edge_db: Database
) -> None:
    answers = await asyncio.gather(*(post(api, DEAD, key="k") for _ in range(5)))
    other = await post(api, DEAD | {"value": 4}, key="k")

    assert {(answer.status_code, answer.text) for answer in answers} == {(201, answers[0].text)}
    assert other.status_code == 409
    for table in ("barn_records", "sync_outbox", "audit_log", "posted_events"):
        assert rows(edge_db, f"select count(*) from {table}") == [(1,)]  # noqa: S608


async def test_correction_is_a_new_record_and_a_second_one_is_refused(
    api: httpx2.AsyncClient,
) -> None:
    first = (await post(api, DEAD)).json()

    second = (await post(api, DEAD | {"value": 1, "replaces": first["record_id"]})).json()
    third = await post(api, DEAD | {"value": 2, "replaces": first["record_id"]})

    assert third.status_code == 409
    listed = (await api.get(RECORDS, params={"type": "mortality"})).json()["records"]
    replaced = {row["record_id"]: row["replaced_by"] for row in listed}
    assert replaced == {first["record_id"]: second["record_id"], second["record_id"]: None}


async def test_correction_leaves_the_records_of_another_farms_device(
    api: httpx2.AsyncClient, edge_db: Database
) -> None:
    with psycopg.connect(edge_db.admin_url) as owner:
        for farm_id in ("f-1", "f-2"):
            owner.execute(
                "insert into barn_records (event_id, tenant_id, farm_id, barn_id, device_id, "
                "record_id, record_type, value_number, recorded_by_ref, recorded_at, occurred_at) "
                "values (gen_random_uuid(), 't-1', %s, 'b-1', 'd', '1', 'mortality', 7, 'd', "
                "now(), now())",
                (farm_id,),
            )
    elsewhere = await post(api, DEAD | {"farm_id": "f-3", "replaces": "1"})
    first = (await post(api, DEAD | {"replaces": "1"})).json()

    assert elsewhere.status_code == 404
    listed = (await api.get(RECORDS, params={"device": "d"})).json()["records"]
    replaced = {row["farm_id"]: row["replaced_by"] for row in listed}
    assert replaced == {"f-1": first["record_id"], "f-2": None}


_LATER = (datetime.now(UTC) + timedelta(hours=1)).isoformat()


@pytest.mark.parametrize(
    ("change", "status", "field"),
    [
        ({"value": -3}, 400, "body"),
        ({"occurred_at": _LATER}, 400, "occurred_at"),
        ({"tenant_id": "t-7"}, 404, "tenant_id"),
        ({"batch_id": "flock-7"}, 404, "batch_id"),
        ({"batch_id": "flock-1", "barn_id": "b-2"}, 400, "batch_id"),
        ({"batch_id": "flock-1", "occurred_at": "2025-12-31T10:00:00Z"}, 400, "batch_id"),
        ({"value": 98}, 400, "value"),
        ({"replaces": "r-7"}, 404, "replaces"),
    ],
)
async def test_bad_record_is_refused_and_nothing_is_stored(
    api: httpx2.AsyncClient, edge_db: Database, change: dict[str, Any], status: int, field: str
) -> None:
    with psycopg.connect(edge_db.admin_url) as owner:
        owner.execute(
            "insert into cloud_batches "
            "values ('t-1', 'flock-1', 'f-1', 'b-1', '2026-01-01', null, 100)"
        )
    assert (await post(api, DEAD | {"batch_id": "flock-1"})).status_code == 201

    answer = await post(api, DEAD | change)

    assert answer.status_code == status, answer.text
    assert [detail["field"] for detail in answer.json()["error"]["details"]] == [field]
    assert rows(edge_db, "select count(*) from barn_records") == [(1,)]


async def test_batch_is_taken_as_given_by_an_edge_that_has_none_of_the_cloud(
    api: httpx2.AsyncClient,
) -> None:
    assert (await post(api, DEAD | {"batch_id": "flock-7"})).status_code == 201


async def test_record_without_a_batch_keeps_the_one_that_was_in_the_barn(
    api: httpx2.AsyncClient, edge_db: Database
) -> None:
    with psycopg.connect(edge_db.admin_url) as owner:
        owner.execute(
            "insert into cloud_batches "
            "values ('t-1', 'flock-1', 'f-1', 'b-1', '2026-01-01', null, 5)"
        )
    first = await post(api, DEAD, key="k")
    with psycopg.connect(edge_db.admin_url) as owner:
        owner.execute("update cloud_batches set barn_id = 'b-2'")

    assert first.json()["batch_id"] == "flock-1"
    assert (await post(api, DEAD, key="k")).text == first.text
    fixed = await post(api, DEAD | {"value": 5, "replaces": first.json()["record_id"]})
    assert (fixed.status_code, fixed.json()["batch_id"]) == (201, "flock-1")
    sent = rows(
        edge_db,
        "select payload_json ->> 'batch_id', payload_json -> 'batch_derived' from sync_outbox",
    )
    assert sent == [("flock-1", True)] * 2
    assert rows(edge_db, "select batch_id from barn_records") == [("flock-1",)] * 2
