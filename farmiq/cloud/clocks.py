"""Whether edges have the same time as the cloud's database."""

from farmiq.plumbing import db
from farmiq.plumbing.runtime import clock


async def edges_agree(tx: db.Connection) -> bool:
    """Whether most edges that were heard within ten minutes have the same time as we."""
    agree: bool = await db.fetch_value(
        tx,
        """
        select count(*) filter (where abs(h.clock_offset_s) <= %s)
          > count(*) filter (where abs(h.clock_offset_s) > %s)
        from edge_heartbeats h
        where h.received_at between fn_now() - interval '10 minutes' and fn_now()
        """,
        clock.MAX_DRIFT_S,
        clock.MAX_DRIFT_S,
    )
    return agree
