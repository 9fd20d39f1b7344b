"""The edge's telemetry API over HTTP: newest readings, ranges, pages, CSV, wrong questions."""

import asyncio
import csv
import io
import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx2
import psycopg
import pytest

from farmiq.api import cursor
from farmiq.config import EdgeSettings
from farmiq.edge import api_keys
from farmiq.edge.ingress import service as ingress
from farmiq.edge.telemetry import api, queries
from farmiq.edge.telemetry import service as telemetry
from farmiq.edge.telemetry.queries import TelemetryBucket, TelemetryReading
from farmiq.lab import stack
from farmiq.plumbing import db, http, ids
from farmiq.plumbing.messaging import mqtt
from tests.conftest import Database
from tests.integration.edge.telemetry.readings import Reading, execute, keep, keep_at, rows
from tests.integration.edge.telemetry.test_rollups import recompute_all as remake_all
from tests.support.until import until

NEEDED = {"ingress.broker", "telemetry.database"}
NOW = datetime.now(UTC).replace(second=30, microsecond=0)


def add_key(database: Database, role: str = "viewer") -> dict[str, str]:
    key = api_keys.new_key()
    execute(
        database,
        "insert into api_keys (api_key_id, name, role, key_sha256) values (%s, %s, %s, %s)",
        ids.new(),
        f"{role}-{key[-6:]}",
        role,
        api_keys.digest(key),
    )
    return {"Authorization": f"Bearer {key}"}


def client_of(server: http.HttpServer, headers: dict[str, str]) -> httpx2.AsyncClient:
    transport = httpx2.ASGITransport(app=server.app, raise_app_exceptions=False)
    return httpx2.AsyncClient(transport=transport, base_url="http://edge", headers=headers)


@pytest.fixture
async def client(pool: db.Pool, edge_db: Database) -> AsyncIterator[httpx2.AsyncClient]:
    server = http.HttpServer(title="test", version="0")
    api.Api(pool).add_to(server.app)
    async with client_of(server, add_key(edge_db)) as opened:
        yield opened


async def get(client: httpx2.AsyncClient, route: str, **parameters: Any) -> Any:
    """The answer, which is of the documented type."""
    answer = await client.get(route, params=parameters)
    assert answer.status_code == 200, answer.text
    if route == api.LATEST:
        api.LatestReadings.model_validate_json(answer.content)
    else:
        points = api.TelemetryRange.model_validate_json(answer.content).points
        kind = TelemetryReading if answer.json()["bucket"] == "raw" else TelemetryBucket
        assert all(isinstance(point, kind) for point in points)
    return answer.json()


async def pages(client: httpx2.AsyncClient, **parameters: Any) -> list[dict[str, Any]]:
    """All points, page by page."""
    points: list[dict[str, Any]] = []
    cursor: dict[str, str] = {}
    while True:
        page = await get(client, api.RANGE, **parameters, **cursor)
        assert len(page["points"]) <= parameters["limit"]
        points += page["points"]
        if page["next_cursor"] is None:
            return points
        cursor = {"cursor": page["next_cursor"]}


SPAN = {"tenant": "t-1", "from": "2026-01-01T00:00:00Z", "to": "2026-01-02T00:00:00Z"}


class TestWhoMayAsk:
    @pytest.mark.parametrize("route", [api.LATEST, api.RANGE])
    async def test_nobody_without_a_key(self, client: httpx2.AsyncClient, route: str) -> None:
        answer = await client.get(route, params=SPAN, headers={"Authorization": "Bearer no"})
        assert answer.status_code == 401
        assert answer.json()["error"]["code"] == "UNAUTHENTICATED"


class TestLatest:
    async def test_the_newest_of_every_series_by_place(
        self, pool: db.Pool, client: httpx2.AsyncClient
    ) -> None:
        await keep(
            pool,
            [
                Reading(NOW - timedelta(minutes=n), float(n), device, metric, barn=barn)
                for n in (3, 1, 2)
                for device, metric, barn in (
                    ("d-1", "temperature", "b-1"),
                    ("d-1", "humidity", "b-1"),
                    ("d-2", "temperature", "b-2"),
                )
            ],
        )
        await keep(pool, [Reading(NOW, 7.0, tenant="t-2")])
        everything = (await get(client, api.LATEST))["readings"]
        names = ("tenant_id", "device_id", "metric_value")
        assert [tuple(each[name] for name in names) for each in everything] == [
            ("t-1", "d-1", 1.0), ("t-1", "d-1", 1.0), ("t-1", "d-2", 1.0), ("t-2", "d-1", 7.0),
        ]  # fmt: skip
        for parameters, count in (
            ({"tenant": "t-1"}, 3),
            ({"tenant": "t-1", "barn": "b-2"}, 1),
            ({"device": "d-1", "metric": "temperature"}, 2),
            ({"farm": "f-9"}, 0),
        ):
            found = (await get(client, api.LATEST, **parameters))["readings"]
            assert len(found) == count, parameters
        first = await get(client, api.LATEST, limit=3)
        second = await get(client, api.LATEST, limit=3, cursor=first["next_cursor"])
        assert [*first["readings"], *second["readings"]] == everything
        assert second["next_cursor"] is None

    async def test_it_is_seen_at_once_and_stays_when_the_worker_has_been(
        self, pool: db.Pool, client: httpx2.AsyncClient
    ) -> None:
        for value in (1.0, 2.0, 3.0):
            at = NOW - timedelta(minutes=10 - value)
            await keep(pool, [Reading(at, value), Reading(at - timedelta(days=2), 99.0)])
            for _ in range(2):
                (found,) = (await get(client, api.LATEST))["readings"]
                assert (found["metric_value"], found["clock_suspect"]) == (value, False)
                await remake_all(pool)

    async def test_a_clock_ahead_does_not_stay_the_newest(
        self, pool: db.Pool, edge_db: Database, client: httpx2.AsyncClient
    ) -> None:
        """Five hours ahead is not suspect; still nothing is newer than when it arrived."""
        past = datetime.now(UTC) - timedelta(minutes=30)
        ahead = Reading(past + timedelta(hours=5), 1.0)
        await keep_at(pool, [ahead], now=past)
        execute(edge_db, "update telemetry_raw set ingested_at = %s", past)
        await remake_all(pool)
        corrected = Reading(datetime.now(UTC) - timedelta(minutes=1), 2.0)
        await keep(pool, [corrected])
        for _ in range(2):
            (found,) = (await get(client, api.LATEST))["readings"]
            assert found["metric_value"] == 2.0
            await remake_all(pool)

    @pytest.mark.parametrize("year", [1970, 2100])
    async def test_a_suspect_clock_is_told_only_if_there_is_no_other(
        self, pool: db.Pool, client: httpx2.AsyncClient, year: int
    ) -> None:
        async def newest() -> tuple[float, bool]:
            (found,) = (await get(client, api.LATEST))["readings"]
            return found["metric_value"], found["clock_suspect"]

        odd = datetime(year, 1, 1, tzinfo=UTC)
        await keep(pool, [Reading(odd, 1.0)])
        assert await newest() == (1.0, True)
        await keep(pool, [Reading(odd - timedelta(days=1), 2.0)])
        await remake_all(pool)
        assert await newest() == (2.0, True)  # it arrived later
        await keep(pool, [Reading(NOW, 3.0)])
        assert await newest() == (3.0, False)
        await keep(pool, [Reading(odd, 4.0)])
        await remake_all(pool)
        assert await newest() == (3.0, False)

    async def test_it_does_not_read_what_is_old(
        self, pool: db.Pool, edge_db: Database, client: httpx2.AsyncClient
    ) -> None:
        """By rows fetched, as PostgreSQL counts them: some per series, whatever is stored."""
        await keep(pool, [Reading(NOW, 0.0, f"d-{n}") for n in range(20)])
        execute(
            edge_db,
            "insert into telemetry_raw select gen_random_uuid(), 't-1', 'f-1', 'b-1', "
            "'d-' || n %% 20, %s - n * interval '1 second', 'temperature', n, 'C' "
            "from generate_series(1, 100000) n",
            NOW,
        )
        execute(edge_db, "analyze telemetry_raw")
        assert len((await get(client, api.LATEST))["readings"]) == 20
        assert await rows_read(edge_db) < 200

    async def test_a_database_that_is_away_is_a_503(self) -> None:
        server = http.HttpServer(title="test", version="0")
        url = "postgresql://nobody@127.0.0.1:9/none?connect_timeout=1"
        async with db.pool(url, name="test", timeout_s=0.1) as away:
            api.Api(away).add_to(server.app)
            async with client_of(server, {"Authorization": "Bearer x"}) as client:
                answer = await client.get(api.LATEST)
        assert answer.status_code == 503


async def rows_read(database: Database) -> int:
    """How many rows the statement of `latest` takes from telemetry_raw, by EXPLAIN ANALYZE."""
    async with await psycopg.AsyncConnection.connect(database.url) as connection:
        statements: list[tuple[Any, Any]] = []

        class Spy(psycopg.AsyncCursor[Any]):
            async def execute(self, query: Any, params: Any = None, **more: Any) -> Any:
                statements.append((query, params))
                return await super().execute(query, params, **more)

        connection.cursor_factory = Spy
        await queries.latest(connection, api.LatestFilter().place(None), after=None, limit=1000)
        query, params = statements[0]
        cursor = await psycopg.AsyncCursor(connection).execute(
            "explain (analyze, format json) " + query, params
        )
        ((plan,),) = await cursor.fetchall()
    return sum(
        (node["Actual Rows"] + node.get("Rows Removed by Filter", 0)) * node["Actual Loops"]
        for node in walk(plan[0]["Plan"])
        if node.get("Relation Name", "").startswith("telemetry_raw")
    )


def walk(node: dict[str, Any]) -> list[dict[str, Any]]:
    return [node, *(each for child in node.get("Plans", []) for each in walk(child))]


class TestRange:
    async def test_readings_of_a_short_time_come_raw(
        self, pool: db.Pool, client: httpx2.AsyncClient
    ) -> None:
        readings = [Reading(NOW - timedelta(seconds=30 * n), float(n)) for n in range(50)]
        await keep(pool, readings)
        page = await get(
            client, api.RANGE, tenant="t-1", **{"from": NOW - timedelta(hours=1), "to": NOW}
        )
        assert page["bucket"] == "raw"
        assert [point["metric_value"] for point in page["points"]] == [
            float(n) for n in reversed(range(1, 50))
        ]
        assert page["points"][0]["event_id"] == str(readings[-1].id)

    @pytest.mark.parametrize(
        ("length", "readings", "bucket"),
        [
            (timedelta(hours=1), 1001, "1m"),
            (timedelta(hours=16), 1, "raw"),
            (timedelta(days=2), 1, "1h"),
            (timedelta(days=60), 1, "1d"),
            (timedelta(days=3000), 1, "1d"),
        ],
    )
    async def test_the_bucket_suits_the_range(
        self,
        pool: db.Pool,
        client: httpx2.AsyncClient,
        length: timedelta,
        readings: int,
        bucket: str,
    ) -> None:
        await keep(pool, [Reading(NOW - timedelta(seconds=n), 1.0) for n in range(1, readings + 1)])
        await remake_all(pool)
        page = await get(client, api.RANGE, tenant="t-1", **{"from": NOW - length, "to": NOW})
        assert page["bucket"] == bucket
        assert 0 < len(page["points"]) <= 1000

    async def test_what_is_dropped_is_answered_in_buckets(
        self, pool: db.Pool, edge_db: Database, client: httpx2.AsyncClient
    ) -> None:
        await keep(pool, [Reading(NOW, 1.0)])
        await remake_all(pool)
        execute(edge_db, "delete from telemetry_raw")
        execute(edge_db, "insert into telemetry_state (raw_from) values (now() + interval '1 h')")
        span = {"from": NOW - timedelta(minutes=5), "to": NOW + timedelta(minutes=5)}
        page = await get(client, api.RANGE, tenant="t-1", **span)
        assert (page["bucket"], len(page["points"])) == ("1m", 1)

    @pytest.mark.parametrize("bucket", ["raw", "1m", "1h", "1d"])
    @pytest.mark.parametrize("limit", [1, 7, 50, 5000])
    async def test_pages_of_any_size_give_everything_once_in_order(
        self, pool: db.Pool, client: httpx2.AsyncClient, bucket: str, limit: int
    ) -> None:
        """More series than are looked at together, and readings of the very same moment."""
        count = 50 if limit > 1 else 23
        await keep(
            pool,
            [
                Reading(NOW - timedelta(hours=7 * (n % 3)), float(n), f"d-{n % count:02}")
                for n in range(3 * count)
            ],
        )
        await remake_all(pool)
        span = {"from": NOW - timedelta(days=2), "to": NOW + timedelta(days=1)}
        points = await pages(client, tenant="t-1", bucket=bucket, limit=limit, **span)
        name = "occurred_at" if bucket == "raw" else "bucket_start_at"
        keys = [(point["device_id"], point[name], point.get("event_id")) for point in points]
        assert len(set(keys)) == len(keys)
        assert [key[:2] for key in keys] == sorted(key[:2] for key in keys)
        assert sum(point.get("count", 1) for point in points) == 3 * count

    async def test_by_farm_barn_device_and_metric(
        self, pool: db.Pool, client: httpx2.AsyncClient
    ) -> None:
        moved = [Reading(NOW - timedelta(hours=n), 1.0, barn=f"b-{n}") for n in (1, 2)]
        await keep(pool, [*moved, Reading(NOW, 2.0, "d-2", "humidity", farm="f-2")])
        await remake_all(pool)
        span = {"tenant": "t-1", "from": NOW - timedelta(days=1), "to": NOW + timedelta(minutes=1)}
        for bucket in ("raw", "1h"):
            for parameters, count in (
                ({}, 3),
                ({"barn": "b-1"}, 2),
                ({"barn": "b-2"}, 1),
                ({"farm": "f-2"}, 1),
                ({"device": "d-2"}, 1),
                ({"metric": "temperature"}, 2),
                ({"device": "d-1", "metric": "humidity"}, 0),
            ):
                page = await get(client, api.RANGE, bucket=bucket, **span, **parameters)
                assert len(page["points"]) == count, (bucket, parameters)

    async def test_csv_streams_everything_and_is_no_formula(
        self, pool: db.Pool, client: httpx2.AsyncClient
    ) -> None:
        readings = [
            Reading(NOW - timedelta(seconds=n), -n / 2, unit="=1+1" if n else '@x, "y"')
            for n in range(2500)
        ]  # fmt: skip
        await keep(pool, readings)
        answer = await client.get(
            api.RANGE,
            params={
                "tenant": "t-1", "bucket": "raw", "format": "csv",
                "from": str(NOW - timedelta(days=1)), "to": str(NOW + timedelta(days=1)),
            },
        )  # fmt: skip
        assert answer.headers["content-type"] == "text/csv; charset=utf-8"
        found = list(csv.DictReader(io.StringIO(answer.text)))
        assert [float(row["metric_value"]) for row in found] == [
            -n / 2 for n in reversed(range(2500))
        ]
        assert {row["unit"] for row in found} == {"'=1+1", '\'@x, "y"'}
        assert found[-1]["occurred_at"] == NOW.isoformat().replace("+00:00", "Z")
        assert found[-1]["clock_suspect"] == "false"

    async def test_csv_of_buckets_and_of_nothing(
        self, pool: db.Pool, client: httpx2.AsyncClient
    ) -> None:
        for device, lines in (("d-1", 2), ("d-9", 1)):
            await keep(pool, [Reading(NOW, 1.0)])
            await remake_all(pool)
            answer = await client.get(
                api.RANGE,
                params={
                    "tenant": "t-1", "device": device, "bucket": "1h", "format": "csv",
                    "from": str(NOW - timedelta(days=1)), "to": str(NOW + timedelta(days=1)),
                },
            )  # fmt: skip
            assert len(answer.text.splitlines()) == lines
            assert answer.text.startswith("tenant_id,farm_id,barn_id,device_id,metric_type,bucket_")


class TestWrongQuestions:
    @pytest.mark.parametrize(
        ("parameters", "fields"),
        [
            ({}, ["tenant", "from", "to"]),
            ({**SPAN, "tenant": "a/b"}, ["tenant"]),
            ({**SPAN, "device": "x\x00"}, ["device"]),
            ({**SPAN, "from": "yesterday", "to": "2026-01-01T00:00:00"}, ["from", "to"]),
            ({**SPAN, "to": "2025-01-01T00:00:00Z"}, ["to"]),
            ({**SPAN, "to": "2026-06-01T00:00:00Z", "bucket": "raw"}, ["to"]),
            ({**SPAN, "to": "2999-01-01T00:00:00Z"}, ["to"]),
            ({**SPAN, "from": "0001-01-01T00:00:00+05:00"}, ["from"]),
            ({**SPAN, "bucket": "5m", "limit": "0", "format": "x"}, ["bucket", "format", "limit"]),
            ({**SPAN, "limit": "9" * 400}, ["limit"]),
            ({**SPAN, "limit": "٣"}, ["limit"]),
            ({**SPAN, "colour": "red"}, ["colour"]),
            ({**SPAN, "cursor": "AAAA"}, ["cursor"]),
            ({**SPAN, "cursor": "é"}, ["cursor"]),
            ({**SPAN, "cursor": cursor("raw", "/", "m", NOW, ids.new())}, ["cursor"]),
            ({**SPAN, "cursor": cursor("1h", "d", "m", NOW, ids.new()), "bucket": "1m"},
             ["cursor"]),
        ],
    )  # fmt: skip
    async def test_every_wrong_parameter_is_named(
        self, client: httpx2.AsyncClient, parameters: dict[str, str], fields: list[str]
    ) -> None:
        answer = await client.get(api.RANGE, params=parameters)
        assert answer.status_code == 400
        error = answer.json()["error"]
        assert error["code"] == "VALIDATION_ERROR"
        assert sorted(detail["field"] for detail in error["details"]) == sorted(fields)
        assert all(detail["reason"] for detail in error["details"])

    async def test_a_parameter_said_twice_is_wrong(self, client: httpx2.AsyncClient) -> None:
        answer = await client.get(f"{api.LATEST}?tenant=a&tenant=b")
        assert answer.json()["error"]["details"] == [
            {"field": "tenant", "reason": "is given more than once"}
        ]


@pytest.mark.req("SC-04")
async def test_what_a_plain_client_publishes_is_seen_through_the_api(
    broker: stack.Stack, edge_db: Database, tasks: asyncio.TaskGroup
) -> None:
    settings = EdgeSettings.load(
        {
            **broker.environment,
            "FARMIQ_EDGE_DB_URL": edge_db.url,
            "FARMIQ_CLOUD_URL": "http://127.0.0.1:9",
            "FARMIQ_EDGE_KEY_FILE": "none",
        }
    )
    server = http.HttpServer(title="test", version="0")
    running = [tasks.create_task(each.run(settings, server)) for each in (ingress, telemetry)]

    async def ready() -> bool:
        return server.checks.keys() >= NEEDED and not await server.problems()

    await until(ready)
    url = broker.environment["FARMIQ_DEVICES_MQTT_URL"]
    async with (
        mqtt.connected(url, client_id="plain", persistent_session=False) as plain,
        client_of(server, add_key(edge_db)) as client,
    ):
        await plain.until_up()
        reading = Reading(datetime.now(UTC), 21.5, "d-7")
        await plain.publish(*reading.message)

        async def seen() -> bool:
            found = (await get(client, api.LATEST, tenant="t-1", device="d-7"))["readings"]
            return [each["event_id"] for each in found] == [str(reading.id)]

        await until(seen)
        span = {"from": reading.at - timedelta(minutes=1), "to": reading.at + timedelta(minutes=1)}
        page = await get(client, api.RANGE, tenant="t-1", device="d-7", **span)
        assert json.loads(json.dumps(page))["points"][0]["metric_value"] == 21.5
    for task in running:
        task.cancel()
    await asyncio.wait(running)
    assert rows(edge_db, "select count(*) from telemetry_raw") == [(1,)]
