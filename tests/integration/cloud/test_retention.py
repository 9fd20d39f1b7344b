"""What the cloud forgets: exactly what is over its time, whoever it belongs to."""

import asyncio
from datetime import timedelta

import pytest

from farmiq.plumbing import db, ids, retention
from farmiq.plumbing.retention import Retention
from tests.integration.cloud.conftest import CloudSite

INSERT = {
    "ingestion_dedupe": (
        "received_at",
        """insert into ingestion_dedupe
             (tenant_id, event_id, event_type, content_hash, batch_id, received_at)
           select 't-' || n %% 2, gen_random_uuid(), 'x', '', 'b', now() - %s::interval
           from generate_series(1, %s) n""",
    ),
    "sync_events": (
        "stored_at",
        """insert into sync_events
             (tenant_id, event_id, event_type, occurred_at, trace_id, payload, stored_at)
           select 't-' || n %% 2, gen_random_uuid(), 'x', now(), 't', '{}', now() - %s::interval
           from generate_series(1, %s) n""",
    ),
}


@pytest.mark.parametrize("table", INSERT)
async def test_purge_by_two_at_once_deletes_expired_rows_once_and_no_others(
    cloud: CloudSite, monkeypatch: pytest.MonkeyPatch, table: str
) -> None:
    """In many portions, by two at once."""
    monkeypatch.setattr(retention, "BATCH_ROWS", 20)
    since, statement = INSERT[table]
    async with db.pool(cloud.database.url, name=str(ids.new()), max_size=4) as pool:
        for age, count in ((timedelta(days=89, hours=23), 30), (timedelta(days=91), 110)):
            async with db.transaction(pool) as tx:
                await tx.execute(statement.encode(), (age, count))
        what = Retention(table, since, 90)
        both = await asyncio.gather(*(retention.purge(pool, what) for _ in range(2)))
        assert sum(both) == 110
        assert cloud.rows(f"select count(*) from {table}") == [(30,)]  # noqa: S608
        assert await retention.purge(pool, what) == 0
