"""The watch: figures and alerts, from looks at times that the test chooses."""

import pytest

from farmiq.config import EdgeSettings
from farmiq.edge.sync import monitor
from farmiq.edge.sync.monitor import Monitor
from farmiq.plumbing import db
from tests.conftest import Database
from tests.integration.edge.sync.owed import force, owe_many, rows

OPEN = "select kind, subject from alerts where closed_at is null order by 1"


def deliver(database: Database, count: int) -> None:
    force(database, "update sync_outbox set status = 'acked' where id in "
          "(select id from sync_outbox where status = 'pending' limit %s)", (count,))  # fmt: skip


@pytest.mark.req("BK-10")
async def test_a_backlog_that_does_not_fall_raises_an_alert_until_it_does(
    pool: db.Pool, edge_db: Database, settings: EdgeSettings
) -> None:
    delivered = 0
    looking = Monitor(settings, pool, delivered=lambda: delivered)
    owe_many(edge_db, 100)
    force(edge_db, "update sync_outbox set created_at = now() - interval '1 hour'")
    await looking.check(at_s=0)
    await looking.check(at_s=500)
    assert rows(edge_db, OPEN) == []  # not long enough
    await looking.check(at_s=601)
    await looking.check(at_s=700)
    assert rows(edge_db, OPEN) == [("sync.backlog_not_falling", "t-1")]
    assert monitor.ETA._value.get() == float("inf")
    deliver(edge_db, 60)
    delivered = 60
    await looking.check(at_s=710)
    await looking.check(at_s=720)
    assert rows(edge_db, OPEN) == []
    assert monitor.BACKLOG._value.get() == 40
    assert monitor.OLDEST._value.get() > 3600
    assert 0 < looking.rate < 60
    assert looking.eta_s is not None
    deliver(edge_db, 40)
    await looking.check(at_s=730)
    assert looking.eta_s == monitor.BACKLOG._value.get() == 0


async def test_the_alert_of_the_dlq_closes_when_it_is_empty(
    pool: db.Pool, edge_db: Database, settings: EdgeSettings
) -> None:
    from farmiq.edge import alerts  # noqa: PLC0415

    owe_many(edge_db, 1, status="dlq")
    async with db.transaction(pool) as tx:
        await alerts.raise_(tx, monitor.dead_letter_alert("t-1", "max_attempts_exceeded"))
    looking = Monitor(settings, pool, delivered=lambda: 0)
    await looking.check(at_s=0)
    assert rows(edge_db, OPEN) == [("sync.dlq", "t-1")]
    force(edge_db, "update sync_outbox set status = 'failed'")
    await looking.check(at_s=1)
    assert rows(edge_db, OPEN) == []
    assert monitor.DLQ._value.get() == 0
