"""SQL of weighings for the pages: the figures of a day, and the first image of each weighing."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from farmiq.plumbing import db
from farmiq.ui.estimates import Estimate


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


async def estimate(connection: db.Connection, tenant_id: str, session_id: UUID) -> Estimate | None:
    """What was made of its images, and how its model did since; None until they were looked at."""
    rows = await db.fetch_as(
        connection,
        Estimate,
        """
        select r.id as inference_result_id, r.predicted_weight_kg, r.confidence,
          r.model_version, r.low_kg, r.high_kg, r.reason, r.is_shadow, r.n_train, r.cv_mape,
          m.baseline_mape,
          coalesce(d.sessions, 0) as sessions, d.mape, d.coverage
        from inference_results r
          left join vision_models m on m.tenant_id = r.tenant_id and m.farm_id = r.farm_id
            and m.barn_id = r.barn_id and m.device_id = r.device_id
            and m.species = coalesce(r.species, '') and m.version = r.model_version
          left join lateral (
            select sum(v.sessions)::bigint as sessions,
              sum(v.error_sum) / nullif(sum(v.sessions), 0) as mape,
              sum(v.covered)::float8 / nullif(sum(v.intervals), 0) as coverage
            from vision_days v
            where v.tenant_id = r.tenant_id and v.farm_id = r.farm_id and v.barn_id = r.barn_id
              and v.device_id = r.device_id and v.species = coalesce(r.species, '')
              and v.version = r.model_version) d on true
        where r.tenant_id = %s and r.session_id = %s
        """,
        (tenant_id, session_id),
    )
    return rows[0] if rows else None
