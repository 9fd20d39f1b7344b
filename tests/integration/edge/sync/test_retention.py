"""What leaves the outbox and when: delivered rows by age, undelivered ones into a file first."""

import gzip
import hashlib
import json
from datetime import timedelta
from pathlib import Path

import pytest

from farmiq.config import EdgeSettings
from farmiq.edge.sync import handlers, jobs, rules, store
from farmiq.plumbing import db
from tests.conftest import Database
from tests.integration.edge.sync.owed import force, move_clock, owe_many, rows


def age(database: Database, days: float) -> None:
    """Everything in the outbox was last touched so long ago."""
    force(
        database,
        "update sync_outbox set updated_at = fn_now() - %s * interval '1 day', "
        "created_at = fn_now() - %s * interval '1 day', "
        "next_attempt_at = fn_now() - %s * interval '1 day' "
        "where updated_at > fn_now() - interval '1 day'",
        (days, days, days),
    )


def the_archive(settings: EdgeSettings) -> tuple[Path, bytes]:
    (file,) = settings.outbox_archive().glob("*.jsonl.gz")
    return file, file.read_bytes()


@pytest.mark.req("RT-04", "RT-10", "RT-11", "RT-13")
async def test_all_states_and_ages(
    pool: db.Pool, edge_db: Database, settings: EdgeSettings
) -> None:
    """Only acked, dlq and failed go, only beyond their days, and only the last two into a file."""
    for days in (29.9, 30.1):
        for status in rules.STATES:
            owe_many(edge_db, 2, status=status)
        age(edge_db, days)
    done = await jobs.purge(pool, settings)
    assert done == {"deleted": 2, "archived": 4}
    left = rows(edge_db, "select status, count(*) from sync_outbox group by 1 order by 1")
    kept = {status: 4 if status in rules.UNSENT else 2 for status in rules.STATES}
    assert dict(left) == kept
    assert await jobs.purge(pool, settings) == {"deleted": 0, "archived": 0}
    shorter = settings.model_copy(update={"outbox_retention_days": 7})
    assert await jobs.purge(pool, shorter) == {"deleted": 2, "archived": 4}


@pytest.mark.req("RT-10")
async def test_the_archive_holds_every_column_and_checks_itself(
    pool: db.Pool, edge_db: Database, settings: EdgeSettings
) -> None:
    owe_many(edge_db, 3, status="dlq", attempts=10, code="HTTP_500")
    age(edge_db, 31)
    before = {
        str(row[0]): row[1] for row in rows(edge_db, "select id, to_jsonb(o) from sync_outbox o")
    }
    await jobs.purge(pool, settings)
    file, packed = the_archive(settings)
    lines = [json.loads(line) for line in gzip.decompress(packed).splitlines()]
    assert {line["id"]: line["payload_json"] for line in lines} == {
        event_id: row["payload_json"] for event_id, row in before.items()
    }
    assert all(line.keys() == before[line["id"]].keys() for line in lines)
    digest = hashlib.sha256(packed)
    check = file.with_name(file.name + ".sha256").read_text()
    assert check == f"{digest.hexdigest()}  {file.name}\n"
    noted = rows(edge_db, "select file_name, sha256, row_count from sync_archives")
    assert noted == [(file.name, digest.digest(), 3)]
    found = rows(edge_db, "select event_id::text from sync_archived")
    assert {row[0] for row in found} == set(before)
    assert rows(edge_db, "select kind from alerts") == [("sync.archived_undelivered",)]


async def test_a_row_redriven_while_its_archive_is_written_stays(
    pool: db.Pool, edge_db: Database, settings: EdgeSettings
) -> None:
    owe_many(edge_db, 2, status="dlq")
    age(edge_db, 31)
    async with db.transaction(pool) as tx:
        old = await store.undelivered(tx, days=30, limit=10)
    written = await jobs.write_archive(settings.outbox_archive(), old)
    async with db.transaction(pool) as tx:
        await handlers.redrive(tx, {"ids": [old[0]["id"]]}, limit=1, actor="me")
    async with db.transaction(pool) as tx:
        assert await store.purge_archived(tx, old, written) == 1
    assert rows(edge_db, "select id, status from sync_outbox") == [(old[0]["id"], "pending")]


async def test_rows_delivered_late_are_stepped_over_however_many_they_are(
    pool: db.Pool, edge_db: Database, settings: EdgeSettings
) -> None:
    """Due long ago and acked lately, all at the same instant: they hide nothing behind them."""
    owe_many(edge_db, 3 * jobs.BATCH, status="acked", due=timedelta(days=-60))
    owe_many(edge_db, 50, status="acked", due=timedelta(days=-40))
    force(
        edge_db,
        "update sync_outbox set updated_at = now() - interval '31 days' "
        "where next_attempt_at > now() - interval '50 days'",
    )
    assert await jobs.purge(pool, settings) == {"deleted": 50, "archived": 0}


@pytest.mark.req("RT-04")
async def test_days_pass_by_the_clock_of_the_database(
    pool: db.Pool, edge_db: Database, settings: EdgeSettings
) -> None:
    owe_many(edge_db, 5, status="acked")
    move_clock(edge_db, timedelta(days=29))
    assert await jobs.purge(pool, settings) == {"deleted": 0, "archived": 0}
    move_clock(edge_db, timedelta(days=31))
    assert await jobs.purge(pool, settings) == {"deleted": 5, "archived": 0}
