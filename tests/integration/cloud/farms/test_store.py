"""Master data in the cloud's database: saved once, refused where it cannot be true."""

from collections.abc import AsyncIterator
from datetime import date

import psycopg
import pytest
from psycopg.types.json import Jsonb

from farmiq.cloud.farms import kinds, store
from farmiq.cloud.farms.kinds import BARNS, BATCHES, BREED_STANDARDS, FARMS, METRICS
from farmiq.cloud.farms.store import RejectedError
from farmiq.cloud.identity.accounts import add_company
from tests.conftest import Database
from tests.support import databases


def batch(
    batch_id: str, placed_on: str, closed_on: str | None = None, barn: str = "1"
) -> kinds.Batch:
    return kinds.Batch(
        batch_id=batch_id, farm_id="n", barn_id=barn, species="broiler", placed_count=100,
        placed_on=date.fromisoformat(placed_on),
        closed_on=date.fromisoformat(closed_on) if closed_on else None,
    )  # fmt: skip


@pytest.fixture
async def link(cloud_db: Database) -> AsyncIterator[psycopg.AsyncConnection]:
    """As the cloud's services connect; two companies, one of which has a farm with two barns."""
    with databases.connected(cloud_db.admin_url) as owner:
        for tenant in ("hill", "dale"):
            add_company(owner, tenant, name=tenant)
    async with await psycopg.AsyncConnection.connect(cloud_db.url) as connection:
        await store.save(
            connection, FARMS, "hill", [kinds.Farm(farm_id="n", name="N", timezone="Asia/Bangkok")]
        )
        barns = [kinds.Barn(farm_id="n", barn_id=name, name=f"Barn {name}") for name in "12"]
        await store.save(connection, BARNS, "hill", barns)
        yield connection


async def test_row_saved_twice_is_stored_once(link: psycopg.AsyncConnection) -> None:
    placed = batch("a", "2026-05-01")
    assert await store.save(link, BATCHES, "hill", [placed]) == 1
    assert await store.save(link, BATCHES, "hill", [placed]) == 0
    closed = batch("a", "2026-05-01", "2026-06-05")
    assert await store.save(link, BATCHES, "hill", [closed]) == 1
    rows = await store.page(link, BATCHES, "hill")
    assert [(row["batch_id"], row["closed_on"]) for row in rows] == [("a", date(2026, 6, 5))]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (("2026-05-01", None), ("2026-05-01", None)),
        (("2026-05-01", None), ("2027-01-01", None)),
        (("2026-05-01", "2026-06-01"), ("2026-06-01", None)),
        (("2026-05-10", "2026-06-01"), ("2026-05-01", "2026-05-10")),
        (("2026-05-10", "2026-06-01"), ("2026-05-01", None)),
    ],
)
async def test_batches_that_overlap_in_a_barn_are_refused(
    link: psycopg.AsyncConnection, first: tuple[str, str | None], second: tuple[str, str | None]
) -> None:
    await store.save(link, BATCHES, "hill", [batch("a", *first), batch("c", *first, barn="2")])
    await link.commit()
    with pytest.raises(RejectedError, match="batch b: batch a is in barn 1 at that time"):
        await store.save(link, BATCHES, "hill", [batch("b", *second)])


async def test_batches_after_each_other_are_stored(link: psycopg.AsyncConnection) -> None:
    rows = [batch("a", "2026-05-01", "2026-06-01"), batch("b", "2026-06-02")]
    assert await store.save(link, BATCHES, "hill", rows) == 2


async def test_two_writers_at_once_cannot_overlap(
    link: psycopg.AsyncConnection, cloud_db: Database
) -> None:
    await link.commit()
    await store.save(link, BATCHES, "hill", [batch("a", "2026-05-01")])
    async with await psycopg.AsyncConnection.connect(cloud_db.url) as other:
        await other.execute("set lock_timeout = '100ms'")
        with pytest.raises(psycopg.errors.LockNotAvailable):
            await store.save(other, BATCHES, "hill", [batch("b", "2026-05-02")])
        await other.rollback()
        await link.commit()
        with pytest.raises(RejectedError, match="batch a is in barn 1"):
            await store.save(other, BATCHES, "hill", [batch("b", "2026-05-02")])


async def test_batch_of_a_barn_that_another_company_has_is_refused(
    link: psycopg.AsyncConnection,
) -> None:
    with pytest.raises(RejectedError, match="batch a: its barn is not registered"):
        await store.save(link, BATCHES, "dale", [batch("a", "2026-05-01")])


async def test_row_that_others_refer_to_stays(link: psycopg.AsyncConnection) -> None:
    await link.commit()
    with pytest.raises(RejectedError, match="barns refer to this farm"):
        await store.remove(link, FARMS, "hill", {"farm_id": "n"})
    await link.rollback()
    assert await store.remove(link, BARNS, "hill", {"farm_id": "n", "barn_id": "2"})
    assert not await store.remove(link, BARNS, "hill", {"farm_id": "n", "barn_id": "2"})
    assert [row["barn_id"] for row in await store.page(link, BARNS, "hill")] == ["1"]


async def test_pages_follow_the_key(link: psycopg.AsyncConnection) -> None:
    standards = [
        kinds.BreedStandard(
            species="broiler", breed="example", age_days=day, weight_kg=0.05 + day, source="us"
        )
        for day in range(25)
    ]
    await store.save(link, BREED_STANDARDS, "hill", standards)
    first = await store.page(link, BREED_STANDARDS, "hill", limit=10)
    key = [first[-1][name] for name in BREED_STANDARDS.key]
    rest = await store.page(link, BREED_STANDARDS, "hill", after=key)
    assert [row["age_days"] for row in first + rest] == list(range(25))
    assert await store.page(link, BREED_STANDARDS, "dale") == []


async def test_metric_keeps_its_conversions(link: psycopg.AsyncConnection) -> None:
    metric = kinds.Metric(
        metric_type="temperature", label="Temperature", unit="C", conversions={"F": (0.5556, -17.8)}
    )
    assert await store.save(link, METRICS, "hill", [metric]) == 1
    assert await store.save(link, METRICS, "hill", [metric]) == 0
    (row,) = await store.page(link, METRICS, "hill")
    assert row["conversions"] == {"F": [0.5556, -17.8]}


async def batch_at(link: psycopg.AsyncConnection, barn: str, day: str) -> str | None:
    cursor = await link.execute("select fn_batch_at('hill', 'n', %s, %s)", (barn, day))
    row = await cursor.fetchone()
    return row[0] if row else None


async def test_batch_at_a_date_is_the_one_in_the_barn_first_and_last_day_included(
    link: psycopg.AsyncConnection,
) -> None:
    rows = [batch("a", "2026-05-01", "2026-06-05"), batch("b", "2026-06-10")]
    await store.save(link, BATCHES, "hill", rows)
    days = ("2026-04-30", "2026-05-01", "2026-06-05", "2026-06-06", "2026-06-10", "2030-01-01")
    assert [await batch_at(link, "1", day) for day in days] == [None, "a", "a", None, "b", "b"]
    assert await batch_at(link, "2", "2026-05-01") is None


async def test_farm_date_is_in_the_farms_zone_and_null_for_an_unknown_farm(
    link: psycopg.AsyncConnection,
) -> None:
    cursor = await link.execute(
        "select fn_farm_date('hill', 'n', '2026-05-01T16:59:59Z'), "
        "fn_farm_date('hill', 'n', '2026-05-01T17:00:00Z'), "
        "fn_farm_date('hill', 'x', '2026-05-01T17:00:00Z')"
    )
    assert await cursor.fetchone() == (date(2026, 5, 1), date(2026, 5, 2), None)


async def treated(link: psycopg.AsyncConnection, **more: str | bool) -> None:
    payload = {
        "record_id": "r-1", "record_type": "treatment", "value": 5, "product": "x", "unit": None,
        "withdrawal_days": 3650, "recorded_by_ref": "ann", "recorded_at": "2026-05-02T00:00:00Z",
        **more,
    }  # fmt: skip
    await link.execute(
        "insert into barn_events (tenant_id, event_id, event_type, farm_id, barn_id, occurred_at, "
        "trace_id, payload) values ('hill', gen_random_uuid(), 'barn.record.created', 'n', '1', "
        "'2026-05-02', 't', %s)",
        (Jsonb(payload),),
    )


async def test_change_that_would_lose_a_treatment_is_refused(link: psycopg.AsyncConnection) -> None:
    await store.save(link, BATCHES, "hill", [batch("a", "2026-05-01")])
    await treated(link)
    await link.commit()

    for moved in (batch("a", "2026-05-01", barn="2"), batch("a", "2026-05-03")):
        with pytest.raises(RejectedError, match="not to be sold before 2036-04-29, by a treatment"):
            await store.save(link, BATCHES, "hill", [moved])
        await link.rollback()
    with pytest.raises(RejectedError, match="not to be sold before 2036-04-29: close the batch"):
        await store.remove(link, BATCHES, "hill", {"batch_id": "a"})
    await link.rollback()
    # Closing it loses nothing; nor does anything once a record has the batch.
    assert await store.save(link, BATCHES, "hill", [batch("a", "2026-05-01", "2026-05-09")]) == 1
    await treated(link, batch_id="a", batch_derived=True, record_id="r-2", replaces="r-1")
    assert await store.save(link, BATCHES, "hill", [batch("a", "2026-05-03", barn="2")]) == 1
