"""Feed at the edge: lots that people enter, intakes, and those derived from a silo's weight.

ingress --record(tx, …)--> feed_intakes <--telemetry_raw-- [feed] --feed_lots, sync_outbox--> sync

Events of devices are written by ingress inside its one transaction (C-81). This service derives
intakes from silos' weights in its own time and serves the HTTP routes.
"""

import asyncio

from farmiq.config import EdgeSettings
from farmiq.edge.daily import daily_job, purge_all
from farmiq.edge.feed import derivation, store
from farmiq.edge.feed.api import Api
from farmiq.plumbing import db, http
from farmiq.plumbing.runtime.schedule import Job, run_repeatedly

NAME = "edge-feed-intake"


async def run(settings: EdgeSettings, server: http.HttpServer) -> None:
    async with (
        db.pool(settings.db_url.get_secret_value(), name=NAME) as pool,
        asyncio.TaskGroup() as group,
    ):
        server.ready("feed.database", lambda: db.problem(pool))
        Api(pool, service=NAME).add_to(server.app)
        for job in _jobs(settings, pool):
            group.create_task(run_repeatedly(job))


def _jobs(settings: EdgeSettings, pool: db.Pool) -> list[Job]:
    return [
        Job(
            "feed.derivation",
            settings.feed_derive_s,
            lambda: derivation.derive(pool, settle_s=settings.feed_settle_s),
        ),
        daily_job(pool, settings, "feed.retention", lambda: purge(pool, days=settings.feed_days)),
    ]


async def purge(pool: db.Pool, *, days: float) -> dict[str, object]:
    """Delete expired lots and intakes; what the cloud does not have stays."""
    lots = await purge_all(pool, store.purge_lots, days=days)
    return {"count": lots + await purge_all(pool, store.purge_intakes, days=days)}
