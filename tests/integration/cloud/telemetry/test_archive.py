"""Months of readings in Parquet files: moved once, read with the rest, and of one company."""

import signal
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import quote, unquote

import httpx2
import pytest

from farmiq.cloud import history
from farmiq.cloud.history import History
from farmiq.cloud.identity.accounts import add_company, add_user, open_sign_in
from farmiq.cloud.identity.sign_in import SignIns
from farmiq.cloud.telemetry import archive, jobs, rollups
from farmiq.cloud.telemetry.api import RANGE, Api
from farmiq.plumbing import db, http, ids
from farmiq.plumbing.storage import objects
from tests.conftest import Database
from tests.integration.cloud.telemetry.conftest import Start, keep
from tests.integration.edge.telemetry.readings import Reading, rows
from tests.support import databases
from tests.support.until import until

AT = datetime(2024, 2, 29, 12, tzinfo=UTC)
DAY = timedelta(days=1)
OLD_MONTHS = """
    select count(*)::int from pg_inherits where inhrelid::regclass::text ~ '_readings_2024_'"""
READINGS = "select count(*)::int from telemetry_readings"
ARCHIVED = "select coalesce(sum(row_count), 0)::int from telemetry_archives"
COUNTS = "select tenant_id, device_id, metric_type, reading_count::int from telemetry_latest"
BUCKETS = """
    select tenant_id, device_id, metric_type, "window", bucket_start_at, count::int, sum_value,
      max_value from telemetry_agg"""


class Asking:
    """People of two companies who ask for readings; the tests share one bucket."""

    def __init__(self, client: httpx2.AsyncClient) -> None:
        self._client = client
        self.mine = f"t-{ids.new()}"
        self.other = f"{self.mine}..x"
        self.tokens: dict[str, str] = {}

    async def raw(self, begin: datetime, *, tenant: str | None = None, **query: str) -> Any:
        headers = {"Authorization": f"Bearer {self.tokens[tenant or self.mine]}"}
        span = {"from": begin.isoformat(), "to": (begin + DAY).isoformat()}
        answer = await self._client.get(
            RANGE, params={"bucket": "raw", "limit": "5000", **span, **query}, headers=headers
        )
        return answer.json()["points"] if answer.is_success else (answer.status_code, answer.text)


@pytest.fixture
def files(engines: dict[str, str]) -> History:
    return History(objects.Bucket(engines["FARMIQ_CLOUD_S3_URL"]))


@pytest.fixture
async def asking(cloud_db: Database, pool: db.Pool, files: History) -> AsyncIterator[Asking]:
    server = http.HttpServer(title="cloud", version="0")
    transport = httpx2.ASGITransport(app=server.app)
    async with httpx2.AsyncClient(transport=transport, base_url="http://cloud.test") as client:
        asking = Asking(client)
        with databases.connected(cloud_db.admin_url) as connection:
            for name, tenant in (("ann", asking.mine), ("bea", asking.other)):
                company = add_company(connection, tenant, name=name)
                email = f"{name}@b.c"
                add_user(connection, email, company_id=company, password="long enough 1")
                asking.tokens[tenant] = open_sign_in(connection, email, lasts=DAY)
        Api(SignIns(pool, lasts=DAY), files).add_to(server.app)
        yield asking


def some_readings(tenant: str) -> list[Reading]:
    """Of three days around the end of a February, by three devices and two metrics."""
    return [
        Reading(AT - DAY + timedelta(minutes=10 * n, microseconds=n), n / 7, f"d-{n % 3}", metric,
                tenant)
        for metric in ("temperature", "humidity")
        for n in range(3 * 144)
    ]  # fmt: skip


@pytest.mark.parametrize("name", ["../t-2", "t-1/../t-2", "..", ".", "a%2Fb", "ä b", "t=1/"])
def test_a_name_is_one_part_of_a_path_whatever_is_in_it(name: str) -> None:
    folder = history.folder(name, name, AT.date())
    _, tenant, metric, month, end = folder.split("/")
    assert (tenant, metric) == (f"tenant={quoted(name)}", f"metric={quoted(name)}")
    assert (month, end) == ("month=2024-02", "")
    assert "." not in folder
    assert unquote(tenant) == f"tenant={name}", "as readers of a Hive layout do"


def quoted(name: str) -> str:
    return quote(name, safe="").replace(".", "%2E").replace("~", "%7E")


async def run_archive(pool: db.Pool, files: History) -> dict[str, object]:
    await jobs.create_partitions(pool, history_months=2)
    return await archive.archive_months(pool, files, hot_months=2)


async def test_archived_readings_are_answered_as_before_and_to_their_company_alone(
    cloud_db: Database,
    pool: db.Pool,
    files: History,
    asking: Asking,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(archive, "MAX_ROWS", 100)  # several files, and devices with several
    sent = some_readings(asking.mine)
    others = [*some_readings(asking.other)][:100]
    young = Reading(datetime.now(UTC) - timedelta(hours=1), 1.0, "d-0", tenant=asking.mine)
    await keep(pool, [*sent, *others, young])
    await rollups.recompute_all(pool, files)

    async def answers() -> list[Any]:
        return [
            await asking.raw(day, tenant=tenant, **query)
            for tenant in (asking.mine, asking.other)
            for day in (AT - DAY, AT, AT + DAY, young.at - DAY / 2)
            for query in ({}, {"device": "d-1", "limit": "144"}, {"metric": "humidity"})
        ]

    before, counts = await answers(), rows(cloud_db, COUNTS)
    buckets = set(rows(cloud_db, BUCKETS))
    assert len(before[0]) == 288, "a day of two metrics, every ten minutes"
    assert len(before[12]) == 100, "the others have a temperature of their own"
    assert set(await run_archive(pool, files)) == {"2024-02", "2024-03"}
    assert rows(cloud_db, OLD_MONTHS) == [(0,)]
    assert rows(cloud_db, READINGS) == [(1,)]
    assert rows(cloud_db, ARCHIVED) == [(len(sent) + len(others),)]
    assert await answers() == before
    # What comes again is in the series once; late readings are in it and in their buckets.
    late = Reading(AT + timedelta(seconds=30), 99.0, "d-0", tenant=asking.mine)
    await keep(pool, [*sent[:50], late])
    await rollups.recompute_all(pool, files)
    for _ in range(2):  # in the table, then in a file of its own
        found = await asking.raw(AT, device="d-0", metric="temperature")
        assert [point["metric_value"] for point in found].count(99.0) == 1
        assert len(found) == len({point["event_id"] for point in found}) == 49
        assert found == sorted(found, key=lambda point: point["occurred_at"])
        await run_archive(pool, files)
    assert rows(cloud_db, READINGS) == [(1,)]
    assert rows(cloud_db, ARCHIVED) == [(len(sent) + len(others) + 1,)]
    changed = {row[3:4] + row[5:6] + row[7:] for row in set(rows(cloud_db, BUCKETS)) - buckets}
    assert changed == {("1m", 2, 99.0), ("1h", 3, 99.0), ("1d", 49, 99.0)}
    of_late = (asking.mine, "d-0", "temperature")
    counted = {(*row[:3], row[3] + (row[:3] == of_late)) for row in counts}
    assert set(rows(cloud_db, COUNTS)) == counted
    assert (await answers())[12:] == before[12:]


async def test_readings_in_a_bucket_that_is_away_are_an_answer_and_hold_nothing_up(
    cloud_db: Database, pool: db.Pool, files: History, asking: Asking
) -> None:
    reading = Reading(AT, 1.0, tenant=asking.mine)
    await keep(pool, [reading])
    await rollups.recompute_all(pool, files)
    await run_archive(pool, files)
    (key,) = rows(cloud_db, "select key from telemetry_archives")[0]
    assert files.bucket is not None
    body = await files.bucket.get(key)
    await files.bucket.delete(key)
    status, text = await asking.raw(AT)
    assert status == 503
    assert key in text
    await keep(pool, [Reading(AT, 5.0, tenant=asking.mine)])
    await keep(pool, [Reading(datetime.now(UTC), 2.0, tenant=asking.mine)])
    await rollups.recompute_all(pool, files)
    minutes = "select sum(count)::int, max(max_value) from telemetry_agg where \"window\" = '1m'"
    assert rows(cloud_db, minutes) == [(2, 2.0)], "the young one is counted"
    await files.bucket.put(key, body, content_type="x/y")
    await rollups.recompute_all(pool, files)
    assert rows(cloud_db, minutes) == [(3, 5.0)]


async def test_files_that_nobody_noted_are_deleted_and_those_over_their_time_too(
    cloud_db: Database, pool: db.Pool, files: History, asking: Asking
) -> None:
    await keep(pool, some_readings(asking.mine))
    folder = history.folder(asking.mine)
    assert files.bucket is not None
    left_behind = f"{folder}metric=humidity/month=2024-02/0.parquet"
    await files.bucket.put(left_behind, b"x", content_type="x/y")
    await run_archive(pool, files)
    noted = {key for (key,) in rows(cloud_db, "select key from telemetry_archives")}
    assert set(await files.bucket.keys(folder)) == noted
    assert len(noted) == 4
    days = (datetime.now(UTC) - datetime(2024, 3, 1, tzinfo=UTC)).days
    done = await jobs.purge_expired(pool, raw_days=days, minutes_days=None, archived=files)
    assert done["archived"] == 432, "February"
    assert await asking.raw(AT - DAY) == []
    assert len(await files.bucket.keys(folder)) == 2


@pytest.mark.parametrize(
    "point",
    [
        "history.after_put:2", "history.after_note:2", "history.before_drop_commit:2",
        "history.after_drop",
    ],
)  # fmt: skip
async def test_kill_while_a_month_is_archived_loses_nothing_and_makes_nothing_twice(  # noqa: PLR0917
    cloud_db: Database,
    pool: db.Pool,
    files: History,
    asking: Asking,
    start: Start,
    point: str,
) -> None:
    sent = some_readings(asking.mine)
    await keep(pool, sent)
    await rollups.recompute_all(pool, files)
    await jobs.create_partitions(pool, history_months=2)
    days = [AT - DAY, AT, AT + DAY]
    before, counts = [await asking.raw(day) for day in days], rows(cloud_db, COUNTS)
    assert sum(map(len, before)) == len(sent)
    dying = start(point, TELEMETRY_HISTORY_MONTHS="2")
    await until(lambda: dying.poll() is not None, within_s=90)
    assert dying.returncode == -signal.SIGKILL
    assert [await asking.raw(day) for day in days] == before
    start(TELEMETRY_HISTORY_MONTHS="2")
    await until(lambda: rows(cloud_db, OLD_MONTHS) == [(0,)], within_s=90)
    assert rows(cloud_db, ARCHIVED) == [(len(sent),)]
    assert [await asking.raw(day) for day in days] == before
    assert sorted(rows(cloud_db, COUNTS)) == sorted(counts)
