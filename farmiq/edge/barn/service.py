"""Barn records at the edge: what devices send and people enter, while the cloud is away too.

ingress --record(tx, …)--> barn_records <--POST-- [barn] --barn_records, sync_outbox--> sync

Records of devices are written by ingress inside its one transaction (C-81). This service serves the
HTTP routes; its records go through the outbox like all others.
"""

from farmiq.config import EdgeSettings
from farmiq.edge.barn.api import Api
from farmiq.edge.daily import retention_job
from farmiq.plumbing import db, http
from farmiq.plumbing.retention import Retention
from farmiq.plumbing.runtime.schedule import run_repeatedly

NAME = "edge-barn-records"


async def run(settings: EdgeSettings, server: http.HttpServer) -> None:
    async with db.pool(settings.db_url.get_secret_value(), name=NAME, min_size=0) as pool:
        server.ready("barn.database", lambda: db.problem(pool))
        Api(pool).add_to(server.app)
        posted = Retention(
            "posted_events", "posted_at", settings.barn_days, "not fn_unsynced(event_id)"
        )
        await run_repeatedly(retention_job(pool, settings, "barn.retention", posted))
