"""The edge's own console: pages for people in the barn, also on days without internet.

telemetry_latest, telemetry_agg, weight_sessions, media_objects, devices, device_state, alerts,
sync_outbox, sync_state, quarantine --with the rights of a key--> [console] --HTML, SSE--> browsers
browsers --records, redrives--> [console] --the functions of the edge's API--> the same tables

It never delays what devices send: a pool of its own with few connections, statements that end,
queries that are bounded. Pages work while the broker and the object store are away.
"""

import asyncio
from datetime import timedelta
from pathlib import Path

from farmiq.config import EdgeSettings
from farmiq.edge.bucket import bucket_of
from farmiq.edge.console import watch
from farmiq.edge.console.delivery.routes import DeliveryPages
from farmiq.edge.console.devices.adding import AddDevicePages
from farmiq.edge.console.devices.routes import DevicePages
from farmiq.edge.console.keys.routes import KeyPages
from farmiq.edge.console.pages import Pages
from farmiq.edge.console.readings.routes import ReadingPages
from farmiq.edge.console.records.routes import RecordPages
from farmiq.edge.console.sign_in.routes import SignInPages
from farmiq.edge.console.sign_ins import SignIns
from farmiq.edge.console.today.routes import TodayPages
from farmiq.edge.console.weighings.routes import WeighingPages
from farmiq.plumbing import db, http
from farmiq.plumbing.images.gallery import Gallery
from farmiq.plumbing.runtime.schedule import run_repeatedly
from farmiq.ui import live, look

NAME = "edge-console"
CONNECTIONS = 3
STATEMENT_TIMEOUT_S = 5.0
# The cloud counts as away when it has not answered so many questions for master data.
MISSED_ANSWERS = 3
_HERE = Path(__file__).parent
_AREAS = ("sign_in", "today", "weighings", "readings", "devices", "delivery", "records", "keys")

look.add_templates(_HERE, *(_HERE / area for area in _AREAS))


async def run(settings: EdgeSettings, server: http.HttpServer) -> None:
    hub = live.Hub()
    async with db.pool(
        settings.db_url.get_secret_value(),
        name=NAME,
        min_size=0,
        max_size=CONNECTIONS,
        timeout_s=3,
        statement_timeout_s=STATEMENT_TIMEOUT_S,
    ) as pool:
        sign_ins = SignIns(pool, lasts=timedelta(hours=settings.sign_in_hours))
        pages = Pages(pool, sign_ins, hub, settings.timezone)
        patience_s = MISSED_ANSWERS * settings.sync_context_s
        for area in (
            pages,
            SignInPages(pages, settings.cookie_secure),
            TodayPages(pages, patience_s),
            WeighingPages(pages, Gallery(bucket_of(settings), site="edge")),
            ReadingPages(pages),
            AddDevicePages(pages, settings.mqtt_url.get_secret_value()),
            DevicePages(pages),
            DeliveryPages(pages, patience_s),
            RecordPages(pages),
            KeyPages(pages),
        ):
            area.add_to(server.app)
        server.ready("console.database", lambda: db.problem(pool))
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(watch.run(pool, hub))
                group.create_task(hub.close_when(server.stopping))
                group.create_task(run_repeatedly(sign_ins.purge_job()))
        finally:
            hub.close()
