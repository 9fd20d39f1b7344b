"""Weigh sessions at the edge: what they wait for, how long they are kept, and the API.

ingress --record(tx, …)--> weight_sessions <--media_objects-- [weighvision] --alerts, HTTP-->

Events of stations are written by ingress inside its one transaction (C-81). This service does what
depends on time: a session that lacks a part for too long is INCOMPLETE until the part arrives.
"""

import asyncio

from farmiq.config import EdgeSettings
from farmiq.edge.daily import retention_job
from farmiq.edge.weighvision import jobs
from farmiq.edge.weighvision.api import Api
from farmiq.plumbing import db, http
from farmiq.plumbing.retention import Retention
from farmiq.plumbing.runtime.schedule import Job, run_repeatedly

NAME = "edge-weighvision-session"

MINUTE_S = 60.0

# An open session stays whatever its age, as does one whose events or images the cloud does not
# have (003).
ENDED_AND_SYNCED = """
t.status <> 'created'
and not exists (
  select from weight_session_events e where e.session_id = t.id and fn_unsynced(e.event_id))
and not exists (
  select from media_objects m
  where m.tenant_id = t.tenant_id and m.session_id = t.id
    and m.upload_status = 'stored' and m.synced_at is null)
"""


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
    sessions = Retention("weight_sessions", "heard_at", settings.weighvision_days, ENDED_AND_SYNCED)
    return [
        Job(
            "weighvision.waiting",
            settings.weighvision_round_s,
            lambda: jobs.flag_incomplete(pool, patience_s=patience_s),
        ),
        Job("weighvision.count", MINUTE_S, lambda: jobs.count(pool)),
        retention_job(pool, settings, "weighvision.retention", sessions),
    ]
