"""SQL of the audit log: the logs of all services as one, with the person's rights."""

from collections.abc import Mapping
from typing import Any

from farmiq.cloud.console.settings.audit.view import Entry
from farmiq.plumbing import db

MAX_ACTORS = 100

# Each branch: (entry_id, at, actor, kind, action, subject, detail), and the tenant or company is
# what row level security lets through.
_SOURCES = {
    "people": """
        select action_id as entry_id, at, actor, 'people' as kind, action, email as subject, detail
        from user_actions where action not in ('sign_in', 'sign_in_failed', 'sign_out')""",
    "sign-ins": """
        select action_id, at, actor, 'sign-ins', action, email, detail
        from user_actions where action in ('sign_in', 'sign_in_failed', 'sign_out')""",
    "edges": """
        select action_id, at, actor, 'edges', action, edge_cluster_id, coalesce(key_id, '')
        from edge_actions""",
    "dead letters": """
        select action_id, at, actor, 'dead letters', action,
          coalesce(event_type || ' ', '') || coalesce(event_id, ''),
          outcome || ' (' || reason || ')'
        from dead_letter_actions
        union all
        select order_id, ordered_at, ordered_by, 'dead letters', 'order_' || action,
          queue || coalesce(' ' || reason, ''), note
        from dead_letter_orders where not dry_run""",
    "alerts": """
        select action_id, at, actor, 'alerts', action, key, coalesce(detail::text, '')
        from alert_actions""",
    "master data": """
        select action_id, at, actor, 'master data', action, kind || coalesce(' ' || key, ''),
          coalesce(detail::text, '')
        from master_data_actions where kind not in ('pilot_programs', 'sites', 'devices',
          'device_images', 'device_alerts')""",
    "records": """
        select event_id, posted_at, posted_by, 'records', 'post', event_type, subject
        from posted_events""",
    "cameras": """
        select c.command_id, c.created_at, c.created_by, 'cameras', 'order', d.device_name,
          c.name || ' (' || c.state || ')'
        from camera_commands c join devices d using (device_id)
        union all
        select action_id, at, actor, 'cameras', action, kind || ' ' || key,
          coalesce(detail::text, '')
        from master_data_actions where kind in ('pilot_programs', 'sites', 'devices',
          'device_images', 'device_alerts')
        union all
        select s.series_id, s.ended_at, coalesce(u.email, s.ended_by::text), 'cameras', 'new_dish',
          d.device_name, ''
        from dish_series s join devices d using (device_id)
        left join users u on u.user_id = s.ended_by
        where s.ended_by is not null""",
    "schedules": """
        select s.change_id, s.requested_at,
          coalesce(u.email, s.requested_by::text, 'system'), 'schedules', 'request', d.device_name,
          s.new_wake_schedule_cron
        from device_schedule_changes s join devices d using (device_id)
        left join users u on u.user_id = s.requested_by
        union all
        select s.change_id, s.cancelled_at, coalesce(u.email, s.cancelled_by::text, 'system'),
          'schedules', 'cancel', d.device_name, s.new_wake_schedule_cron
        from device_schedule_changes s join devices d using (device_id)
        left join users u on u.user_id = s.cancelled_by
        where s.cancelled_at is not null""",
}
MAX_DETAIL_CHARS = 2000


async def entries(connection: db.Connection, page: Mapping[str, Any]) -> list[Entry]:
    """A page of an AuditFilter, newest first. Each source gives at most a page of its own."""
    sources = [page["kind"]] if page["kind"] else list(_SOURCES)
    branches = " union all ".join(
        f"""
        (select * from ({_SOURCES[kind]}) s (entry_id, at, actor, kind, action, subject, detail)
         where (%(actor)s::text is null or actor = %(actor)s)
           and (%(after_at)s::timestamptz is null
             or (at, entry_id) < (%(after_at)s, %(after_id)s))
         order by at desc, entry_id desc limit %(limit)s)
        """  # noqa: S608 - the sources are constants
        for kind in sources
    )
    return await db.fetch_as(
        connection,
        Entry,
        f"""
        select entry_id, at, actor, kind, action, left(subject, {MAX_DETAIL_CHARS}) as subject,
          left(detail, {MAX_DETAIL_CHARS}) as detail
        from ({branches}) a order by at desc, entry_id desc limit %(limit)s
        """,  # noqa: S608
        dict(page),
    )


async def actors(connection: db.Connection) -> list[str]:
    """People of the company, and who else acted on it lately."""
    rows = await db.fetch_all(
        connection,
        """
        select email from users
        union
        select actor from (
          (select actor from edge_actions order by at desc limit 500)
          union all (select actor from user_actions order by at desc limit 500)
          union all (select actor from alert_actions order by at desc limit 500)
          union all (select actor from dead_letter_actions order by at desc limit 500)
          union all (select ordered_by from dead_letter_orders order by ordered_at desc limit 500)
          union all (select actor from master_data_actions order by at desc limit 500)
        ) a
        order by 1 limit %s
        """,
        MAX_ACTORS,
    )
    return [row[0] for row in rows]
