"""Edges: they register their keys by a one-time code and send a heartbeat every minute.

edge-sync-forwarder, farmiq edge enroll --POST--> [edges] --edge_keys, edge_heartbeats-->
cloud-ingestion, people
"""

from datetime import timedelta

import prometheus_client

from farmiq.cloud.edges import registry
from farmiq.cloud.edges.api import Api
from farmiq.cloud.edges.keyring import Keyring
from farmiq.cloud.identity.sign_in import SignIns
from farmiq.config import CloudSettings
from farmiq.plumbing import db, http
from farmiq.plumbing.runtime import schedule
from farmiq.plumbing.runtime.schedule import Job

NAME = "cloud-edges-registry"
WATCH_S = 30.0

EDGES = prometheus_client.Gauge(
    "farmiq_edges", "Edges with a good key, by tenant, and whether they are heard", ["state"]
)


async def run(settings: CloudSettings, server: http.HttpServer) -> None:
    url = settings.db_url.get_secret_value()
    async with db.pool(url, name=NAME, min_size=0, timeout_s=3.0) as pool:
        sign_ins = SignIns(pool, lasts=timedelta(hours=settings.sign_in_hours))
        Api(pool, sign_ins, Keyring(settings, pool)).add_to(server.app)
        server.ready("edges.database", lambda: db.problem(pool))
        await schedule.run_repeatedly(Job("edges.watch", WATCH_S, lambda: watch(pool)))


async def watch(pool: db.Pool) -> dict[str, object]:
    """Count the edges with a valid key by state; deploy/alerts.yaml alerts on silent ones."""
    async with db.transaction(pool) as tx:
        edges = await registry.list_edges(tx)
    states = [edge["state"] for edge in edges if any(key["good"] for key in edge["keys"])]
    for state in registry.STATES:
        EDGES.labels(state=state).set(states.count(state))
    return {}
