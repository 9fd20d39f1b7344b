"""A farm with two batches of five weeks: events as the services store them, and their figures."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Any

import msgspec
import psycopg

from farmiq.cloud import sink
from farmiq.cloud.analytics import handlers, jobs, marks
from farmiq.cloud.analytics import store as figures
from farmiq.cloud.farms import store
from farmiq.cloud.identity import accounts
from farmiq.cloud.weighvision import store as weighvision
from farmiq.lab.simulate.life import files, flocks, post
from farmiq.lab.simulate.life.flocks import Flock, Life
from farmiq.messages.bus import BusEvent
from farmiq.plumbing import db, ids
from tests.browser import barns
from tests.support import databases

TENANT = "tenant-a"
OPERATOR = "omar@example.com"
_STORES = {
    "feed": sink.insert_into("feed_events"),
    "barn": sink.insert_into("barn_events"),
    "weighvision": weighvision.apply_events,
}


def a_farm(url: str, admin_url: str) -> Life:
    """One batch as its standard says, and one that is behind it and treated."""
    let_operate(admin_url, TENANT, OPERATOR)
    life = flocks.broiler_farm(TENANT, until=datetime.now(UTC), timezone="Asia/Bangkok", barns=2)
    # A loop of its own: that of the browser runs in this thread.
    with ThreadPoolExecutor(1) as thread:
        thread.submit(asyncio.run, _store(url, admin_url, life)).result()
    return life


def let_operate(admin_url: str, tenant_id: str, email: str, *, role: str = "operator") -> None:
    """An operator of a company that is there, or somebody with another role."""
    with databases.connected(admin_url) as connection:
        row = connection.execute(
            "select company_id from companies where tenant_id = %s", (tenant_id,)
        ).fetchone()
        assert row is not None
        accounts.add_user(connection, email, company_id=row[0], password=barns.PASSWORD, role=role)


def lose(url: str, life: Life, flock: Flock, dead: int) -> None:
    """So many animals die now; the figures follow."""
    with ThreadPoolExecutor(1) as thread:
        thread.submit(asyncio.run, _lose(url, life, flock, dead)).result()


async def _lose(url: str, life: Life, flock: Flock, dead: int) -> None:
    now = datetime.now(UTC)
    payload = {
        "record_id": str(ids.new()), "record_type": "mortality", "value": dead, "unit": None,
        "recorded_by_ref": "omar", "recorded_at": now,
    }  # fmt: skip
    event = BusEvent(
        event_id=ids.new(),
        event_type="barn.record.created",
        tenant_id=life.tenant_id,
        farm_id=life.farm_id,
        barn_id=flock.barn_id,
        device_id=None,
        session_id=None,
        occurred_at=now,
        trace_id="trace",
        payload=msgspec.Raw(msgspec.json.encode(payload)),
    )
    async with db.pool(url, name="flocks") as pool:
        async with db.transaction(pool) as tx:
            await _STORES["barn"](tx, [event])
            await handlers.mark_events(tx, [event])
        await _compute(pool, life.tenant_id, flock.batch_id)


async def _store(url: str, admin_url: str, life: Life) -> None:
    async with await psycopg.AsyncConnection.connect(admin_url) as tx:
        for kind, rows in files.masterdata(life):
            await store.save(tx, kind, life.tenant_id, rows)
    events = post.events_of(life, files.standard())
    async with db.pool(url, name="flocks") as pool:
        for family, apply in _STORES.items():
            async with db.transaction(pool) as tx:
                await apply(tx, [e for e in events if e.event_type.startswith(f"{family}.")])
        for flock in life.flocks:
            await _compute(pool, life.tenant_id, flock.batch_id)


async def _compute(pool: Any, tenant_id: str, batch_id: str) -> None:
    """As analytics does, but nobody is told."""
    while True:
        async with db.transaction(pool) as tx:
            taken = await marks.take_marks(tx, tenant_id, batch_id)
            if not taken:
                return
            _, changes = await jobs.recompute_batch(tx, tenant_id, batch_id, taken)
            if changes:
                await figures.save_figures(tx, changes)
                await figures.notify(tx, tenant_id)
