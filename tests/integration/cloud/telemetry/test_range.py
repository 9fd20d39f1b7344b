"""GET /api/v1/telemetry/range: within its budget, from rollups, and of one company."""

import itertools
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx2
import pytest

from farmiq.cloud.identity.accounts import add_company, add_user, open_sign_in
from farmiq.cloud.identity.sign_in import SignIns
from farmiq.cloud.telemetry import rollups
from farmiq.cloud.telemetry.api import RANGE, Api
from farmiq.farm import points
from farmiq.plumbing import db, http
from tests.conftest import Database
from tests.integration.cloud.telemetry.conftest import bucket_event, keep, keep_buckets
from tests.integration.cloud.telemetry.test_rollups import register
from tests.integration.edge.telemetry.readings import Reading, execute
from tests.support import databases

AT = datetime(2026, 5, 1, tzinfo=UTC)
HOUR, DAY = timedelta(hours=1), timedelta(days=1)


@dataclass
class Asking:
    client: httpx2.AsyncClient
    pool: db.Pool
    tokens: dict[str, str]

    async def answer(self, query: dict[str, Any], *, who: str = "ann") -> httpx2.Response:
        texts = {
            name: value.isoformat() if isinstance(value, datetime) else str(value)
            for name, value in query.items()
        }
        headers = {"Authorization": f"Bearer {self.tokens.get(who, 'x' * 43)}"}
        return await self.client.get(RANGE, params=texts, headers=headers)

    async def range(
        self, begin: datetime, end: datetime, *, who: str = "ann", **query: Any
    ) -> dict[str, Any]:
        answer = await self.answer({"from": begin, "to": end, **query}, who=who)
        assert answer.status_code == 200, answer.text
        found: dict[str, Any] = answer.json()
        assert len(found["points"]) <= int(query.get("limit", 1000))
        return found


@pytest.fixture
async def asking(cloud_db: Database) -> AsyncIterator[Asking]:
    tokens = {}
    with databases.connected(cloud_db.admin_url) as connection:
        for tenant, person in (("t-1", "ann"), ("t-2", "bea")):
            company = add_company(connection, tenant, name=tenant)
            email = f"{person}@b.c"
            add_user(connection, email, company_id=company, password="long enough 1")
            tokens[person] = open_sign_in(connection, email, lasts=timedelta(hours=1))
    server = http.HttpServer(title="cloud", version="0")
    transport = httpx2.ASGITransport(app=server.app)
    async with (
        db.pool(cloud_db.url, name="test") as pool,
        httpx2.AsyncClient(transport=transport, base_url="http://cloud.test") as client,
    ):
        Api(SignIns(pool, lasts=timedelta(hours=1))).add_to(server.app)
        yield Asking(client, pool, tokens)


async def test_points_are_buckets_with_gaps_where_nothing_came(asking: Asking) -> None:
    values = [(0, 1.0), (20, 5.0), (60, 2.0), (300, 7.0)]
    await keep(asking.pool, [Reading(AT + timedelta(seconds=s), value) for s, value in values])
    await rollups.recompute_all(asking.pool)
    found = await asking.range(AT, AT + HOUR, device="d-1")
    assert (found["bucket"], found["step_s"]) == ("1m", 60.0)
    assert [
        (each["bucket_start_at"][11:16], each["avg_value"], each["min_value"], each["max_value"],
         each["count"])
        for each in found["points"]
    ] == [
        ("00:00", 3.0, 1.0, 5.0, 2), ("00:01", 2.0, 2.0, 2.0, 1), ("00:05", 7.0, 7.0, 7.0, 1),
    ]  # fmt: skip


async def test_a_long_range_is_answered_from_rollups_alone(
    asking: Asking, cloud_db: Database
) -> None:
    """Readings that are gone are still in the answer, means weighted by their number."""
    await keep(
        asking.pool,
        [
            Reading(AT + timedelta(days=day, minutes=7 * n), float(n))
            for day in range(0, 90, 9)
            for n in range(20)
        ],
    )
    await rollups.recompute_all(asking.pool)
    execute(cloud_db, "truncate telemetry_readings")
    whole = await asking.range(AT, AT + 90 * DAY)
    assert (whole["bucket"], whole["step_s"]) == ("1h", 3 * 3600)
    assert sum(each["count"] for each in whole["points"]) == 200
    assert whole["points"][0]["avg_value"] == 9.5
    few = await asking.range(AT, AT + 90 * DAY, limit=20)
    assert (few["bucket"], few["step_s"]) == ("1d", 7 * 86400)
    assert sum(each["count"] for each in few["points"]) == 200
    assert {(each["min_value"], each["max_value"]) for each in few["points"]} == {(0.0, 19.0)}


async def test_days_are_the_farms(asking: Asking, cloud_db: Database) -> None:
    register(cloud_db, "America/Santiago")
    begin = datetime(2026, 4, 2, tzinfo=UTC)  # the clock goes back on April 5
    await keep(asking.pool, [Reading(begin + n * HOUR, 1.0) for n in range(24 * 6)])
    await rollups.recompute_all(asking.pool)
    found = await asking.range(begin, begin + 6 * DAY, bucket="1d")
    counts = [(each["bucket_start_at"][8:13], each["count"]) for each in found["points"]]
    assert counts == [("02T03", 24), ("03T03", 24), ("04T03", 25), ("05T04", 24), ("06T04", 24),
                      ("07T04", 20)]  # fmt: skip
    pairs = await asking.range(begin, begin + 6 * DAY, bucket="1d", limit=4)
    assert [each["count"] for each in pairs["points"]] == [48, 49, 44]


async def test_readings_themselves_are_answered_for_a_day_at_most(asking: Asking) -> None:
    await keep(asking.pool, [Reading(AT + n * HOUR, float(n)) for n in range(5)])
    found = await asking.range(AT, AT + DAY, bucket="raw")
    assert [each["metric_value"] for each in found["points"]] == [0.0, 1.0, 2.0, 3.0, 4.0]
    answer = await asking.answer({"from": AT, "to": AT + DAY, "bucket": "raw", "limit": 4})
    assert (answer.status_code, "more than 4 readings" in answer.text) == (400, True)
    answer = await asking.answer({"from": AT, "to": AT + 2 * DAY, "bucket": "raw"})
    assert (answer.status_code, "1 days after from" in answer.text) == (400, True)


async def test_a_series_of_longer_buckets_is_answered_beside_one_of_readings(
    asking: Asking,
) -> None:
    await keep(asking.pool, [Reading(AT + timedelta(minutes=n), 1.0) for n in range(3)])
    await keep_buckets(asking.pool, [bucket_event(AT, 2.0, 9, window="1h", device="d-2")])
    await rollups.recompute_all(asking.pool)
    found = await asking.range(AT, AT + HOUR)
    assert [(each["device_id"], each["count"]) for each in found["points"]] == [
        ("d-1", 1), ("d-1", 1), ("d-1", 1), ("d-2", 9),
    ]  # fmt: skip


@pytest.mark.req("DB2-08")
async def test_another_company_sees_nothing(asking: Asking) -> None:
    await keep(asking.pool, [Reading(AT, 1.0)])
    await rollups.recompute_all(asking.pool)
    for bucket in ("raw", "1m", "1h", "1d"):
        query = {"bucket": bucket, "device": "d-1"}
        assert len((await asking.range(AT, AT + DAY, **query))["points"]) == 1
        assert (await asking.range(AT, AT + DAY, who="bea", **query))["points"] == []
    assert (await asking.answer({"from": AT, "to": AT + DAY}, who="nobody")).status_code == 401


@pytest.mark.parametrize(
    ("query", "status", "why"),
    [
        ({}, 400, "from"),
        ({"from": AT}, 400, "to"),
        ({"from": AT, "to": AT}, 400, "is not after from"),
        ({"from": AT, "to": AT - DAY}, 400, "is not after from"),
        ({"from": "yesterday", "to": AT}, 400, "is not a time"),
        ({"from": "2026-05-01T00:00:00", "to": AT + DAY}, 400, "has no zone"),
        ({"from": AT, "to": AT + 4000 * DAY}, 400, "3660 days"),
        ({"from": AT, "to": AT + 32 * DAY, "bucket": "1m"}, 400, "31 days"),
        ({"from": AT, "to": AT + DAY, "bucket": "2h"}, 400, "bucket"),
        ({"from": AT, "to": AT + DAY, "limit": 0}, 400, "limit"),
        ({"from": AT, "to": AT + DAY, "limit": 5001}, 400, "limit"),
        ({"from": AT, "to": AT + DAY, "device": "a b"}, 400, "device"),
        ({"from": AT, "to": AT + DAY, "colour": "red"}, 400, "colour"),
        ({"from": AT, "to": AT + DAY, "company": "x"}, 400, "company"),
        ({"from": AT, "to": AT + DAY, "limit": 1}, 400, "more than 1 points"),
        (
            {"from": AT, "to": AT + DAY, "company": "00000000-0000-0000-0000-000000000000"},
            404,
            "no such company",
        ),
    ],
)
async def test_bad_input_is_refused_with_the_reason(
    asking: Asking, query: dict[str, Any], status: int, why: str
) -> None:
    answer = await asking.answer(query)
    assert (answer.status_code, why in answer.text) == (status, True), answer.text


def test_steps_grow_and_are_whole_parts_of_the_next_window() -> None:
    lengths = [step.length for step in points.STEPS]
    assert all(before < after for before, after in itertools.pairwise(lengths))
    for step in points.STEPS:
        if step.window != "1d":
            assert DAY % step.length == timedelta()
