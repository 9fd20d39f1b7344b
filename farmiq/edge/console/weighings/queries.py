"""SQL of weighings for the pages: the figures of a day, and the first image of each weighing."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from farmiq.plumbing import db


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """How many weighings a day has, by state, and their mean weight."""

    total: int
    incomplete: int
    open: int
    cancelled: int
    mean_kg: float | None


async def figures(
    connection: db.Connection, tenant_id: str, *, begin: datetime, end: datetime
) -> Figures:
    (counted,) = await db.fetch_as(
        connection,
        Figures,
        """
        select count(*)::int as total, count(*) filter (where is_incomplete)::int as incomplete,
          count(*) filter (where status = 'created' and not is_incomplete)::int as open,
          count(*) filter (where status = 'cancelled')::int as cancelled,
          avg(final_weight_kg) filter (where status = 'finalized') as mean_kg
        from weight_sessions
        where tenant_id = %s and start_at >= %s and start_at < %s
        """,
        (tenant_id, begin, end),
    )
    return counted


async def first_images(
    connection: db.Connection, tenant_id: str, session_ids: Sequence[UUID]
) -> dict[UUID, UUID]:
    """By weighing its first image whose bytes are here."""
    rows = await db.fetch_all(
        connection,
        """
        select distinct on (m.session_id) m.session_id, m.id
        from media_objects m join weight_sessions w on w.id = m.session_id
          and w.tenant_id = m.tenant_id and w.device_id = m.device_id
        where m.tenant_id = %s and m.session_id = any(%s) and m.upload_status = 'stored'
        order by m.session_id, m.captured_at, m.id
        """,
        tenant_id,
        list(session_ids),
    )
    return dict(rows)
