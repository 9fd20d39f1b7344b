"""Weigh sessions at the edge: what they wait for, how long they are kept, and the API.

ingress --record(tx, …)--> weight_sessions <--media_objects-- [weighvision] --alerts, HTTP-->

Events of stations are written by ingress inside its one transaction (C-81). This service does what
depends on time: a session that lacks a part for too long is INCOMPLETE until the part arrives.
"""

import asyncio

from farmiq.config import EdgeSettings
from farmiq.edge.daily import daily_job, purge_all
from farmiq.edge.weighvision import jobs, store
from farmiq.edge.weighvision.api import Api
from farmiq.plumbing import db, http
from farmiq.plumbing.runtime.schedule import Job, run_repeatedly

NAME = "edge-weighvision-session"

MINUTE_S = 60.0


async def run(settings: EdgeSettings, server: http.HttpServer) -> None:
    async with (
        db.pool(settings.db_url.get_secret_value(), name=NAME) as pool,
        asyncio.TaskGroup() as group,
    ):
        server.ready("weighvision.database", lambda: db.problem(pool))
        Api(pool, timezone=settings.timezone).add_to(server.app)
        for job in all_jobs(pool, settings):
            group.create_task(run_repeatedly(job))


def all_jobs(pool: db.Pool, settings: EdgeSettings) -> list[Job]:
    patience_s = settings.weighvision_incomplete_min * MINUTE_S

    async def purge() -> dict[str, object]:
        deleted = await purge_all(pool, store.purge, days=settings.weighvision_days)
        return {"count": deleted}

    return [
        Job(
            "weighvision.waiting",
            settings.weighvision_round_s,
            lambda: jobs.flag_incomplete(pool, patience_s=patience_s),
        ),
        Job("weighvision.count", MINUTE_S, lambda: jobs.count(pool)),
        daily_job(pool, settings, "weighvision.retention", purge),
    ]
