"""Lots and intakes are kept for their time, and longer if the cloud has not got them."""

import httpx2
import pytest

from farmiq.edge.feed import service
from farmiq.edge.ingress import handlers
from farmiq.plumbing import db
from tests.conftest import Database
from tests.integration.edge.feed.conftest import rows, said
from tests.integration.edge.feed.test_api import LOT
from tests.integration.edge.test_quarantine import ahead, settings
from tests.support import databases

KEPT = "select (select count(*) from feed_lots), (select count(*) from feed_intakes)"


@pytest.mark.req("RT-12", "RT-13")
@pytest.mark.parametrize("days", [400, 7])
async def test_what_is_over_its_time_goes_and_what_the_cloud_is_owed_stays(
    pool: db.Pool, api: httpx2.AsyncClient, edge_db: Database, days: int
) -> None:
    own = settings(edge_db, **({} if days == 400 else {"FEED_RETENTION_DAYS": str(days)}))
    schedule = {job.name: job for job in service.jobs_of(own, pool)}
    assert schedule["feed.retention"].daily is not None
    await api.post("/api/v1/feed/lots", json=LOT)
    await handlers.commit(pool, [said("feed.dispensed", {"quantity_kg": 1}) for _ in range(2)])
    with databases.connected(edge_db.admin_url) as owner:
        # One intake and the lot are delivered, the other intake is owed still.
        owed = owner.execute(
            "select id from sync_outbox where event_type = 'feed.intake.recorded' limit 1"
        ).fetchone()
        for status in ("claimed", "acked"):
            owner.execute("update sync_outbox set status = %s where id <> %s", (status, owed[0]))  # type: ignore[index]
    ahead(edge_db, days=days, minutes=-5)
    assert await schedule["feed.retention"].do() == {"count": 0}
    ahead(edge_db, days=days, minutes=5)
    assert await schedule["feed.retention"].do() == {"count": 2}
    assert rows(edge_db, KEPT) == [(0, 1)]
    # It is given up to a file: never delivered, and nowhere else at hand.
    with databases.connected(edge_db.admin_url) as owner:
        owner.execute(
            "with a as (insert into sync_archives (archive_id, file_name, sha256, row_count) "
            "values (gen_random_uuid(), 'f', '', 1) returning archive_id) "
            "insert into sync_archived select 't-1', %s, archive_id from a",
            owed,
        )
        owner.execute("set session_replication_role = replica")
        owner.execute("delete from sync_outbox")
    assert await schedule["feed.retention"].do() == {"count": 0}
