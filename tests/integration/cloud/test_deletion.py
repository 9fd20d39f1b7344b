"""Deleting a company, a device, a person: all of it goes, nothing else, and a record says so."""

import asyncio
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from typer.testing import CliRunner

from farmiq.cli import app
from farmiq.cloud import deletion, history
from farmiq.plumbing import parquet
from farmiq.plumbing.storage import objects
from tests.conftest import Database
from tests.sql import catalog, two_companies
from tests.sql.two_companies import NOT_OF_A_COMPANY, Two
from tests.support.until import until

# The companies of these tests have the same names, and one bucket.
pytestmark = pytest.mark.xdist_group("deletion")
Rows = dict[str, list[Any]]


@pytest.fixture
def bucket(engines: dict[str, str]) -> objects.Bucket:
    return objects.Bucket(engines["FARMIQ_CLOUD_S3_URL"])


@pytest.fixture
def two(cloud_db: Database) -> Two:
    return two_companies.make(cloud_db.admin_url, service_url=cloud_db.url)


@pytest.fixture(autouse=True)
def environment(
    cloud_db: Database, engines: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FARMIQ_CLOUD_DB_ADMIN_URL", cloud_db.admin_url)
    monkeypatch.setenv("FARMIQ_CLOUD_S3_URL", engines["FARMIQ_CLOUD_S3_URL"])


async def run(*arguments: str, code: int = 0) -> Any:
    result = await asyncio.to_thread(CliRunner().invoke, app, ["delete", *arguments, "--json"])
    assert result.exit_code == code, result.output
    return json.loads(result.stdout) if code == 0 else result.output


def everything(database: Database, two: Two) -> tuple[Rows, Rows]:
    """All rows of the first and of the second company, by table."""
    mine: Rows = {}
    others: Rows = {}
    with psycopg.connect(database.admin_url) as connection:
        for table in sorted(set(catalog.tables(database.admin_url)) - NOT_OF_A_COMPANY):
            for company, rows in ((two.one, mine), (two.two, others)):
                owner = two_companies.owner(connection, table, two, company)
                column = "company_id" if owner == company else "tenant_id"
                query = (
                    f"select to_jsonb(t) from {table} t where {column} = %s "  # noqa: S608
                    f"order by to_jsonb(t)::text"
                )
                rows[table] = connection.execute(query.encode(), (owner,)).fetchall()
    return mine, others


def named(rows: Rows, device_id: str) -> set[str]:
    """The tables that have a row of this device."""
    return {
        table
        for table, found in rows.items()
        if any(row.get("device_id") == device_id for (row,) in found)
    }


def prefixes(two: Two, tenant: str) -> list[str]:
    company = two.one if tenant == "one" else two.two
    return [f"tenants/{tenant}/", f"aside/tenants/{tenant}/", f"camera/{company}/",
            history.folder(tenant)]  # fmt: skip


async def fill(bucket: objects.Bucket, two: Two) -> None:
    for tenant in ("one", "two"):
        for prefix in prefixes(two, tenant):
            for key in await bucket.keys(prefix):  # of an earlier test
                await bucket.delete(key)
            await bucket.put(f"{prefix}x/{uuid4()}", b"x", content_type="x/y")


async def test_a_company_goes_whole_and_the_other_stays_as_it_is(
    cloud_db: Database, two: Two, bucket: objects.Bucket, tmp_path: Path
) -> None:
    await fill(bucket, two)
    with psycopg.connect(cloud_db.admin_url) as connection:
        connection.execute(
            'update barn_events set payload = \'{"record_type": "treatment"}\' '
            "where tenant_id = 'one'"
        )
    mine, others = everything(cloud_db, two)
    assert all(mine.values())
    planned = await run("company", "one")
    assert everything(cloud_db, two) == (mine, others), "a dry run changes nothing"
    assert planned["rows"] == {table: len(rows) for table, rows in mine.items()}
    assert "five years" in await run("company", "one", "--confirm", "one", code=2)
    assert "nothing was deleted" in await run("company", "one", "--confirm", "two", code=2)
    assert everything(cloud_db, two) == (mine, others)

    medicines, proof = tmp_path / "medicines.jsonl", tmp_path / "proof.json"
    done = await run("company", "one", "--confirm", "one", "--medicines", str(medicines),
               "--proof", str(proof))  # fmt: skip
    left, still = everything(cloud_db, two)
    assert {table for table, rows in left.items() if rows} == set()
    assert still == others
    for prefix in prefixes(two, "one"):
        assert await bucket.keys(prefix) == []
    assert [len(await bucket.keys(prefix)) for prefix in prefixes(two, "two")] == [1, 1, 1, 1]
    assert done["rows"] == planned["rows"]
    assert done["objects"] == dict.fromkeys(prefixes(two, "one"), 1)
    assert "treatment" in medicines.read_text()
    assert "2019/6" in done["remaining"][0]["why"]
    (listed,) = await run("ls")
    record = json.loads(proof.read_text())
    assert (listed["broken"], listed["sha256"]) == (False, record["sha256"])
    assert (done["at"][-1], record["at"]) == ("Z", done["at"])
    with psycopg.connect(cloud_db.admin_url) as connection:
        guarded = connection.execute(
            "select count(*) from pg_trigger where not tgisinternal and tgenabled <> 'O'"
        ).fetchone()
        assert guarded == (0,)
        connection.execute('update deletions set record = record || \'{"by": "nobody"}\'')
    result = await asyncio.to_thread(CliRunner().invoke, app, ["delete", "ls"])
    assert result.exit_code == 1
    assert "NOT WHAT IT WAS" in result.output


async def test_a_company_goes_while_a_service_locks_its_rows_in_another_order(
    cloud_db: Database, two: Two, bucket: objects.Bucket, tmp_path: Path
) -> None:
    """Each would wait for the other: ours gives way, before anything has gone."""
    await fill(bucket, two)
    with psycopg.connect(cloud_db.admin_url) as service:
        service.execute("set deadlock_timeout = '1h'")  # it is not the one that finds out
        service.execute("select from weight_sessions where tenant_id = 'one' for update")
        deleting = asyncio.create_task(
            run("company", "one", "--confirm", "one", "--medicines", str(tmp_path / "medicines"))
        )
        await until(lambda: _is_waiting(cloud_db) or deleting.done())
        assert all([await bucket.keys(prefix) for prefix in prefixes(two, "one")])
        await asyncio.to_thread(
            service.execute, "update alert_states set heard_at = now() where tenant_id = 'one'"
        )
        service.commit()
    await deleting
    left, _ = everything(cloud_db, two)
    assert {table for table, rows in left.items() if rows} == set()


def _is_waiting(database: Database) -> bool:
    """Whether somebody waits for a lock."""
    with psycopg.connect(database.admin_url) as connection:
        query = (
            "select from pg_locks join pg_stat_activity using (pid) "
            "where not granted and datname = current_database()"
        )
        return connection.execute(query).fetchone() is not None


async def test_a_device_goes_out_of_tables_and_of_archived_readings(
    cloud_db: Database, two: Two, bucket: objects.Bucket
) -> None:
    await fill(bucket, two)
    month = datetime(2024, 2, 1, tzinfo=UTC)
    lines = "".join(
        f"one,{uuid4().hex},f,b,{device},temperature,1.5,C,{int(month.timestamp()) * 1000000 + n},"
        f"t,1,f\n"
        for device in ("c", "d", "e")
        for n in range(3)
    )
    table = parquet.from_csv(lines.encode(), history.COLUMNS)
    file = history.encode(table, month.date())
    await bucket.put(file.key, file.body, content_type="x/y")
    async with await psycopg.AsyncConnection.connect(cloud_db.admin_url) as tx:
        await tx.execute("delete from telemetry_archives")
        await history.note(tx, file)
        await tx.execute(
            "update barn_events set device_id = 'd', payload = '{\"record_type\": \"treatment\"}'"
        )
    _, others = everything(cloud_db, two)
    done = await run("device", "one", "d", "--confirm", "d")
    mine, still = everything(cloud_db, two)
    assert still == others
    assert [remaining["table"] for remaining in done["remaining"]] == ["barn_events"]
    assert named(mine, "d") == {"barn_events"}
    ((row,),) = mine["telemetry_archives"]
    assert row["row_count"] == 6
    kept = parquet.read_all(await bucket.get(row["key"]))
    assert sorted(set(kept["device_id"].to_pylist())) == ["c", "e"]
    assert await bucket.keys(history.folder("one")) == [row["key"]]


async def test_without_the_bucket_or_a_place_for_the_proof_nothing_goes(
    cloud_db: Database, two: Two, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = everything(cloud_db, two)
    proof = str(tmp_path / "nowhere" / "proof.json")
    assert "nowhere" in await run("company", "one", "--confirm", "one", "--proof", proof, code=1)
    monkeypatch.delenv("FARMIQ_CLOUD_S3_URL")
    told = await run("company", "one", "--confirm", "one", code=2)
    assert "FARMIQ_CLOUD_S3_URL" in told
    assert everything(cloud_db, two) == before


async def test_a_camera_goes_with_its_images(
    cloud_db: Database, two: Two, bucket: objects.Bucket
) -> None:
    _, others = everything(cloud_db, two)
    with psycopg.connect(cloud_db.admin_url) as connection:
        row = connection.execute(
            "select device_id from devices where company_id = %s", (two.one,)
        ).fetchone()
    assert row is not None
    camera = str(row[0])
    key = f"camera/{two.one}/{camera}/x.jpg"
    await bucket.put(key, b"x", content_type="x/y")
    await run("device", "one", camera, "--confirm", camera)
    assert "nothing of device" in await run("device", "one", camera, "--confirm", camera, code=2)
    mine, still = everything(cloud_db, two)
    assert still == others
    assert named(mine, camera) == set()
    assert await bucket.find(key) is None


async def test_a_person_goes_and_what_they_did_stays_without_a_name(
    cloud_db: Database, two: Two
) -> None:
    ann = two_companies.email("ann")
    with psycopg.connect(cloud_db.admin_url) as connection:
        connection.execute("update alert_actions set actor = %s where tenant_id = 'one'", (ann,))
        connection.execute("update reports set address = %s where tenant_id = 'one'", (ann,))
        connection.execute(
            "update barn_events set payload = jsonb_build_object('recorded_by_ref', %s::text) "
            "where tenant_id = 'one'",
            (ann,),
        )
        # Somebody else, whose address has the person's in it.
        connection.execute(
            "update alert_contacts set user_id = null, "
            "addresses = jsonb_build_object('mail', %s::text) where tenant_id = 'one'",
            (f"jo{ann}",),
        )
    mine, others = everything(cloud_db, two)
    done = await run("person", ann, "--confirm", ann)
    left, still = everything(cloud_db, two)
    assert still == others
    assert ann in str(mine)
    assert ann not in str({**left, "alert_contacts": []})
    assert left["alert_contacts"] == mine["alert_contacts"]
    assert done["subject"] in str(left["alert_actions"])
    assert done["subject"] in str(left["barn_events"])
    assert done["rows"]["users"] == done["rows"]["sign_ins"] == done["rows"]["reports"] == 1
    assert len(left["user_actions"]) == len(mine["user_actions"])
    assert "nobody signs in" in await run("person", ann, code=2)
    async with await psycopg.AsyncConnection.connect(cloud_db.admin_url) as tx:
        assert await deletion.broken_records(tx) == []
