"""Edges: they register their keys by a one-time code, and say every minute how they are.

edge-sync-forwarder, farmiq edge enroll --POST--> [edges] --edge_keys, edge_heartbeats-->
cloud-ingestion, people
"""

import asyncio
from datetime import timedelta

from farmiq.cloud.edges.api import Api
from farmiq.cloud.edges.keyring import Keyring
from farmiq.cloud.identity.desk import Desk
from farmiq.config import CloudSettings
from farmiq.plumbing import db, http

NAME = "cloud-edges-registry"


async def run(settings: CloudSettings, door: http.Door) -> None:
    url = settings.db_url.get_secret_value()
    async with db.pool(url, name=NAME, least=0, timeout_s=3.0) as pool:
        desk = Desk(pool, lasts=timedelta(hours=settings.sign_in_hours))
        Api(pool, desk, Keyring(settings, pool)).add_to(door.app)
        door.ready("edges.database", lambda: db.problem(pool))
        await asyncio.Event().wait()
