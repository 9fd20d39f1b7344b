"""PostgreSQL and Python know the same clocks, or it is said which zones differ."""

import zoneinfo
from collections.abc import Callable
from datetime import UTC, datetime, tzinfo

import psycopg
import pytest

from farmiq.cloud.camera.calendar import zones
from tests.conftest import Database
from tests.sql import by_cronsim

BERLIN = "Europe/Berlin"


async def differing(url: str, *names: str, **how: object) -> dict[str, str]:
    async with await psycopg.AsyncConnection.connect(url) as connection:
        return await zones.differing(connection, names, **how)  # type: ignore[arg-type]


async def test_zones_that_only_one_side_knows_differ(cloud_db: Database) -> None:
    names = ("europe/berlin", "Nowhere/Land", "../../etc/passwd", "FOO5", "", "UTC", "CET")
    assert await differing(cloud_db.url, *names, read=by_cronsim.reader(cloud_db.admin_url)) == {
        "europe/berlin": "unknown to Python",
        "Nowhere/Land": "unknown to Python and PostgreSQL",
        "../../etc/passwd": "unknown to Python and PostgreSQL",
        "FOO5": "unknown to Python and PostgreSQL",
        "": "unknown to Python and PostgreSQL",
    }


def read_as(**others: str) -> Callable[[str], tzinfo]:
    return lambda name: zoneinfo.ZoneInfo(others.get(name.replace("/", "_"), name))


@pytest.mark.parametrize("other", ["Europe/London", "Africa/Lagos", "Europe/Minsk"])
async def test_another_clock_is_seen(cloud_db: Database, other: str) -> None:
    found = await differing(cloud_db.url, BERLIN, "UTC", read=read_as(Europe_Berlin=other))
    assert list(found) == [BERLIN]
    assert "s ahead of UTC in Python" in found[BERLIN]


async def test_another_hour_of_the_same_change_is_seen(cloud_db: Database) -> None:
    """Beirut and Kyiv are both two hours ahead; in March their clocks change hours apart."""
    found = await differing(
        cloud_db.url,
        "Asia/Beirut",
        since=datetime(2026, 3, 1, tzinfo=UTC),
        until=datetime(2026, 4, 30, tzinfo=UTC),
        read=read_as(Asia_Beirut="Europe/Kyiv"),
    )
    assert found == {
        "Asia/Beirut": "at 2026-03-29T00:00:00+00:00 it is 7200 s ahead of UTC in Python, "
        "10800 s in PostgreSQL"
    }


async def test_a_zone_does_not_end_the_callers_transaction(cloud_db: Database) -> None:
    async with await psycopg.AsyncConnection.connect(cloud_db.url) as connection:
        await connection.execute("create temp table kept as select 1")
        await zones.differing(connection, ["Nowhere/Land", BERLIN])
        assert await (await connection.execute("select from kept")).fetchone() is not None


@pytest.mark.long
@pytest.mark.timeout(900)
async def test_all_zones_read_alike_and_what_differs_is_the_data(cloud_db: Database) -> None:
    """From one and the same files there is no difference; from two, the files' own."""
    read = by_cronsim.reader(cloud_db.admin_url)
    names = zoneinfo.available_timezones() - {"localtime", "posixrules"}  # this machine's, no zones
    years = {"since": datetime(2010, 1, 1, tzinfo=UTC), "until": datetime(2036, 1, 1, tzinfo=UTC)}
    assert await differing(cloud_db.url, *names, **years, read=read) == {}
    found = await differing(cloud_db.url, *names, **years)
    print(found)  # noqa: T201
    really = {
        name
        for name in names
        if by_cronsim.changes(read(name), 2010, 2035)
        != by_cronsim.changes(zoneinfo.ZoneInfo(name), 2010, 2035)
    }
    assert set(found) == really
