"""Telemetry at the edge: the readings' own table and the care of it.

ingress --record(tx, …)--> telemetry_raw <--partitions-- [telemetry]

The rows themselves are written by ingress inside its one transaction (C-81); this service keeps
the table fit for them.
"""

import asyncio
from datetime import UTC, datetime

from farmiq.config import EdgeSettings
from farmiq.edge.telemetry import upkeep
from farmiq.plumbing import db, http, log
from farmiq.plumbing.backoff import Backoff

NAME = "edge-telemetry-timeseries"

ROUND_S = 3600.0


async def run(settings: EdgeSettings, door: http.Door) -> None:
    async with db.pool(settings.db_url.get_secret_value(), name=NAME, most=1) as pool:
        door.ready("telemetry.database", lambda: db.problem(pool))
        backoff = Backoff(cap_s=30.0)
        while True:
            try:
                made = await upkeep.make_months(pool, today=datetime.now(UTC).date())
            except db.UNAVAILABLE as error:
                log.get(NAME).warning("telemetry.database_away", error=db.first_line(error))
                await backoff.wait()
                continue
            log.get(NAME).info("telemetry.months_made", count=len(made))
            await asyncio.sleep(ROUND_S)
