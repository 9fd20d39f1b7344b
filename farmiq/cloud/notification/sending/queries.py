"""What people ask of messages, and what the page that acknowledges shows."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from farmiq.plumbing import db

_MESSAGE = """
  message_id, episode_id, step, contact_id, channel_id, address, severity, subject, body, state,
  created_at, send_after, next_attempt_at, attempts, ended_at, error
"""


async def page(
    connection: db.Connection, tenant_id: str, wanted: Mapping[str, Any]
) -> list[dict[str, Any]]:
    """Messages, newest first."""
    return await db.fetch_dicts(
        connection,
        f"""
        select {_MESSAGE} from alert_messages
        where tenant_id = %(tenant_id)s
          and (%(episode)s::uuid is null or episode_id = %(episode)s)
          and (%(contact)s::text is null or contact_id = %(contact)s)
          and (%(channel)s::text is null or channel_id = %(channel)s)
          and (%(state)s::text is null or state = %(state)s)
          and (%(step)s::text is null or step = %(step)s)
          and (%(begin)s::timestamptz is null or created_at >= %(begin)s)
          and (%(end)s::timestamptz is null or created_at < %(end)s)
          and (%(after_at)s::timestamptz is null
            or (created_at, message_id) < (%(after_at)s, %(after_id)s::uuid))
        order by created_at desc, message_id desc limit %(limit)s
        """,  # noqa: S608 - our own columns
        {**wanted, "tenant_id": tenant_id},
    )


async def find_message(
    connection: db.Connection, tenant_id: str, message_id: UUID
) -> dict[str, Any] | None:
    rows = await db.fetch_dicts(
        connection,
        f"select {_MESSAGE} from alert_messages where tenant_id = %s and message_id = %s",  # noqa: S608
        (tenant_id, message_id),
    )
    return rows[0] if rows else None


@dataclass(frozen=True, slots=True)
class AckView:
    """What the page that acknowledges shows."""

    message: str
    severity: str
    state: str
    opened_at: datetime
    timezone: str
    farm: str | None
    barn: str | None
    acknowledged_by: str | None


async def ack_view(tx: db.Connection, tenant_id: str, episode_id: UUID) -> AckView | None:
    rows = await db.fetch_as(
        tx,
        AckView,
        """
        select e.message, e.severity, e.state, e.opened_at,
          coalesce(f.timezone, c.timezone) as timezone, coalesce(f.name, e.farm_id) as farm,
          coalesce(b.name, e.barn_id) as barn, e.acknowledged_by
        from alert_episodes e join companies c using (tenant_id)
        left join farms f on f.tenant_id = e.tenant_id and f.farm_id = e.farm_id
        left join barns b on b.tenant_id = e.tenant_id and b.farm_id = e.farm_id
          and b.barn_id = e.barn_id
        where e.tenant_id = %s and e.episode_id = %s
        """,
        (tenant_id, episode_id),
    )
    return rows[0] if rows else None
