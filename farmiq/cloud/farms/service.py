"""Farms: master data of a company, for people and programs.

people --PUT, DELETE, CSV--> [farms] --farms, barns, batches, feed_products, metrics,
breed_standards--> analytics, console, edges (GET /api/v1/edges/context)
"""

from datetime import timedelta

from farmiq.cloud.farms.api import Api
from farmiq.cloud.identity.sign_in import SignIns
from farmiq.config import CloudSettings
from farmiq.plumbing import db, http

NAME = "cloud-farms-registry"


async def run(settings: CloudSettings, server: http.HttpServer) -> None:
    url = settings.db_url.get_secret_value()
    async with db.pool(url, name=NAME, min_size=0, timeout_s=3.0) as pool:
        Api(SignIns(pool, lasts=timedelta(hours=settings.sign_in_hours))).add_to(server.app)
        server.ready("farms.database", lambda: db.problem(pool))
        await server.stopping.wait()
