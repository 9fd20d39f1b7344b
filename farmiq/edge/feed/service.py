"""Feed at the edge: lots and intakes that people enter, and intakes derived from silos' weights.

ingress --record(tx, …)--> feed_intakes <--telemetry_raw-- [feed] --feed_lots, sync_outbox--> sync

Events of devices are written by ingress inside its one transaction (C-81). This service derives
intakes from silos' weights in its own time and serves the HTTP routes.
"""

import asyncio

from farmiq.config import EdgeSettings
from farmiq.edge.daily import retention_job
from farmiq.edge.feed import derivation
from farmiq.edge.feed.api import Api
from farmiq.plumbing import db, http
from farmiq.plumbing.retention import Retention
from farmiq.plumbing.runtime.schedule import Job, run_repeatedly

NAME = "edge-feed-intake"


async def run(settings: EdgeSettings, server: http.HttpServer) -> None:
    async with (
        db.pool(settings.db_url.get_secret_value(), name=NAME) as pool,
        asyncio.TaskGroup() as group,
    ):
        server.ready("feed.database", lambda: db.problem(pool))
        Api(pool).add_to(server.app)
        for job in jobs_of(settings, pool):
            group.create_task(run_repeatedly(job))


def jobs_of(settings: EdgeSettings, pool: db.Pool) -> list[Job]:
    return [
        Job(
            "feed.derivation",
            settings.feed_derive_s,
            lambda: derivation.derive(pool, settle_s=settings.feed_settle_s),
        ),
        retention_job(
            pool,
            settings,
            "feed.retention",
            Retention("feed_lots", "recorded_at", settings.feed_days, "not fn_unsynced(event_id)"),
            Retention(
                "feed_intakes", "recorded_at", settings.feed_days, "not fn_unsynced(intake_id)"
            ),
        ),
    ]
