"""Telemetry at the edge: the readings' tables, what is made of them, and the answers about them.

ingress --record(tx, …)--> telemetry_raw, telemetry_dirty
        telemetry_dirty --> [telemetry] --telemetry_agg, telemetry_latest, sync_outbox-->

The rows themselves are written by ingress inside its one transaction (C-81); this service makes
the buckets that were marked, keeps the tables fit and no longer than they should be, and answers.
"""

import asyncio

import prometheus_client

from farmiq.config import EdgeSettings
from farmiq.edge import diary
from farmiq.edge.telemetry import api, marking, remake, upkeep
from farmiq.plumbing import chores, db, http
from farmiq.plumbing.chores import Chore

NAME = "edge-telemetry-timeseries"

MINUTE_S = 60.0

DIRTY = prometheus_client.Gauge(
    "farmiq_telemetry_dirty_marks", "Marks whose buckets have to be made again"
)
OLDEST = prometheus_client.Gauge(
    "farmiq_telemetry_dirty_oldest_seconds", "Age of the oldest of them"
)


async def run(settings: EdgeSettings, door: http.Door) -> None:
    async with (
        db.pool(settings.db_url.get_secret_value(), name=NAME) as pool,
        asyncio.TaskGroup() as group,
    ):
        door.ready("telemetry.database", lambda: db.problem(pool))
        api.Api(pool).add_to(door.app)
        for chore in all_chores(pool, settings):
            group.create_task(chores.keep_doing(chore))


def all_chores(pool: db.Pool, settings: EdgeSettings) -> list[Chore]:
    async def make_months() -> dict[str, object]:
        made = await upkeep.make_months(pool, keep_days=settings.telemetry_raw_days)
        return {"made": len(made)}

    async def forget() -> dict[str, object]:
        return await upkeep.forget(
            pool,
            raw_days=settings.telemetry_raw_days,
            agg_days=settings.telemetry_agg_days,
            timezone=settings.timezone,
        )

    async def make_buckets() -> dict[str, object]:
        return await make_all(pool, settings)

    return [
        # One small look at the catalog: a box that slept through a month's end has it made at once.
        Chore("telemetry.months", MINUTE_S, make_months),
        Chore("telemetry.buckets", settings.telemetry_agg_every_s, make_buckets),
        diary.daily(pool, settings, "telemetry.retention", forget),
    ]


async def make_all(pool: db.Pool, settings: EdgeSettings) -> dict[str, object]:
    """A round of bucket making: portion after portion until nothing is marked."""
    await remake.begin(pool, timezone=settings.timezone, keep_days=settings.telemetry_raw_days)
    while await remake.rezone_one(pool, timezone=settings.timezone):
        pass
    while True:
        done = await remake.once(
            pool, timezone=settings.timezone, settle_s=settings.telemetry_settle_s
        )
        async with pool.connection() as connection:
            dirt = await marking.dirt(connection)
        DIRTY.set(dirt.marks)
        OLDEST.set(dirt.oldest_s)
        if done.is_nothing:
            return {}  # not for the log: this happens every few seconds
