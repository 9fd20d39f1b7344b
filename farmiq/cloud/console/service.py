"""Console: what people see. Sign-in, and one live page with the latest readings.

telemetry_latest, telemetry_readings --as the person who looks--> [console] --HTML, SSE--> browsers
"""

import asyncio
from datetime import timedelta

from farmiq.cloud.console import live, pages
from farmiq.cloud.identity.desk import Desk
from farmiq.config import CloudSettings
from farmiq.plumbing import db, http

NAME = "cloud-console"


async def run(settings: CloudSettings, door: http.Door) -> None:
    url = settings.db_url.get_secret_value()
    hub = live.Hub()
    async with db.pool(url, name=NAME, timeout_s=3) as pool:
        desk = Desk(pool, lasts=timedelta(hours=settings.sign_in_hours))
        pages.Pages(pool, desk, hub, cookie_secure=settings.cookie_secure).add_to(door.app)
        door.ready("console.database", lambda: db.problem(pool))
        door.ready("console.live", lambda: None if hub.listening else "hears no changes")
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(live.listen(url, hub))
                group.create_task(_end_streams(door, hub))
        finally:
            hub.close()


async def _end_streams(door: http.Door, hub: live.Hub) -> None:
    """Stopping never waits for browsers."""
    await door.stopping.wait()
    hub.close()
