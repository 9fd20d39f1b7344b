"""What a claim costs: counted in pages and rows that PostgreSQL touches, never in time."""

import json
import re
from datetime import timedelta
from typing import Any

import psycopg
import pytest

from farmiq.edge.sync import store
from tests.conftest import Database
from tests.integration.edge.sync.owed import owe_many, rows
from tests.support import databases

ASKED = {"tenant_id": "t-1", "claimed_by": "me", "limit": 100, "few": 20, "lease_s": "30"}


def explain(database: Database, query: str, args: dict[str, Any] | None = None) -> Any:
    """The plan as it ran, rolled back; by the services' own login."""
    with databases.connected(database.url) as connection:
        text = f"explain (analyze, buffers, timing off, format json) {query}"
        row = connection.execute(text.encode(), args).fetchone()
        connection.rollback()
    assert row is not None
    return row[0][0]["Plan"]


def touched(plan: Any) -> int:
    return int(plan["Shared Hit Blocks"] + plan["Shared Read Blocks"])


def thrown_away(plan: Any) -> int:
    """Rows that were looked at and did not fit, anywhere in the plan."""
    text = json.dumps(plan)
    return sum(int(n) for n in re.findall(r'"Rows Removed by (?:Filter|Join Filter)": (\d+)', text))


def settled(database: Database) -> None:
    """As autovacuum leaves it."""
    with psycopg.connect(database.admin_url, autocommit=True) as connection:
        connection.execute("vacuum analyze sync_outbox")


def claim(database: Database) -> Any:
    plan = explain(database, store.CLAIM, ASKED)
    assert plan["Actual Rows"] == 100
    return plan


@pytest.mark.req("OB-18")
@pytest.mark.parametrize("analyzed", [True, False], ids=["known", "unknown"])
def test_a_claim_costs_the_same_whatever_else_is_in_the_outbox(
    edge_db: Database, *, analyzed: bool
) -> None:
    """Ten times the backlog, delivered rows, waiting retries, a paused tenant's: all for free."""
    owe_many(edge_db, 5_000)
    settled(edge_db)
    few = claim(edge_db)
    owe_many(edge_db, 45_000)
    owe_many(edge_db, 30_000, status="acked")
    owe_many(edge_db, 30_000, attempts=3, due=timedelta(hours=1), code="HTTP_500")
    owe_many(edge_db, 30_000, tenant_id="a-paused-one")
    if analyzed:
        settled(edge_db)
    many = claim(edge_db)
    # Its own hundred, when it asks which of them were claimed before; nobody else's.
    assert thrown_away(few) == thrown_away(many) == 100
    # The rows' own index pages spread wider, so a little more; never in proportion.
    assert touched(many) < 1.6 * touched(few)


def test_pending_tenants_costs_by_tenants_and_not_by_rows(edge_db: Database) -> None:
    for name in ("t-1", "t-2", "t-3"):
        owe_many(edge_db, 5_000, tenant_id=name)
    owe_many(edge_db, 5_000, tenant_id="t-2", attempts=3, due=timedelta(hours=1))
    settled(edge_db)
    plan = explain(edge_db, store.PENDING_TENANTS)
    assert plan["Actual Rows"] == 3
    assert touched(plan) < 120


def test_counting_what_waits_at_a_priority_reads_nothing_else(edge_db: Database) -> None:
    """After each batch of a drain: neither the backlog below nor what was delivered counts."""
    owe_many(edge_db, 20_000)
    owe_many(edge_db, 20_000, status="acked")
    settled(edge_db)
    query = store.WAITING_AT
    for number in (1, 2, 3):
        query = query.replace("%s", f"${number}", 1)
    with databases.connected(edge_db.url) as connection:
        # As the forwarder's own connection plans it after a few batches.
        connection.execute("set plan_cache_mode = force_generic_plan")
        connection.execute(f"prepare waiting (text, bigint, bigint) as {query}".encode())
        row = connection.execute(
            "explain (analyze, buffers, timing off, format json) execute waiting('t-1', 1, 2001)"
        ).fetchone()
    assert row is not None
    plan = row[0][0]["Plan"]
    assert "sync_outbox_fresh_idx" in json.dumps(plan)
    assert touched(plan) < 20


@pytest.mark.parametrize("analyzed", [True, False], ids=["known", "unknown"])
def test_raising_recent_events_reads_neither_backlog_nor_delivered_rows(
    edge_db: Database, *, analyzed: bool
) -> None:
    """It runs after each batch of a drain (D-340)."""
    owe_many(edge_db, 20_000)
    owe_many(edge_db, 20_000, status="acked")
    with databases.connected(edge_db.admin_url) as connection:
        connection.execute("insert into sync_drain values ('t-1', 1, fn_now() - interval '1 h')")
        connection.execute("alter table sync_outbox disable trigger sync_outbox_guard")
        connection.execute(
            "update sync_outbox set occurred_at = fn_now() - random() * interval '1 h' "
            "where status = 'acked'"
        )
    if analyzed:
        settled(edge_db)
    query = store.RAISE_RECENT
    for number in range(1, 6):
        query = query.replace("%s", f"${number}", 1)
    with databases.connected(edge_db.url) as connection:
        connection.execute("set plan_cache_mode = force_generic_plan")
        connection.execute(f"prepare raising (int, text, float8, text, int) as {query}".encode())
        row = connection.execute(
            "explain (analyze, buffers, timing off, format json) "
            "execute raising(1, 't-1', 5, 't-1', 10000)"
        ).fetchone()
    assert row is not None
    plan = row[0][0]["Plan"]
    assert "sync_outbox_fresh_idx" in json.dumps(plan)
    # Most of them are the first call of fn_now(); the index is left after a few.
    assert touched(plan) < 100


def test_the_reaper_looks_only_at_what_is_held(edge_db: Database) -> None:
    owe_many(edge_db, 20_000)
    owe_many(edge_db, 20_000, status="acked")
    with databases.connected(edge_db.admin_url) as connection:
        connection.execute(
            "update sync_outbox set status = 'claimed', claimed_by = 'x', claimed_at = now(), "
            "lease_expires_at = now() + interval '1 min' where id in "
            "(select id from sync_outbox where status = 'pending' limit 50)"
        )
    settled(edge_db)
    plan = explain(
        edge_db,
        "select from sync_outbox where claimed_by is not null and status in ('claimed', 'sending') "
        "and lease_expires_at < (select fn_now()) limit 2000",
    )
    assert "sync_outbox_lease_idx" in json.dumps(plan)
    assert touched(plan) < 200


def test_the_outbox_is_vacuumed_early(edge_db: Database) -> None:
    ((options,),) = rows(
        edge_db, "select reloptions from pg_class where oid = 'sync_outbox'::regclass"
    )
    assert "autovacuum_vacuum_scale_factor=0.01" in options
