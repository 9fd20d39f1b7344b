"""What changes in the edge's tables, for the live pages: asked for only while a page is open.

tables --PostgreSQL's own counts of writes--> [watch] --hub--> browsers

The transactions of devices' messages do not notify: NOTIFY makes commits wait for each other
(D-502). The counts cost ingress nothing and are at most a second or two old.
"""

import asyncio
from collections.abc import Mapping

from farmiq.plumbing import db, log
from farmiq.ui import live

EVERY_S = 2.0
# Which pages show what is in which table.
TABLES = {
    live.TELEMETRY: ("telemetry_dirty", "telemetry_latest", "device_state", "devices"),
    live.WEIGHVISION: (
        "weight_sessions",
        "weight_session_events",
        "media_objects",
        "inference_results",
    ),
    live.ALERTS: ("alerts",),
    live.DELIVERY: ("sync_outbox", "sync_state", "quarantine", "cloud_contexts"),
    live.FIGURES: ("barn_records", "feed_intakes", "feed_lots"),
}

Counts = Mapping[str, int]


async def run(pool: db.Pool, hub: live.Hub) -> None:
    """For ever; the hub knows when the database does not answer."""
    seen: Counts = {}
    while not hub.closing.is_set():
        try:
            counts = await written(pool) if hub.is_watched or not hub.listening else seen
        except db.UNAVAILABLE as error:
            if hub.listening:
                log.get("edge-console").warning("console.deaf", error=db.first_line(error))
                hub.hear(False)
        else:
            if not hub.listening:
                hub.hear(True)
            for about in changed(seen, counts):
                hub.changed("", about)
            seen = counts
        await asyncio.sleep(EVERY_S)


async def written(pool: db.Pool) -> Counts:
    """How often each table was written to since the database's statistics began."""
    async with pool.connection(timeout=2.0) as connection:
        rows = await db.fetch_all(
            connection,
            "select relname, n_tup_ins + n_tup_upd + n_tup_del from pg_stat_user_tables "
            "where relname = any(%s)",
            [table for tables in TABLES.values() for table in tables],
        )
    return dict(rows)


def changed(before: Counts, after: Counts) -> list[str]:
    """The topics of which a table was written to."""
    return [
        about
        for about, tables in TABLES.items()
        if any(before.get(table) != after.get(table) for table in tables)
    ]
